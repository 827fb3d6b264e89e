// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/data_stall.h"

#include <algorithm>
#include <bit>

namespace cw::control {
namespace {

constexpr uint32_t kPsnMask = 0xffffff;
constexpr int kMostDoublings = 10;
constexpr int kLooks = 3;
constexpr int kAwayLooks = 4;

uint32_t UnderWay(uint32_t next, uint32_t acked) { return (next - acked) & kPsnMask; }

}  // namespace

void DataStall::Follow(int64_t now_ns, const DataFlow& seen) {
  Flow& flow = flows_[seen.key];
  const bool went_on = flow.seen_ns != 0 && (seen.acked != flow.acked || seen.answers != flow.answers);
  if (went_on) {
    // By itself, on the same path: so long may a silence be that means nothing. Not one in which nobody looked.
    const bool looked = now_ns - flow.seen_ns < Quiet();
    if (flow.under_way && !flow.excused && seen.slot == flow.slot && looked)
      longest_ns_ = std::max(longest_ns_, now_ns - flow.quiet_since_ns);
    if (flow.under_way) flow.usual = std::max(flow.usual - flow.usual / 64, UnderWay(flow.next, flow.acked));
    flow.progress_ns = now_ns;
    flow.excused = false;
  }
  const bool under_way = seen.known && UnderWay(seen.next, seen.acked) != 0;
  // What was lost before a move has yet to be sent again, after a timer perhaps: no fault of the path that it moved to.
  if (seen.slot != flow.slot && flow.slot < kMaxSlots && under_way) flow.excused = true;
  const bool quiet = under_way && flow.under_way && !went_on && seen.slot == flow.slot && !nobody_looked_;
  flow.looks = quiet ? flow.looks + 1 : 0;
  if (!quiet) {
    flow.quiet_since_ns = now_ns;
    flow.resent = seen.resent;
  }
  flow.tried = seen.resent != flow.resent;
  if (flow.seen_ns == 0 || seen.next != flow.next) flow.sent_ns = now_ns;
  if (seen.slot != flow.slot) flow.slot_since_ns = now_ns;
  flow.slot = seen.slot;
  flow.process = seen.process;
  flow.next = seen.next;
  flow.acked = seen.acked;
  flow.answers = seen.answers;
  flow.under_way = under_way;
  flow.seen_ns = now_ns;
}

int64_t DataStall::Quiet() const {
  return std::max(rules_.quiet_ns, std::min(kLooks * period_ns_, rules_.most_quiet_ns));
}

int64_t DataStall::LearntQuiet() const {
  return static_cast<int64_t>(rules_.longest_times * static_cast<double>(longest_ns_));
}

int64_t DataStall::Patience() const { return std::max(Quiet(), std::min(LearntQuiet(), rules_.most_quiet_ns)); }

// One alone may stand still for a reason of its own: a stack that serves others first, a timer that backs off.
int64_t DataStall::LonePatience() const {
  return std::min(std::max(rules_.lone_quiet_ns, 2 * std::max(Quiet(), LearntQuiet())), rules_.most_lone_quiet_ns);
}

void DataStall::BeginLook(int64_t now_ns) {
  if (stepped_ns_ != 0) {
    const int64_t passed_ns = std::min(now_ns - stepped_ns_, rules_.longest_memory_ns);
    nobody_looked_ = passed_ns > std::max(Quiet(), kAwayLooks * period_ns_);
    longest_ns_ -= longest_ns_ * (passed_ns / 1'000'000) / (rules_.longest_memory_ns / 1'000'000);
    period_ns_ = std::min(passed_ns, since_last_ns_);
    since_last_ns_ = passed_ns;
  }
  stepped_ns_ = now_ns;
}

bool DataStall::StandsStill(int64_t now_ns, const Flow& flow) const {
  if (!flow.under_way || flow.looks < kLooks || now_ns - flow.quiet_since_ns < Patience()) return false;
  const double many = std::max<double>(rules_.many, rules_.many_times * flow.usual);
  return now_ns - flow.sent_ns >= Quiet() || UnderWay(flow.next, flow.acked) > many;
}

// By the path that it takes: what comes right after a move may be the answer to what left before.
bool DataStall::Delivers(int64_t now_ns, const Flow& flow) const {
  return flow.progress_ns != 0 && now_ns - flow.progress_ns < Quiet() &&
         flow.progress_ns - flow.slot_since_ns >= Quiet();
}

// All that stands still on the path is one process's, and none of its flows goes on elsewhere.
bool DataStall::MayBeItsPeer(int64_t now_ns, uint8_t slot) const {
  uint32_t process = 0;
  for (const auto& [key, flow] : flows_) {
    if (flow.slot != slot || !flow.under_way || flow.excused) continue;
    if (flow.process == 0 || (process != 0 && flow.process != process)) return false;
    process = flow.process;
  }
  return std::none_of(flows_.begin(), flows_.end(), [&](const auto& entry) {
    const Flow& flow = entry.second;
    return flow.process == process && flow.slot != slot && flow.progress_ns != 0 &&
           now_ns - flow.progress_ns < Quiet() / 2;
  });
}

// flows = 0: there is nothing to say of the slot.
DataStall::Verdict DataStall::Judge(int64_t now_ns, uint8_t slot) const {
  Verdict verdict{.slot = slot, .quiet_ns = INT64_MAX};
  bool tried = false;
  for (const auto& [key, flow] : flows_) {
    if (flow.slot == slot && Delivers(now_ns, flow)) return {};
    if (flow.slot != slot || !flow.under_way || flow.excused) continue;
    if (!StandsStill(now_ns, flow)) return {};
    ++verdict.flows;
    tried = tried || flow.tried;
    verdict.quiet_ns = std::min(verdict.quiet_ns, now_ns - flow.quiet_since_ns);
  }
  if (verdict.flows == 0 || MayBeItsPeer(now_ns, slot)) return {};
  if (verdict.flows == 1 && (!tried || verdict.quiet_ns < LonePatience())) return {};
  int waiting = 0;  // elsewhere, whatever for: where most do, it is the stack
  for (const auto& [key, flow] : flows_) {
    if (flow.slot == slot) continue;
    const bool goes_on = flow.progress_ns != 0 && now_ns - flow.progress_ns < Quiet() / 2;
    verdict.witnesses += goes_on;
    waiting += !goes_on && flow.under_way && now_ns - flow.quiet_since_ns >= Quiet();
  }
  return verdict.witnesses > waiting ? verdict : Verdict{};
}

void DataStall::ExcuseIfAllStand(int64_t now_ns) {
  uint32_t slots = 0;
  for (const auto& [key, flow] : flows_) {
    if (flow.progress_ns != 0 && now_ns - flow.progress_ns < Quiet()) return;
    if (flow.slot < kMaxSlots && StandsStill(now_ns, flow)) slots |= 1u << flow.slot;
  }
  if (std::popcount(slots) < 2) return;
  for (auto& [key, flow] : flows_) flow.excused = flow.excused || flow.under_way;
}

std::vector<DataStall::Verdict> DataStall::Step(int64_t now_ns, absl::Span<const DataFlow> flows, uint16_t judged) {
  if (flows.empty() && flows_.empty()) return {};  // most pairs, most of the time
  BeginLook(now_ns);
  for (const DataFlow& seen : flows) Follow(now_ns, seen);
  std::erase_if(flows_, [&](const auto& entry) { return entry.second.seen_ns != now_ns; });
  // What dead paths hold back waits for its timers, for longer than they are dead.
  for (auto& [key, flow] : flows_) {
    const bool dead = flow.slot < kMaxSlots && (judged >> flow.slot & 1) == 0;
    flow.excused = flow.excused || (dead && flow.under_way);
  }
  ExcuseIfAllStand(now_ns);
  std::vector<Verdict> verdicts;
  for (uint8_t slot = 0; slot < kMaxSlots; ++slot) {
    const uint16_t away = KeptFree(now_ns);
    const bool half = 2 * (std::popcount(static_cast<uint16_t>(away & judged)) + 1) > std::popcount(judged);
    if ((judged >> slot & 1) == 0 || (away >> slot & 1) != 0 || half) continue;
    Verdict verdict = Judge(now_ns, slot);
    if (verdict.flows == 0) continue;
    for (auto& [key, flow] : flows_) flow.excused = flow.excused || (flow.slot == slot && flow.under_way);
    Slot& s = slot_[slot];
    if (s.away_ns > 0)
      s.verdicts -= static_cast<int>(std::min<int64_t>(s.verdicts, (now_ns - s.free_until_ns) / s.away_ns));
    s.away_ns = std::min(rules_.most_away_ns, rules_.away_ns << std::min(s.verdicts, kMostDoublings));
    verdict.away_ns = s.away_ns;
    ++s.verdicts;
    s.free_until_ns = now_ns + verdict.away_ns;
    verdicts.push_back(verdict);
  }
  return verdicts;
}

uint16_t DataStall::KeptFree(int64_t now_ns) const {
  uint16_t mask = 0;
  for (uint8_t slot = 0; slot < kMaxSlots; ++slot) {
    if (now_ns < slot_[slot].free_until_ns) mask |= static_cast<uint16_t>(1u << slot);
  }
  return mask;
}

}  // namespace cw::control
