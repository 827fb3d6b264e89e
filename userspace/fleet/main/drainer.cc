// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/drainer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"
#include "userspace/fleet/drains/muting.h"
#include "userspace/model/steady.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

constexpr absl::Duration kTick = absl::Seconds(1), kCrossingLasts = absl::Seconds(5), kFabricLasts = absl::Seconds(5),
                         kForget = absl::Seconds(30);

std::string TextOf(const pb::FleetDrain& drain) { return absl::StrCat(drain.kind(), " ", drain.name()); }

}  // namespace

absl::StatusOr<DrainBook> ReadDrains(Store& store, const std::string& instance) {
  constexpr char kWhy[] = "without it all hosts would give back what is drained";
  const absl::StatusOr<std::vector<StoredOrder>> kept = store.Orders(kDrainOrder);
  if (!kept.ok()) {
    const std::string fault(kept.status().message());
    return absl::Status(kept.status().code(),
                        absl::StrCat("the store cannot say what is drained, and ", kWhy, ": ", fault));
  }
  DrainBook book(instance);
  for (const StoredOrder& order : *kept) {
    if (book.Resume(order.body).ok()) continue;
    return absl::DataLossError(absl::StrCat(
        "the drain ", IdText(order.id), " in the store cannot be read, and ", kWhy,
        "; start the release that wrote it, or, if nothing has to stay drained, delete it in the store's file: sqlite3 "
        "FILE \"DELETE FROM operator_order WHERE kind = '",
        kDrainOrder, "' AND id = ", order.id, "\""));
  }
  return book;
}

absl::StatusOr<DrainFabric> Drainer::FabricNow() {
  absl::StatusOr<Query::FabricNow> now = query_.Fabric();
  if (!now.ok()) return now.status();
  DrainFabric fabric{.topology = std::move(now->topology), .switches = std::move(now->switches)};
  uplink_.EachHost([&](const LiveHost& live) {
    HostNics& host = fabric.hosts.emplace_back(HostNics{.host = live.host});
    for (const LiveHost::Nic& nic : live.nics) host.nics.emplace_back(nic.name, nic.address.ToString());
  });
  return fabric;
}

absl::StatusOr<pb::FleetDrain> Drainer::Drain(const pb::FleetDrainRequest& request, const api::Caller& caller) {
  const absl::StatusOr<DrainFabric> fabric = FabricNow();
  if (!fabric.ok()) return fabric.status();
  const absl::StatusOr<DrainTargets> targets = FindTargets(request.kind(), request.name(), *fabric);
  if (!targets.ok()) return targets.status();
  uint64_t id = 0;
  std::string text;
  {
    const std::lock_guard act(acts_);
    std::optional<DrainBook> next;
    {
      const std::lock_guard lock(mutex_);
      next.emplace(book_.WithoutAnswers());
    }
    const absl::StatusOr<uint64_t> added = next->Add(request, *targets, caller.name, clock_.NowNs());
    if (!added.ok()) return added.status();
    id = *added;
    text = TextOf(*next->Find(id));
    // Before hosts are told: what they keep free outlives this service.
    const std::string body = DrainBook::BodyOf(*next->Find(id));
    if (absl::Status kept = store_.PutOrder({kDrainOrder, id, body}); !kept.ok()) return kept;
    const std::lock_guard lock(mutex_);
    if (absl::Status known = book_.Resume(body); !known.ok()) return known;
  }
  spdlog::warn("{} ({}) drains {}: {}", caller.name, caller.via, text,
               request.reason().empty() ? "no reason given" : request.reason());
  uplink_.SendOrders();
  const absl::StatusOr<std::vector<pb::FleetDrain>> all = ShowAll();
  if (!all.ok()) return all.status();
  for (const pb::FleetDrain& drain : *all) {
    if (drain.id() == IdText(id)) return drain;
  }
  return absl::AbortedError(absl::StrCat(text, " is drained no longer"));
}

// What the store cannot forget ends all the same: a disk that is full must not keep flows off a link.
std::optional<std::string> Drainer::End(uint64_t id, const std::string& why) {
  std::string text;
  absl::Status forgotten;
  {
    const std::lock_guard act(acts_);
    {
      const std::lock_guard lock(mutex_);
      const pb::FleetDrain* drain = book_.Find(id);
      if (drain == nullptr) return std::nullopt;
      text = TextOf(*drain);
      book_.Remove(id);
      crossing_.erase(id);
    }
    forgotten = store_.RemoveOrder(kDrainOrder, id);
    if (!forgotten.ok()) ended_.insert(id);
  }
  spdlog::warn("{} is drained no longer: {}", text, why);
  if (!forgotten.ok())
    spdlog::error("the store cannot forget the drain of {}, which a restart would bring back; it is tried again: {}",
                  text, std::string(forgotten.message()));
  return std::string(forgotten.message());
}

