// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/fleet/jobs/jobs.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
constexpr size_t kMostSentences = 8, kMostSlow = 3;

// One host's word of a collective.
struct Said {
  size_t host = 0;
  const pb::Collective* what = nullptr;
  double begun_ns = 0;  // when it was enqueued, as its host's clock has it
};
using WaveId = std::tuple<std::string, std::string, uint64_t>;  // communicator, function, NCCL's number
using Wave = std::map<int, Said>;                               // one collective, by rank
using Waves = std::map<WaveId, Wave>;

// What a rank waits for longest, now or, where it is over, in all.
struct Wait {
  enum class For { kNothing, kPeersData, kPeersRoom, kNetwork, kOwnGpu } what = For::kNothing;
  int peer = -1;
  const pb::CollectivePeer* op = nullptr;
};

Wait::For ForOf(const std::string& state) {
  if (state == "RecvWait") return Wait::For::kPeersData;
  if (state == "SendPeerWait") return Wait::For::kPeersRoom;
  if (state == "SendWait") return Wait::For::kNetwork;
  return state == "SendGPUWait" ? Wait::For::kOwnGpu : Wait::For::kNothing;
}

// What has not come explains an idle GPU, and what is on its way explains everything behind it.
int WeightOf(Wait::For what) {
  switch (what) {
    case Wait::For::kNetwork:
      return 4;
    case Wait::For::kPeersData:
      return 3;
    case Wait::For::kPeersRoom:
      return 2;
    case Wait::For::kOwnGpu:
      return 1;
    case Wait::For::kNothing:
      break;
  }
  return 0;
}

Wait WaitOf(const pb::Collective& c) {
  Wait wait;
  double longest_ns = -1;
  for (const pb::CollectivePeer& op : c.peers()) {
    const Wait::For what = ForOf(op.state());
    if (op.done() || what == Wait::For::kNothing) continue;
    const int more = WeightOf(what) - WeightOf(wait.what);
    if (more < 0 || (more == 0 && op.state_ns() <= longest_ns)) continue;
    wait = {what, op.rank(), &op};
    longest_ns = op.state_ns();
  }
  return wait;
}

class Judge {
 public:
  Judge(const JoinedJob& job, absl::Span<const HostWork> hosts, absl::Span<const Finding> findings,
        const Topology& topology)
      : hosts_(hosts), findings_(findings), topology_(topology) {
    for (const JoinedJob::Place& place : job.ranks) {
      const pb::Job& rank = *hosts[place.host].ranks[place.index].job;
      ranks_[{rank.id(), rank.rank()}] = {place.host, &rank};
    }
    const std::set<std::string> ids(job.ids.begin(), job.ids.end());
    for (size_t h = 0; h < hosts.size(); ++h) {
      for (const auto& [c, time_ns] : hosts[h].collectives) {
        if (!ids.contains(c->job_id())) continue;
        const bool stands = c->state() == pb::Collective::STATE_STALLED;
        const double begun_ns = static_cast<double>(time_ns) - c->enqueued_ago_s() * 1e9;
        (stands ? standing_ : slow_)[{c->job_id(), c->function(), c->seq()}][c->rank()] = {h, c, begun_ns};
      }
    }
  }

  std::vector<HeldUpBy> Sentences() {
    std::set<std::string> communicators;
    // The oldest of each communicator holds up those behind it.
    for (const Waves::value_type* at : ByBegin(standing_)) {
      const auto& [id, wave] = *at;
      if (out_.size() < kMostSentences && communicators.insert(std::get<0>(id)).second) TellStall(id, wave);
    }
    if (out_.empty()) TellSlow();
    return std::move(out_);
  }

 private:
  struct Member {
    size_t host = 0;
    const pb::Job* rank = nullptr;
  };

  // When its first rank enqueued it.
  static double BegunNs(const Wave& wave) {
    const auto before = [](const auto& a, const auto& b) { return a.second.begun_ns < b.second.begun_ns; };
    return std::min_element(wave.begin(), wave.end(), before)->second.begun_ns;
  }

  // The oldest first: NCCL's numbers are of a function, so they order nothing.
  static std::vector<const Waves::value_type*> ByBegin(const Waves& waves) {
    std::vector<const Waves::value_type*> order;
    for (const auto& wave : waves) order.push_back(&wave);
    std::stable_sort(order.begin(), order.end(),
                     [](const auto* a, const auto* b) { return BegunNs(a->second) < BegunNs(b->second); });
    return order;
  }

  std::string NameOf(const WaveId& id, int rank) const {
    const auto member = ranks_.find({std::get<0>(id), rank});
    return member == ranks_.end() ? absl::StrCat("rank ", rank)
                                  : absl::StrCat("rank ", rank, " (", hosts_[member->second.host].host, ")");
  }

  static std::string Title(const WaveId& id) {
    return std::get<2>(id) == 0 ? std::get<1>(id) : absl::StrCat(std::get<1>(id), " ", std::get<2>(id));
  }

