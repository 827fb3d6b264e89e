// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/views/links_view.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "userspace/control/link_faults.h"
#include "userspace/control/link_queues.h"

namespace cw::agent {
namespace {

namespace v1 = ::cwfabric::v1;

constexpr double kLeastErrorNs = 300;   // of a path's mean queueing delay: its base may be so far off, …
constexpr double kSketchError = 0.022;  // … and a bucket's width, of the delay
constexpr double kTailSds = 2.33;       // from the mean to p99

// Links by number, so that names are compared once.
struct LinkIndex {
  std::map<std::string, uint64_t> number;  // by the address where it ends
  std::vector<v1::Link> links;

  uint64_t Of(const std::string& from, const std::string& to, const std::string& peer) {
    const auto [found, fresh] = number.try_emplace(to, links.size());
    if (fresh) {
      v1::Link link;
      link.set_from(from);
      link.set_to(to);
      link.set_peer(peer);
      links.push_back(std::move(link));
    }
    return found->second;
  }
};

// Empty: a switch on the way does not answer.
std::vector<uint64_t> LinksOf(const v1::Pair& pair, const v1::Path& path, LinkIndex& index) {
  std::vector<uint64_t> links;
  if (path.hops().empty()) return links;
  std::string from = pair.local_address();
  for (const std::string& hop : path.hops()) {
    if (hop == "*") return {};
    links.push_back(index.Of(from, hop, ""));
    from = hop;
  }
  links.push_back(index.Of(from, pair.remote_address(), pair.peer()));
  return links;
}

const v1::PathWindow* WindowOf(const v1::Path& path, uint32_t seconds) {
  for (const v1::PathWindow& window : path.windows()) {
    if (window.seconds() == seconds) return &window;
  }
  return nullptr;
}

control::PathQueue QueueOf(const v1::PathWindow* window, const std::vector<uint64_t>& links) {
  control::PathQueue queue{.links = links};
  if (window == nullptr || window->queueing_forward().samples() == 0) return queue;
  const v1::Delay& waited = window->queueing_forward();
  const double sd_ns = std::max(0.0, waited.p99_ns() - waited.mean_ns()) / kTailSds;
  queue.queue_ns = waited.mean_ns();
  queue.error_ns = std::hypot(kLeastErrorNs, sd_ns / std::sqrt(static_cast<double>(waited.samples())),
                              kSketchError * window->forward().mean_ns());
  return queue;
}

// Our own link flaps as its NIC's carrier does, which paths cannot see.
void AddFlaps(const LinkPast& flaps, v1::Link& link) {
  const bool own = flaps.own.contains(link.from());
  if (!own && !flaps.by_end.contains(link.to())) return;
  const control::FlapCount& count = own ? flaps.own.at(link.from()) : flaps.by_end.at(link.to());
  link.set_flaps_1h(static_cast<uint32_t>(count.flaps));
  link.set_flaps_1h_certain(static_cast<uint32_t>(count.certain));
}

// What each of the links is known by from one of the paths that take it.
void AddPath(const v1::Path& path, uint32_t window_s, const std::vector<uint64_t>& links, LinkIndex& index) {
  const v1::PathWindow* window = WindowOf(path, window_s);
  const double loss = window == nullptr || window->agent_late() ? 0 : window->loss();
  for (const uint64_t number : links) {
    v1::Link& link = index.links[number];
    const bool first = link.paths() == 0;
    link.set_paths(link.paths() + 1);
    link.set_paths_dead(link.paths_dead() + (path.state() == v1::PATH_STATE_DEAD ? 1 : 0));
    link.set_loss(first ? loss : std::min(link.loss(), loss));
    link.set_checked_ago_s(first ? path.age_s() : std::min(link.checked_ago_s(), path.age_s()));
  }
}

// Links of the past hour that no path takes now.
void AddGone(const LinkPast& past, const LinkIndex& index, v1::LinksReply& reply) {
  for (const LinkPast::Gone& gone : past.gone) {
    const auto found = index.number.find(gone.link.to);
    if (found != index.number.end() && index.links[found->second].paths() > 0) continue;
    v1::Link& link = *reply.add_links();
    link.set_from(gone.link.from);
    link.set_to(gone.link.to);
    link.set_gone_ago_s(gone.ago_s);
    AddFlaps(past, link);
  }
}

void AddAlike(const std::vector<uint64_t>& group, std::vector<v1::Link>& links) {
  for (const uint64_t link : group) {
    for (const uint64_t other : group) {
      if (other != link) links[link].add_alike(links[other].to());
    }
  }
}

}  // namespace

v1::LinksReply MakeLinks(const v1::PathsReply& paths, uint32_t window_s, const LinkPast& past) {
  LinkIndex index;
  std::vector<control::PathQueue> queues;
  std::vector<control::PathHealth> healths;
  for (const v1::Pair& pair : paths.pairs()) {
    for (const v1::Path& path : pair.paths()) {
      const std::vector<uint64_t> links = LinksOf(pair, path, index);
      // A path that never answered says nothing: the peer may not be there.
      if (links.empty() || path.state() == v1::PATH_STATE_NEW) continue;
      const bool dead = path.state() == v1::PATH_STATE_DEAD;
      healths.push_back({dead, links});
      if (!dead) queues.push_back(QueueOf(WindowOf(path, window_s), links));
      AddPath(path, window_s, links, index);
    }
  }
  v1::LinksReply reply;
  reply.set_window_s(window_s);
  reply.set_paths(static_cast<uint32_t>(healths.size()));
  for (const control::LinkQueue& queue : control::FitLinkQueues(queues)) {
    for (const uint64_t link : queue.links) {
      index.links[link].set_queue_ns(queue.queue_ns);
      index.links[link].set_queue_error_ns(std::isfinite(queue.error_ns) ? queue.error_ns : queue.queue_ns);
    }
    if (queue.queue_ns > 0) AddAlike(queue.links, index.links);
  }
  const control::LinkFaults faults = control::FindLinkFaults(healths);
  for (const control::LinkFault& fault : faults.faults) {
    for (const uint64_t link : fault.links) {
      index.links[link].set_suspect(true);
      index.links[link].clear_alike();
    }
    AddAlike(fault.links, index.links);
  }
  reply.set_paths_dead_unexplained(static_cast<uint32_t>(faults.unexplained.size()));
  std::stable_sort(index.links.begin(), index.links.end(), [](const v1::Link& a, const v1::Link& b) {
    return a.suspect() != b.suspect() ? a.suspect() : a.queue_ns() > b.queue_ns();
  });
  AddGone(past, index, reply);
  for (v1::Link& link : index.links) {
    AddFlaps(past, link);
    if (link.paths() > 0) *reply.add_links() = std::move(link);
  }
  std::stable_partition(reply.mutable_links()->begin(), reply.mutable_links()->end(),
                        [](const v1::Link& link) { return link.suspect(); });
  return reply;
}

}  // namespace cw::agent