void Drainer::ForgetEnded(absl::Time now) {
  const std::lock_guard act(acts_);
  if (ended_.empty() || now < forgot_ + kForget) return;
  forgot_ = now;
  std::erase_if(ended_, [&](uint64_t id) { return store_.RemoveOrder(kDrainOrder, id).ok(); });
}

// As the drain is called that was asked for by a finding's scope; "": that means nothing here.
std::string Drainer::NameOfScope(const pb::FleetUndrainRequest& request) {
  const absl::StatusOr<DrainFabric> fabric = FabricNow();
  if (request.all() || !fabric.ok()) return "";
  for (const char* kind : {"link", "switch", "host"}) {
    const absl::StatusOr<DrainTargets> targets = FindTargets(kind, request.name(), *fabric);
    if (targets.ok()) return targets->name;
  }
  return "";
}

absl::StatusOr<pb::FleetActionReply> Drainer::Undrain(const pb::FleetUndrainRequest& request,
                                                      const api::Caller& caller) {
  std::vector<std::string> names;
  absl::StatusOr<std::vector<uint64_t>> ids = std::vector<uint64_t>();
  const std::string of_scope = NameOfScope(request);
  {
    const std::lock_guard lock(mutex_);
    ids = book_.Named(request);
    if (!ids.ok() && !of_scope.empty()) {
      pb::FleetUndrainRequest by_name;
      by_name.set_name(of_scope);
      ids = book_.Named(by_name);
    }
    if (!ids.ok()) return ids.status();
    for (const uint64_t id : *ids) names.push_back(TextOf(*book_.Find(id)));
  }
  std::string fault;
  for (const uint64_t id : *ids) {
    const std::optional<std::string> ended = End(id, absl::StrCat(caller.name, " (", caller.via, ")"));
    if (ended.has_value() && !ended->empty()) fault = *ended;
  }
  pb::FleetActionReply reply;
  reply.set_effect("nothing was drained");
  if (names.empty()) return reply;
  uplink_.SendOrders();
  reply.set_effect(absl::StrCat(absl::StrJoin(names, ", "), " may be used again; flows go back as pauses allow"));
  if (!fault.empty())
    absl::StrAppend(reply.mutable_effect(),
                    "; the store cannot forget it yet, and a restart before it can brings it back: ", fault);
  return reply;
}

// The store's, too: after a restart of the service those that are not back yet.
absl::StatusOr<std::map<std::string, DrainHost>> Drainer::HostsToAsk() {
  std::map<std::string, DrainHost> hosts;
  const absl::StatusOr<std::vector<HostSeen>> kept = store_.Hosts();
  if (!kept.ok()) return kept.status();
  for (const HostSeen& seen : *kept) {
    if (seen.facts.removed_ns == 0) hosts[seen.host] = {.unheard = true};
  }
  uplink_.EachHost([&](const LiveHost& live) {
    hosts[live.host] = {.connected = live.connected,
                        .takes = live.takes_drains,
                        .unheard = !live.told,
                        .twins = live.TwinsNow(absl::Now())};
  });
  return hosts;
}

absl::StatusOr<std::vector<pb::FleetDrain>> Drainer::ShowAll() {
  std::vector<uint64_t> to_look;
  std::vector<std::vector<Addr>> addresses;
  {
    const std::lock_guard lock(mutex_);
    for (const uint64_t id : book_.ids()) {
      if (SteadyNow() < crossing_[id].looked + kCrossingLasts) continue;
      to_look.push_back(id);
      std::vector<Addr>& of = addresses.emplace_back();
      for (const std::string& text : book_.Find(id)->addresses()) {
        if (const absl::StatusOr<Addr> address = Addr::Parse(text); address.ok()) of.push_back(*address);
      }
    }
  }
  absl::StatusOr<std::vector<Query::WhoCrosses>> looked = std::vector<Query::WhoCrosses>();
  if (!to_look.empty()) looked = query_.Crossing(addresses);
  if (!looked.ok()) return looked.status();
  const absl::StatusOr<std::map<std::string, DrainHost>> hosts = HostsToAsk();
  if (!hosts.ok()) return hosts.status();
  std::set<Addr> kept;  // of hosts that are not back yet, or were removed
  {
    const std::lock_guard lock(departed_mutex_);
    if (const absl::Status known = departed_.Look(uplink_.removals()); !known.ok()) return known;
    kept = departed_.kept();
  }
  std::vector<pb::FleetDrain> drains;
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < to_look.size(); ++i) {
    DrainCrossing who{.hosts = std::move((*looked)[i].hosts)};
    for (const auto& [address, host] : (*looked)[i].strangers) {
      if (!kept.contains(address)) who.strangers[address.ToString()] = host;
    }
    crossing_[to_look[i]] = {.looked = SteadyNow(), .who = std::move(who)};
  }
  for (const uint64_t id : book_.ids()) {
    drains.push_back(book_.Show(id, *hosts, crossing_[id].who, absl::ToUnixNanos(SteadyNow())));
    drains.back().set_start_ns(clock_.WallOf(drains.back().start_ns()));
    drains.back().set_end_ns(clock_.WallOf(drains.back().end_ns()));
  }
  std::erase_if(crossing_, [&](const auto& of) { return book_.Find(of.first) == nullptr; });
  return drains;
}

