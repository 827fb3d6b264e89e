// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/nic_failover.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "spdlog/spdlog.h"

namespace cw::agent {
namespace {

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

absl::Status NicFailover::Open(bool on) {
  on_ = on;
  for (auto& [index, pair] : pairs_) {
    cw_pair& shared = *mesh_.shared(index);
    if (probe::Load(shared.carried) == 0) continue;
    const absl::StatusOr<cw_carry_out> out = kernel_.Out(index);
    if (!on || !out.ok() || out->tag == 0) {
      probe::Store(shared.carried, uint32_t{0});
      continue;
    }
    const control::NicCarry carry = {
        .carrier = FromMap(out->pair), .tag = static_cast<uint8_t>(out->tag), .send = true};
    carries_[carry] = pair->key;
    rule_.Adopt(pair->key, carry);
  }
  std::vector<cw_carry_key> stale;
  const absl::Status status = kernel_.ForEachIn([&](const cw_carry_key& key, const cw_carry_in& in) {
    const control::NicCarry carry = {.carrier = FromMap(key.pair), .tag = static_cast<uint8_t>(key.tag), .send = true};
    const auto have = carries_.find(carry);
    if (have == carries_.end() || have->second != FromMap(in.pair)) stale.push_back(key);
  });
  for (const cw_carry_key& key : stale) kernel_.EraseIn(key);
  if (on && status.ok()) TellOfSmallMtus();
  return status;
}

// Before a NIC is lost: then it is too late to raise an MTU.
void NicFailover::TellOfSmallMtus() const {
  for (const NicState& lost : nics_) {
    for (const NicState& carrier : nics_) {
      if (&lost == &carrier || control::FitsCarrier(lost.mtu, carrier.mtu)) continue;
      spdlog::warn("NIC failover: {} (MTU {}) carries no packets of {} (MTU {}): raise its MTU", carrier.config.name,
                   carrier.mtu, lost.config.name, lost.mtu);
    }
  }
}

std::vector<control::NicPair> NicFailover::LookAtPairs() {
  // News may be held back, and asking for counts takes the lock of all network devices.
  for (NicState& nic : nics_) {
    if (nic.removed) continue;  // another device may have its name
    const absl::StatusOr<bool> up = kernel_.LinkUp(nic.device);
    if (up.ok() && *up != nic.carrier) asks_.look_at_carrier(nic);
  }
  std::vector<control::NicPair> view;
  for (const auto& [index, pair] : pairs_) {
    control::NicPair out{.index = index, .key = pair->key, .peer = pair->peer};
    out.interval_ns = asks_.interval_ns(index);
    out.last_reply_ns = pair->last_reply_ns;
    out.session = probe::Load(mesh_.shared(index)->responder_session);
    if (const NicState* nic = NicOf(nics_, pair->ifindex); nic != nullptr) {
      out.link_up = nic->link_up;
      out.drained = asks_.drained(*nic);
      out.can_carry = nic->has_programs();
      out.mtu = nic->mtu;
    }
    out.held = !asks_.allowed(index).Acts(Capability::kNic);
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

void NicFailover::Watch() {
  asks_.read_probes();
  const bool acts = asks_.allowed().Acts(Capability::kNic);
  const control::NicStep step = rule_.Tick(LookAtPairs(), acts, monotonic_.NowNs());
  LearnNextHops();
  Apply(step.carries);
  KeepNextHops();
  for (const control::NicStep::Outgoing& out : step.reports)
    mail_.Send(out.via, probe::NicReports{.reports = {out.report}});
  TellOf(step);
}

void NicFailover::OnReports(const PairState& pair, const probe::NicReports& reports) {
  if (!on_) return;
  for (const NicReport& report : reports.reports) {
    // Only of pairs between the two of us, in the peer's view.
    const auto index = mesh_.Find({.local = report.pair.remote, .remote = report.pair.local});
    const PairState* about = index ? FindIn(pairs_, *index) : nullptr;
    if (about == nullptr || about->peer != pair.peer) continue;
    rule_.OnReport(pair.peer, report, monotonic_.NowNs());
  }
  Watch();  // the peer waits for the answer
}

// Entries for arriving packets before those that make packets leave, and removed after them.
void NicFailover::Apply(const Carries& wanted) {
  if (wanted == carries_) return;
  End(wanted);
  for (const auto& [carry, key] : wanted) {
    if (!carries_.contains(carry)) Begin(carry, key);
  }
  carries_ = wanted;
}

void NicFailover::End(const Carries& wanted) {
  for (const auto& [carry, key] : carries_) {
    const auto index = mesh_.Find(key);
    if (index && carry.send && !wanted.contains(carry)) {
      probe::Store(mesh_.shared(*index)->carried, uint32_t{0});
      TellOfCarry(key, nullptr);
    }
    const bool put_back = std::any_of(wanted.begin(), wanted.end(), [&of = carry](const auto& entry) {
      return entry.first.carrier == of.carrier && entry.first.tag == of.tag;
    });
    if (!put_back) kernel_.EraseIn({.pair = ToMap(carry.carrier), .tag = carry.tag});
  }
}

void NicFailover::Begin(const control::NicCarry& carry, const PairKey& key) {
  const NicState* own = NicAt(key.local);
  const NicState* by = NicAt(carry.carrier.local);
  const auto index = mesh_.Find(key);
  if (own == nullptr || by == nullptr || !index) return;
  const auto mac = kernel_.MacOf(own->ifindex);
  if (!mac.ok()) return;
  cw_carry_in in = {.pair = ToMap(key), .ifindex = own->ifindex};
  std::copy(mac->begin(), mac->end(), in.mac);
  absl::Status status = kernel_.PutIn({.pair = ToMap(carry.carrier), .tag = carry.tag}, in);
  if (carry.send)
    status.Update(kernel_.PutOut(*index, {.pair = ToMap(carry.carrier), .ifindex = by->ifindex, .tag = carry.tag}));
  if (!status.ok()) spdlog::warn("NIC failover: {}", std::string(status.message()));
  if (!status.ok() || !carry.send) return;
  probe::Store(mesh_.shared(*index)->carried, uint32_t{1});
  TellOfCarry(key, &carry);
  const bool whole = asks_.drained(*own) && !rule_.Silent(key) &&
                     std::none_of(carries_.begin(), carries_.end(),
                                  [&](const auto& entry) { return entry.second == key && entry.first.send; });
  if (!whole) asks_.carried(*index);  // a NIC that is drained, and nothing else, has lost nothing
}

const NicState* NicFailover::NicAt(const Addr& address) const {
  const auto nic = std::find_if(nics_.begin(), nics_.end(), [&](const NicState& n) { return n.address == address; });
  return nic == nics_.end() ? nullptr : &*nic;
}

void NicFailover::TellOfCarry(const PairKey& key, const control::NicCarry* carry) {
  telemetry::Event event{.type = "nic", .severity = telemetry::Severity::kNotice, .peer = names_.Of(key.remote)};
  const std::string pair = absl::StrFormat("packets from %s to %s", key.local.ToString(), key.remote.ToString());
  event.text = carry != nullptr ? absl::StrFormat("%s now leave as from %s to %s", pair,
                                                  carry->carrier.local.ToString(), carry->carrier.remote.ToString())
                                : absl::StrCat(pair, " leave by their own NIC again");
  events_.Log(std::move(event));
}

// The addresses of next hops, of pairs that have flows: a link that goes down takes them along.
void NicFailover::LearnNextHops() {
  const int64_t now_ns = monotonic_.NowNs();
  if (learned_ns_ != 0 && now_ns - learned_ns_ < kLearnNs) return;
  learned_ns_ = now_ns;
  size_t asked = 0;
  for (const auto& [index, pair] : pairs_) {
    if (pair->flows == 0 || rule_.Silent(pair->key) || ++asked > kMaxLearned) continue;
    const auto hop = kernel_.NextHop(pair->ifindex, pair->key.local, pair->key.remote);
    if (hop.ok() && hop->known) next_hops_[index] = *hop;
  }
}

bool NicFailover::IsLost(const NicState& nic) const {
  return !nic.link_up || std::all_of(pairs_.begin(), pairs_.end(), [&](const auto& entry) {
    return entry.second->ifindex != nic.ifindex || rule_.Silent(entry.second->key);
  });
}

// Makes permanent what carried packets need to reach tc egress: next hops behind a NIC that is lost, and a peer's NIC
// that is lost and itself the next hop.
void NicFailover::KeepNextHops() {
  if (carries_.empty() && pins_.empty()) return;
  std::map<std::pair<uint32_t, Addr>, dataplane::Neighbour> wanted;
  for (const NicState& nic : nics_) {
    const bool lost = IsLost(nic);
    for (const auto& [carry, key] : carries_) {
      const auto index = mesh_.Find(key);
      if (!carry.send || key.local != nic.address || !index) continue;
      dataplane::Neighbour hop = next_hops_[*index];
      if (hop.address.is_zero()) {
        const auto found = kernel_.NextHop(nic.ifindex, key.local, key.remote);
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
  for (const auto& [at, hop] : pins_) {
    if (!wanted.contains(at)) kernel_.Unpin(at.first, hop);
  }
  for (const auto& [at, hop] : wanted) {
    const auto have = pins_.find(at);
    if (have != pins_.end() && have->second.mac == hop.mac) continue;
    const absl::Status status = kernel_.Pin(at.first, hop);
    if (!status.ok()) spdlog::warn("NIC failover: {}", std::string(status.message()));
  }
  pins_ = std::move(wanted);
}

void NicFailover::TellOf(const control::NicStep& step) {
  for (const control::NicStep::Change& change : step.changes) {
    const std::optional<uint32_t> index = mesh_.Find(change.pair);
    const Allowed allowed = index ? asks_.allowed(*index) : asks_.allowed();
    const bool acts = allowed.Acts(Capability::kNic);
    telemetry::Event event{.type = "nic", .peer = change.peer, .dry = !acts};
    event.severity = change.lost ? telemetry::Severity::kAlert : telemetry::Severity::kNotice;
    event.text = absl::StrFormat("NIC %s to NIC %s of %s: %s", change.pair.local.ToString(),
                                 change.pair.remote.ToString(), change.peer, change.text);
    if (change.lost && !acts) absl::StrAppend(&event.text, " (another NIC would carry its packets)");
    if (change.lost && allowed.of(Capability::kNic) == Allow::kObserve)
      dry_run_.TellOfPair(change.pair, "nic", event.text);
    events_.Log(std::move(event));
  }
}

}  // namespace cw::agent
