// SPDX-License-Identifier: Apache-2.0
// NIC failover: what the rule of control/nic_failover.h sees, and what it decides, put into maps, messages and events.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/nics/carriers.h"
#include "userspace/agent/peer_mail.h"
#include "userspace/dataplane/netdev.h"

namespace cw::agent {
namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(20);
constexpr int64_t kLearnNs = 1'000'000'000;
constexpr size_t kMaxLearned = 64;  // pairs per second

cw_pair_key ToMap(const PairKey& key) {
  cw_pair_key out;
  std::copy(key.local.bytes.begin(), key.local.bytes.end(), out.local);
  std::copy(key.remote.bytes.begin(), key.remote.bytes.end(), out.remote);
  return out;
}

PairKey FromMap(const cw_pair_key& key) { return {Addr::FromBytes(key.local), Addr::FromBytes(key.remote)}; }

}  // namespace

// What an earlier agent left goes on, or ends where NIC failover is off now.
absl::Status Agent::OpenNicFailover() {
  const bool on = options_.config.steering.nic_failover;
  if (on) nic_failover_ = std::make_unique<control::NicFailover>(host_name_);
  for (auto& [index, pair] : pairs_) {
    cw_pair& shared = dataplane_->pairs()[index];
    if (maps::PairsView::Load(shared.carried) == 0) continue;
    const absl::StatusOr<cw_carry_out> out = dataplane_->carry_out().Lookup(index);
    if (!on || !out.ok() || out->tag == 0) {
      maps::PairsView::Store(shared.carried, 0);
      continue;
    }
    const control::NicCarry carry = {
        .carrier = FromMap(out->pair), .tag = static_cast<uint8_t>(out->tag), .send = true};
    carries_[carry] = pair->key;
    nic_failover_->Adopt(pair->key, carry);
  }
  std::vector<cw_carry_key> stale;
  absl::Status status = dataplane_->carry_in().ForEach([&](const cw_carry_key& key, const cw_carry_in& in) {
    const control::NicCarry carry = {.carrier = FromMap(key.pair), .tag = static_cast<uint8_t>(key.tag), .send = true};
    const auto have = carries_.find(carry);
    if (have == carries_.end() || have->second != FromMap(in.pair)) stale.push_back(key);
  });
  for (const cw_carry_key& key : stale) dataplane_->carry_in().Delete(key).IgnoreError();
  if (!on || !status.ok()) return status;
  TellOfSmallMtus();
  return loop_->AddTimer(kPeriod, [this] { WatchNics(); });
}

// Before a NIC is lost: then it is too late to raise an MTU.
void Agent::TellOfSmallMtus() {
  for (const Nic& lost : nics_) {
    for (const Nic& carrier : nics_) {
      if (&lost == &carrier || control::FitsCarrier(lost.mtu, carrier.mtu)) continue;
      spdlog::warn("NIC failover: {} (MTU {}) carries no packets of {} (MTU {}): raise its MTU", carrier.config.name,
                   carrier.mtu, lost.config.name, lost.mtu);
    }
  }
}

std::vector<control::NicPair> Agent::LookAtNicPairs() {
  // News may be held back, and asking for counts takes the lock of all network devices.
  for (Nic& nic : nics_) {
    const absl::StatusOr<bool> up = dataplane::LinkUp(nic.config.name);
    if (up.ok() && *up != nic.carrier) carriers_->LookAt(nic);
  }
  std::vector<control::NicPair> view;
  for (const auto& [index, pair] : pairs_) {
    control::NicPair out{.index = index, .key = pair->key, .peer = pair->peer};
    out.interval_ns = engine_->IntervalNs(index);
    out.last_reply_ns = pair->last_reply_ns;
    out.session = maps::PairsView::Load(dataplane_->pairs()[index].responder_session);
    for (const Nic& nic : nics_) {
      if (nic.ifindex != pair->ifindex) continue;
      out.link_up = nic.link_up;
      out.drained = NicDrained(nic);
      out.can_carry = nic.attached;
      out.mtu = nic.mtu;
    }
    view.push_back(std::move(out));
  }
  // Its packets could not be told from carried ones.
  for (const rdma::QpInfo& qp : qps_.All()) {
    if (((qp.lqpn | qp.rqpn) >> CW_CARRY_TAG_SHIFT) == 0) continue;
    for (control::NicPair& pair : view) {
      if (pair.key.local == qp.laddr && pair.key.remote == qp.raddr) pair.can_carry = false;
    }
  }
  return view;
}

