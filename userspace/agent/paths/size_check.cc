// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/paths/size_check.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace cw::agent {
namespace {

// IP, UDP, BTH and ICRC: the least around the payload of a packet in the middle of a message.
uint32_t LeastHeaders(bool v4) { return (v4 ? 20 : 40) + 8 + 12 + 4; }

}  // namespace

uint32_t SizeCheck::FullSize(const PairState& pair, const NicState& nic) const {
  return control::RocePacketBytes(std::min(nic.mtu, pair.peer_mtu), pair.key.local.is_v4());
}

void SizeCheck::Step(int64_t now_ns) {
  const bool late = stepped_ns_ != 0 && now_ns - stepped_ns_ > kLateNs;
  stepped_ns_ = now_ns;
  checks_left_ = kPerStep;
  packets_left_ = kPacketsPerStep;
  // Those behind whom the budget ended come first in the next step.
  const auto from = pairs_.lower_bound(next_pair_);
  uint32_t stopped_at = 0;
  const auto step = [&](PairState& pair) {
    const bool had_left = checks_left_ > 0;
    const NicState* nic = NicOf(nics_, pair.ifindex);
    if (nic == nullptr || pair.last_reply_ns == 0) return;
    const bool heard = pair.size_heard_ns != 0 && now_ns - pair.size_heard_ns < kHeardNs;
    if (!heard) Forget(pair);
    if (heard && FullSize(pair, *nic) > 0) {
      const bool hurries = pair.size_hurried_ns != 0 && now_ns - pair.size_hurried_ns < kIdleNs;
      const bool quick = pair.active || hurries || IsLimited(pair);
      for (uint8_t s = 0; s < kMaxSlots; ++s) StepSlot(pair, *nic, s, {late, quick}, now_ns);
    } else if (pair.size_asked_ns == 0 || now_ns - pair.size_asked_ns >= kAgainNs) {
      pair.size_asked_ns = now_ns;
      SendMtu(pair, *nic);
    }
    if (had_left && checks_left_ <= 0) stopped_at = pair.index;
  };
  for (auto at = from; at != pairs_.end(); ++at) step(*at->second);
  for (auto at = pairs_.begin(); at != from; ++at) step(*at->second);
  next_pair_ = stopped_at;
}

void SizeCheck::SendMtu(const PairState& pair, const NicState& nic) {
  mail_.Send(pair.index, probe::SizeReport{.mtu = nic.mtu, .nic = nic.device.substr(0, probe::kNicNameLen - 1)});
}

// Who could answer is gone: nobody knows whether what was found is still so.
void SizeCheck::Forget(PairState& pair) {
  if (!std::exchange(pair.mtu_trouble, "").empty()) {
    events_.Log(
        {.type = "path",
         .text = absl::StrCat("the MTU of ", pair.peer, "'s NIC is not known any more: its agent does not answer"),
         .peer = pair.peer});
  }
  for (uint8_t s = 0; s < kMaxSlots; ++s) {
    control::PathSize& size = pair.slot[s].size;
    if (size.full() == 0) continue;
    const uint32_t found = size.arrives();
    size = control::PathSize();
    pair.slot[s].size_told = 0;
    if (found == 0) continue;
    events_.Log({.type = "path",
                 .text = absl::StrCat("whether packets above ", found, " bytes arrive on path ", s, " to ", pair.peer,
                                      " is not known any more: its agent does not answer"),
                 .peer = pair.peer,
                 .slot = s});
  }
}

// Flows that stand because of it send no more; the pair is none of the idle ones for that.
bool SizeCheck::IsLimited(const PairState& pair) {
  return std::any_of(std::begin(pair.slot), std::end(pair.slot),
                     [](const SlotState& slot) { return slot.size.arrives() > 0; });
}

void SizeCheck::StepSlot(PairState& pair, const NicState& nic, uint8_t s, Turn turn, int64_t now_ns) {
  control::PathSize& size = pair.slot[s].size;
  const bool up =
      mesh_.slots(pair.index).port(s) != 0 && probe::Load(mesh_.shared(pair.index)->slot[s].state) == CW_SLOT_UP;
  if (!up && size.resting()) return;
  const bool of_idle = size.resting() && !turn.quick && size.asked_ns() != 0 && now_ns - size.asked_ns() < kIdleNs;
  if (!of_idle && size.Due(now_ns, turn.late)) Ask(pair, nic, s, now_ns);
  LogChange(pair, s);
}