absl::StatusOr<pb::FleetDrainsReply> Drainer::Drains() {
  absl::StatusOr<std::vector<pb::FleetDrain>> drains = ShowAll();
  if (!drains.ok()) return drains.status();
  pb::FleetDrainsReply reply;
  absl::StatusOr<pb::Coverage> coverage = query_.CoverageNow();
  if (!coverage.ok()) return coverage.status();
  *reply.mutable_coverage() = *std::move(coverage);
  for (pb::FleetDrain& drain : *drains) *reply.add_drains() = std::move(drain);
  return reply;
}

void Drainer::Grow(absl::Time now) {
  const auto grows = [](const pb::FleetDrain& drain) { return drain.kind() != "link"; };
  if (now < grew_ + kFabricLasts) return;
  grew_ = now;
  {
    const std::lock_guard lock(mutex_);
    const std::vector<uint64_t> ids = book_.ids();
    if (std::none_of(ids.begin(), ids.end(), [&](uint64_t id) { return grows(*book_.Find(id)); })) return;
  }
  const absl::StatusOr<DrainFabric> fabric = FabricNow();
  if (!fabric.ok()) return;
  std::map<uint64_t, std::string> grown;  // with their bodies
  const std::lock_guard act(acts_);
  {
    const std::lock_guard lock(mutex_);
    for (const uint64_t id : book_.ids()) {
      if (!grows(*book_.Find(id)) || !book_.Grow(id, MissingTargets(*book_.Find(id), *fabric))) continue;
      grown[id] = DrainBook::BodyOf(*book_.Find(id));
      crossing_.erase(id);
    }
  }
  if (grown.empty()) return;
  for (const auto& [id, body] : grown) {
    // It is found again after a restart.
    if (absl::Status kept = store_.PutOrder({kDrainOrder, id, body}); !kept.ok())
      spdlog::warn("the store cannot keep that the drain {} grew: {}", IdText(id), std::string(kept.message()));
  }
  uplink_.SendOrders();
}

void Drainer::Tick(absl::Time now) {
  if (now < ticked_ + kTick) return;
  ticked_ = now;
  ForgetEnded(now);
  std::vector<uint64_t> over;
  {
    const std::lock_guard lock(mutex_);
    if (book_.empty()) return;
    over = book_.Over(clock_.NowNs());
  }
  bool ended = false;
  for (const uint64_t id : over) ended = End(id, "its time is over").has_value() || ended;
  if (ended) uplink_.SendOrders();
  Grow(now);
  const absl::StatusOr<std::vector<pb::FleetDrain>> all = ShowAll();
  if (!all.ok()) return;
  std::map<std::string, std::string> states;
  for (const pb::FleetDrain& drain : *all) {
    states[drain.id()] = drain.state();
    if (drain.state() != told_[drain.id()] && drain.state() == "safe")
      spdlog::info("{} is safe to pull: all {} hosts say so", TextOf(drain), drain.hosts_size());
  }
  told_ = std::move(states);
}

std::string Drainer::MutedBy(const Finding& finding) {
  const std::lock_guard lock(mutex_);
  return book_.MutedBy([&](const pb::FleetDrain& drain) { return Explains(drain, finding); });
}

pb::DrainOrders Drainer::OrdersFor(const std::string& host) {
  const std::lock_guard lock(mutex_);
  return book_.OrdersFor(host, clock_.NowNs());
}

void Drainer::Take(const std::string& host, const pb::DrainReport& report) {
  const std::lock_guard lock(mutex_);
  book_.Take(host, report, absl::ToUnixNanos(SteadyNow()));
}

void Drainer::Forget(const std::string& host) {
  const std::lock_guard lock(mutex_);
  book_.Forget(host);
}

}  // namespace cw::fleet