void Agent::WatchNics() {
  ReadProbes();
  const bool acts = modes_->Acts(Capability::kNic);
  const control::NicStep step = nic_failover_->Tick(LookAtNicPairs(), acts, MonotonicNs());
  LearnNextHops();
  ApplyCarries(step.carries);
  KeepNextHops();
  for (const control::NicStep::Outgoing& out : step.reports)
    mail_->Send(out.via, probe::NicReports{.reports = {out.report}});
  TellOfNics(step, acts);
}

void Agent::OnNicReports(PairState& pair, const probe::NicReports& reports) {
  if (nic_failover_ == nullptr) return;
  for (const NicReport& report : reports.reports) {
    // Only of pairs between the two of us, in the peer's view.
    const auto index = engine_->mesh().Find({.local = report.pair.remote, .remote = report.pair.local});
    const PairState* about = index ? FindPair(*index) : nullptr;
    if (about == nullptr || about->peer != pair.peer) continue;
    nic_failover_->OnReport(pair.peer, report, MonotonicNs());
  }
  WatchNics();  // the peer waits for the answer
}

// Entries for arriving packets before those that make packets leave, and removed after them.
void Agent::ApplyCarries(const std::map<control::NicCarry, PairKey>& wanted) {
  if (wanted == carries_) return;
  const auto nic_of = [&](const PairKey& key) -> const Nic* {
    for (const Nic& nic : nics_) {
      if (nic.address == key.local) return &nic;
    }
    return nullptr;
  };
  const auto put_back = [](const auto& all, const control::NicCarry& carry) {
    return std::any_of(all.begin(), all.end(), [&](const auto& entry) {
      return entry.first.carrier == carry.carrier && entry.first.tag == carry.tag;
    });
  };
  for (const auto& [carry, key] : carries_) {
    const auto index = engine_->mesh().Find(key);
    if (index && carry.send && !wanted.contains(carry)) {
      maps::PairsView::Store(dataplane_->pairs()[*index].carried, 0);
      TellOfCarry(key, nullptr);
    }
    if (!put_back(wanted, carry)) {
      dataplane_->carry_in().Delete({.pair = ToMap(carry.carrier), .tag = carry.tag}).IgnoreError();
    }
  }
  for (const auto& [carry, key] : wanted) {
    const Nic* own = nic_of(key);
    const Nic* by = nic_of(carry.carrier);
    const auto index = engine_->mesh().Find(key);
    if (carries_.contains(carry) || own == nullptr || by == nullptr || !index) continue;
    const auto mac = dataplane::MacOf(own->config.name);
    if (!mac.ok()) continue;
    cw_carry_in in = {.pair = ToMap(key), .ifindex = own->ifindex};
    std::copy(mac->begin(), mac->end(), in.mac);
    absl::Status status = dataplane_->carry_in().Put({.pair = ToMap(carry.carrier), .tag = carry.tag}, in);
    if (carry.send) {
      status.Update(dataplane_->carry_out().Put(
          *index, {.pair = ToMap(carry.carrier), .ifindex = by->ifindex, .tag = carry.tag}));
    }
    if (!status.ok()) spdlog::warn("NIC failover: {}", std::string(status.message()));
    if (!status.ok() || !carry.send) continue;
    maps::PairsView::Store(dataplane_->pairs()[*index].carried, 1);
    TellOfCarry(key, &carry);
    const bool whole = NicDrained(*own) && !nic_failover_->Silent(key) &&
                       std::none_of(carries_.begin(), carries_.end(), [&, of = key](const auto& entry) {
                         return entry.second == of && entry.first.send;
                       });
    if (!whole) OnCarried(*index);  // a NIC that is drained, and nothing else, has lost nothing
  }
  carries_ = wanted;
}

void Agent::TellOfCarry(const PairKey& key, const control::NicCarry* carry) {
  telemetry::Event event{.type = "nic", .severity = telemetry::Severity::kNotice, .peer = peer_names_.Of(key.remote)};
  const std::string pair = absl::StrFormat("packets from %s to %s", key.local.ToString(), key.remote.ToString());
  event.text = carry != nullptr ? absl::StrFormat("%s now leave as from %s to %s", pair,
                                                  carry->carrier.local.ToString(), carry->carrier.remote.ToString())
                                : absl::StrCat(pair, " leave by their own NIC again");
  Log(std::move(event));
}