void SizeCheck::Ask(PairState& pair, const NicState& nic, uint8_t s, int64_t now_ns) {
  control::PathSize& size = pair.slot[s].size;
  if (size.resting() ? checks_left_ <= 0 : packets_left_ <= 0) return;
  --checks_left_;
  const std::vector<uint32_t> sizes = size.Ask(FullSize(pair, nic), now_ns);
  packets_left_ -= static_cast<int>(sizes.size());
  for (const uint32_t bytes : sizes) {
    const probe::SizeReport question{.slot = s,
                                     .bytes = static_cast<uint16_t>(bytes),
                                     .token = size.token(),
                                     .mtu = nic.mtu,
                                     .nic = nic.device.substr(0, probe::kNicNameLen - 1)};
    if (!asks_.send(pair.index, question, mesh_.slots(pair.index).port(s)).ok()) return size.Void(now_ns);
  }
}

void SizeCheck::Hurry(PairState& pair, uint8_t slot, int64_t now_ns) {
  pair.size_hurried_ns = now_ns;
  if (slot < kMaxSlots) pair.slot[slot].size.Hurry(now_ns);
}

void SizeCheck::OnReport(PairState& pair, const probe::SizeReport& report, int64_t now_ns) {
  pair.size_heard_ns = now_ns;
  pair.peer_mtu = report.mtu;
  pair.peer_nic = report.nic;
  if (report.answer) return pair.slot[report.slot].size.Answered(report.token, report.bytes);
  const NicState* nic = NicOf(nics_, pair.ifindex);
  if (nic == nullptr) return;
  // It searches: full-size packets did not arrive here. What we send may take the same links back.
  if (report.token != 0 && report.bytes < FullSize(pair, *nic)) pair.size_hurried_ns = now_ns;
  probe::SizeReport answer = report;
  answer.answer = true;
  answer.mtu = nic->mtu;
  answer.nic = nic->device.substr(0, probe::kNicNameLen - 1);
  mail_.Send(pair.index, answer);
}

// The first switch of this path that no path of the same NIC has on which full-size packets arrived since they did not
// here: in front of it they pass. "": there is none, or none is known.
std::string SizeCheck::FirstSuspect(const PairState& pair, uint8_t s) const {
  const probe::Hops* hops = asks_.hops(pair.index, s);
  if (hops == nullptr) return "";
  std::vector<Addr> passed;
  for (const auto& [index, other] : pairs_) {
    if (other->ifindex != pair.ifindex) continue;
    for (uint8_t o = 0; o < kMaxSlots; ++o) {
      const control::PathSize& size = other->slot[o].size;
      if (size.full() < pair.slot[s].size.full() || size.passed_ns() < pair.slot[s].size.began_ns()) continue;
      const probe::Hops* good = asks_.hops(index, o);
      if (good != nullptr) passed.insert(passed.end(), good->begin(), good->end());
    }
  }
  for (const Addr& hop : *hops) {
    if (passed.empty() || hop.is_zero()) return "";
    if (std::find(passed.begin(), passed.end(), hop) == passed.end()) return hop.ToString();
  }
  return "";
}

void SizeCheck::LogChange(PairState& pair, uint8_t s) {
  const control::PathSize& size = pair.slot[s].size;
  const uint32_t before = std::exchange(pair.slot[s].size_told, size.arrives());
  if (before == size.arrives()) return;
  const std::string path = absl::StrCat(" on path ", s, " to ", pair.peer);
  telemetry::Event event{.type = "path", .peer = pair.peer, .slot = s};
  if (size.arrives() == 0) {
    event.text = absl::StrCat("packets of ", size.full(), " bytes arrive", path, " again");
  } else {
    event.severity = telemetry::Severity::kAlert;
    const std::string suspect = FirstSuspect(pair, s);
    event.text = absl::StrCat("packets above ", size.arrives(), " bytes do not arrive", path,
                              suspect.empty() ? "" : absl::StrCat(", lost on the way to ", suspect, " or behind it"));
    event.evidence = {{"arrives_bytes", absl::StrCat(size.arrives())},
                      {"lost_bytes", absl::StrCat(size.lost())},
                      {"largest_bytes", absl::StrCat(size.full())}};
  }
  events_.Log(std::move(event));
}