  // From who waits to whom it waits for, until somebody waits for nobody.
  void TellStall(const WaveId& id, const Wave& wave) {
    const auto waits = [](const auto& said) { return WaitOf(*said.second.what).what == Wait::For::kPeersData; };
    const auto first = std::find_if(wave.begin(), wave.end(), waits);
    int rank = first == wave.end() ? wave.begin()->first : first->first;
    const int start = rank;
    std::set<int> passed;
    Wait wait;
    for (auto said = wave.find(rank); said != wave.end() && passed.insert(rank).second; said = wave.find(rank)) {
      wait = WaitOf(*said->second.what);
      if (wait.what != Wait::For::kPeersData && wait.what != Wait::For::kPeersRoom) break;
      rank = wait.peer;
    }
    // While nothing has come there is no duration.
    const pb::Collective& c = *wave.at(start).what;
    std::string text =
        absl::StrFormat("%s stands for %.0f s: ", Title(id), std::max(c.enqueued_ago_s(), c.duration_ns() / 1e9));
    if (rank != start) absl::StrAppend(&text, NameOf(id, start), " waits for ", NameOf(id, rank), ": ");
    HeldUpBy end = EndOf(id, wave, rank, passed.contains(rank) ? wait : Wait{});
    out_.push_back({text + end.text, std::move(end.host)});
  }

  HeldUpBy EndOf(const WaveId& id, const Wave& wave, int rank, const Wait& wait) {
    if (!wave.contains(rank)) return Silent(id, rank);
    const Said& said = wave.at(rank);
    if (!hosts_[said.host].speaks)
      return {absl::StrCat(hosts_[said.host].host, " is not connected: see cwctl fleet findings"), ""};
    if (wait.what == Wait::For::kNetwork) return {OnTheWay(id, rank, wait, said), ""};
    if (wait.what == Wait::For::kPeersData || wait.what == Wait::For::kPeersRoom)
      return {absl::StrCat("ranks wait for each other in a ring, and nothing is on its way: not the network, as far as "
                           "hosts tell; see cwctl collectives --slow on ",
                           hosts_[said.host].host),
              ""};
    return {absl::StrFormat("%s has sent nothing%s: not the network; look at process %d there", NameOf(id, rank),
                            wait.what == Wait::For::kOwnGpu ? ", its GPU has no data yet" : "", said.what->pid()),
            hosts_[said.host].host};
  }

  // It says nothing of this collective.
  HeldUpBy Silent(const WaveId& id, int rank) const {
    const auto member = ranks_.find({std::get<0>(id), rank});
    if (member == ranks_.end())
      return {absl::StrFormat(
                  "no host tells of rank %d: its host is not connected, or its process has no profiler (docs/nccl.md)",
                  rank),
              ""};
    const HostWork& work = hosts_[member->second.host];
    if (!work.speaks) return {absl::StrCat(work.host, " is not connected: see cwctl fleet findings"), ""};
    return {absl::StrFormat("%s has not begun it, so it sent nothing: not the network; look at process %d there",
                            NameOf(id, rank), member->second.rank->pid()),
            work.host};
  }

  std::string OnTheWay(const WaveId& id, int rank, const Wait& wait, const Said& said) const {
    const std::string& host = hosts_[said.host].host;
    std::string text = absl::StrCat(NameOf(id, rank), " sent to ", NameOf(id, wait.peer), ", which was not taken");
    const pb::CollectiveQp* slowest = nullptr;
    for (const pb::CollectiveQp& qp : wait.op->qps()) {
      if (qp.open() > 0 && (slowest == nullptr || qp.open_ns() > slowest->open_ns())) slowest = &qp;
    }
    if (slowest == nullptr) return absl::StrCat(text, "; which queue pair is not known; ask cwctl jobs on ", host);
    if (!slowest->flow().empty()) absl::StrAppend(&text, ", by flow ", slowest->flow());
    for (const Finding& finding : findings_) {
      if (IsOn(finding, *slowest))
        return absl::StrFormat("%s: its path crosses %s, which is wrong: %s (finding %s)", text, finding.scope,
                               CauseName(finding.cause), IdText(finding.id));
    }
    return absl::StrCat(text, ": no finding is on its path; ask cwctl why ", slowest->flow(), " on ", host);
  }

  bool IsOn(const Finding& finding, const pb::CollectiveQp& qp) const {
    JobReach way;
    for (const std::string& hop : qp.hops()) {
      if (const absl::StatusOr<Addr> address = Addr::Parse(hop); address.ok()) way.ports.insert(*address);
    }
    way.hosts.insert(qp.peer());
    return Crosses(finding, way, topology_);
  }

  // Those that were slow, in their ranks' own words; the newest of each communicator.
  void TellSlow() {
    std::vector<const Waves::value_type*> order = ByBegin(slow_);
    std::reverse(order.begin(), order.end());
    std::set<std::string> communicators;
    for (const Waves::value_type* at : order) {
      const auto& [id, wave] = *at;
      const Said* worst = nullptr;
      for (const auto& [rank, said] : wave) {
        if (said.what->held().empty()) continue;
        // Only the rank whose link is slow says that it is the network.
        if (worst == nullptr || std::pair(said.what->network(), said.what->duration_ns()) >
                                    std::pair(worst->what->network(), worst->what->duration_ns()))
          worst = &said;
      }
      if (worst == nullptr || out_.size() == kMostSlow || !communicators.insert(std::get<0>(id)).second) continue;
      out_.push_back({absl::StrFormat("%s was slow (%.1f ms): %s: %s", Title(id), worst->what->duration_ns() / 1e6,
                                      NameOf(id, worst->what->rank()), worst->what->held()),
                      ""});
    }
  }

  const absl::Span<const HostWork> hosts_;
  const absl::Span<const Finding> findings_;
  const Topology& topology_;
  std::map<std::pair<std::string, int>, Member> ranks_;
  Waves standing_, slow_;
  std::vector<HeldUpBy> out_;
};

}  // namespace

std::vector<HeldUpBy> WhatHoldsUp(const JoinedJob& job, absl::Span<const HostWork> hosts,
                                  absl::Span<const Finding> findings, const Topology& topology) {
  return Judge(job, hosts, findings, topology).Sentences();
}

}  // namespace cw::fleet