// The addresses of next hops, of pairs that have flows: a link that goes down takes them along.
void Agent::LearnNextHops() {
  const int64_t now_ns = MonotonicNs();
  if (next_hops_ns_ != 0 && now_ns - next_hops_ns_ < kLearnNs) return;
  next_hops_ns_ = now_ns;
  size_t asked = 0;
  for (const auto& [index, pair] : pairs_) {
    if (pair->flows == 0 || nic_failover_->Silent(pair->key) || ++asked > kMaxLearned) continue;
    const auto hop = dataplane::NextHop(pair->ifindex, pair->key.local, pair->key.remote);
    if (hop.ok() && hop->known) next_hops_[index] = *hop;
  }
}

bool Agent::NicLost(const Nic& nic) const {
  return !nic.link_up || std::all_of(pairs_.begin(), pairs_.end(), [&](const auto& entry) {
    return entry.second->ifindex != nic.ifindex || nic_failover_->Silent(entry.second->key);
  });
}

// Makes permanent what carried packets need to reach tc egress: next hops behind a NIC that is lost, and a peer's NIC
// that is lost and itself the next hop.
void Agent::KeepNextHops() {
  if (carries_.empty() && pinned_hops_.empty()) return;
  std::map<std::pair<uint32_t, Addr>, dataplane::Neighbour> wanted;
  for (const Nic& nic : nics_) {
    const bool lost = NicLost(nic);
    for (const auto& [carry, key] : carries_) {
      const auto index = engine_->mesh().Find(key);
      if (!carry.send || key.local != nic.address || !index) continue;
      dataplane::Neighbour hop = next_hops_[*index];
      if (hop.address.is_zero()) {
        const auto found = dataplane::NextHop(nic.ifindex, key.local, key.remote);
        if (!found.ok()) continue;
        hop = *found;
      }
      if (!lost && hop.address != key.remote) continue;
      // Any address will do while nothing leaves, but nothing would come back with it.
      if (!hop.known && nic.link_up) continue;
      if (!hop.known) hop.mac = {0x02, 0, 0, 0, 0, 1};
      if (!hop.permanent) wanted[{nic.ifindex, hop.address}] = hop;
    }
  }
  for (const auto& [at, hop] : pinned_hops_) {
    if (!wanted.contains(at)) dataplane::UnpinNeighbour(at.first, hop).IgnoreError();
  }
  for (const auto& [at, hop] : wanted) {
    const auto have = pinned_hops_.find(at);
    if (have != pinned_hops_.end() && have->second.mac == hop.mac) continue;
    const absl::Status status = dataplane::PinNeighbour(at.first, hop);
    if (!status.ok()) spdlog::warn("NIC failover: {}", std::string(status.message()));
  }
  pinned_hops_ = std::move(wanted);
}

void Agent::TellOfNics(const control::NicStep& step, bool acts) {
  for (const control::NicStep::Change& change : step.changes) {
    telemetry::Event event{.type = "nic", .peer = change.peer, .dry = !acts};
    event.severity = change.lost ? telemetry::Severity::kAlert : telemetry::Severity::kNotice;
    event.text = absl::StrFormat("NIC %s to NIC %s of %s: %s", change.pair.local.ToString(),
                                 change.pair.remote.ToString(), change.peer, change.text);
    if (change.lost && !acts) absl::StrAppend(&event.text, " (another NIC would carry its packets)");
    if (change.lost && modes_->Observes(Capability::kNic)) {
      report::Item item = ItemOf({.src = change.pair.local, .dst = change.pair.remote}, "nic", -1, -1);
      item.flow.clear();  // it is about all of the pair
      item.text = event.text;
      ReportDry(std::move(item));
    }
    Log(std::move(event));
  }
}

void Agent::AddNicFailover(const Nic& nic, api::v1::NicStatus& out) {
  out.set_link_down(!nic.link_up);
  if (nic_failover_ == nullptr) return;
  for (const auto& [index, pair] : pairs_) {
    if (pair->ifindex != nic.ifindex) continue;
    out.set_pairs_silent(out.pairs_silent() + (nic_failover_->Silent(pair->key) ? 1 : 0));
    out.set_pairs_carried(out.pairs_carried() + (nic_failover_->Carried(pair->key) ? 1 : 0));
  }
}

}  // namespace cw::agent