// most: the largest path MTU of its queue pairs, 0 where none sends.
std::string SizeCheck::MtuTrouble(const PairState& pair, const NicState& nic, uint32_t most) const {
  const bool v4 = pair.key.local.is_v4();
  const bool ours = nic.mtu < pair.peer_mtu;
  const uint32_t least = std::min(nic.mtu, pair.peer_mtu);
  if (control::RocePacketBytes(nic.mtu, v4) != control::RocePacketBytes(pair.peer_mtu, v4)) {
    const std::string own_end = absl::StrCat(asks_.host, "'s ", nic.config.name);
    const std::string peer_end = absl::StrCat(pair.peer, "'s ", pair.peer_nic);
    return absl::StrCat(ours ? own_end : peer_end, " has MTU ", least, ", ", ours ? peer_end : own_end, " ",
                        std::max(nic.mtu, pair.peer_mtu), ": packets above ", least, " bytes do not pass");
  }
  if (most + LeastHeaders(v4) <= least) return "";
  return absl::StrCat("queue pairs to ", pair.peer, " have path MTU ", most, ", and the NICs at both ends MTU ", least,
                      ": their packets do not pass");
}

void SizeCheck::LookAtMtus(int64_t now_ns) {
  for (NicState& nic : nics_) {
    const absl::StatusOr<uint32_t> mtu = asks_.mtu_of(nic.device);
    if (nic.removed || !mtu.ok() || *mtu == nic.mtu) continue;
    nic.mtu = *mtu;
    for (const auto& [index, pair] : pairs_) {  // idle ones, too, know it at once
      if (pair->ifindex == nic.ifindex && pair->size_heard_ns != 0) SendMtu(*pair, nic);
    }
  }
  absl::flat_hash_map<uint32_t, uint32_t> path_mtus;  // the largest of each pair's queue pairs
  for (const auto& [key, flow] : flows_.sent) {
    uint32_t& most = path_mtus[flow.tx.pair];
    most = std::max<uint32_t>(most, flow.flow().mtu);
  }
  for (const auto& [index, pair] : pairs_) {
    const NicState* nic = NicOf(nics_, pair->ifindex);
    const bool known = nic != nullptr && nic->mtu > 0 && pair->peer_mtu > 0 && pair->size_heard_ns != 0 &&
                       now_ns - pair->size_heard_ns < kHeardNs;
    if (known) LogMtu(*pair, *nic, MtuTrouble(*pair, *nic, path_mtus[index]));
  }
}

// A NIC's own MTU concerns all of its peers: one event for all.
void SizeCheck::LogMtu(PairState& pair, const NicState& nic, std::string trouble) {
  if (pair.mtu_trouble == trouble) return;
  const std::string before = std::exchange(pair.mtu_trouble, std::move(trouble));
  const bool ours = nic.mtu < pair.peer_mtu || (pair.mtu_trouble.empty() && nic.mtu == pair.peer_mtu);
  const auto alike = [&](const auto& entry) {
    const PairState& other = *entry.second;
    return &other != &pair && other.ifindex == pair.ifindex && !other.mtu_trouble.empty();
  };
  if (ours && std::any_of(pairs_.begin(), pairs_.end(), alike)) return;
  telemetry::Event event{.type = "path", .peer = pair.peer};
  if (pair.mtu_trouble.empty()) {
    event.text = absl::StrCat("the MTUs of ", nic.config.name, " and of ", pair.peer, "'s NIC fit each other again");
  } else {
    event.severity = telemetry::Severity::kAlert;
    event.text = pair.mtu_trouble;
    event.evidence = {{"mtu", absl::StrCat(nic.mtu)}, {"peer_mtu", absl::StrCat(pair.peer_mtu)}};
  }
  events_.Log(std::move(event));
}

}  // namespace cw::agent
