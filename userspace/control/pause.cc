// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/pause.h"

#include <algorithm>
#include <bit>

namespace cw::control {
namespace {

constexpr size_t kMostOpen = 64;  // questions
constexpr int kLeastHeld = 2;
constexpr uint32_t kWatched = 64;                     // rounds
constexpr uint8_t kBestEffort = 0, kLowPriority = 8;  // CS0, CS1

}  // namespace

uint8_t OtherClass(uint8_t flows_dscp, std::optional<uint8_t> wanted) {
  if (wanted && *wanted != flows_dscp) return *wanted;
  return flows_dscp >> 3 == kBestEffort >> 3 ? kLowPriority : kBestEffort;
}

bool PauseWatch::Ask(int64_t now_ns, uint32_t round, uint32_t token) {
  const bool old = now_ns - began_ns_ >= rules_.longest_ns;  // no answer would change the verdict
  const int64_t every_ns = old ? rules_.ask_old_ns : verdict_ == Silence::kUnknown ? rules_.ask_ns : rules_.ask_slow_ns;
  if (asked_ns_ != INT64_MIN && now_ns - asked_ns_ < every_ns) return false;
  asked_ns_ = now_ns;
  ++asked_;
  if (open_.size() >= kMostOpen) {  // one without an answer makes room; those with one wait for their proof
    const auto idle = std::find_if(open_.begin(), open_.end(), [](const Question& q) { return !q.answered; });
    if (idle == open_.end()) return true;
    open_.erase(idle);
  }
  open_.push_back({.token = token, .round = round, .asked_ns = now_ns});
  return true;
}

void PauseWatch::Answered(int64_t now_ns, uint32_t token) {
  const auto asked = std::find_if(open_.begin(), open_.end(), [&](const Question& q) { return q.token == token; });
  if (asked == open_.end() || asked->answered) return;
  asked->answered = true;
  answered_ns_ = now_ns;
  ++all_answers_;
}

uint32_t PauseWatch::Missed() const { return std::min<uint32_t>(found_.round - found_.progress, kWatched); }

void PauseWatch::Held(uint32_t round) {
  const uint32_t place = round - found_.progress - 1;
  if (place < Missed()) held_ |= uint64_t{1} << place;
}

int PauseWatch::held() const { return std::popcount(held_); }

// An answer shows that the path lives. That its own class stands is shown by what was sent there since the question,
// once it is missing for as long as makes a silence: had the path healed before, it would have come.
void PauseWatch::CountProven(int64_t now_ns, uint32_t round) {
  int64_t wait_ns = std::min(found_.silence_ns, rules_.doubt_ns);
  if (verdict_ == Silence::kDead) wait_ns = std::max(found_.silence_ns, rules_.forget_ns);
  const auto proven = [&](const Question& q) {
    return q.answered && now_ns - q.asked_ns >= wait_ns &&
           static_cast<int32_t>(round - q.round) >= static_cast<int32_t>(found_.limit);
  };
  answers_ += static_cast<int>(std::erase_if(open_, proven));
}

bool PauseWatch::ClassStands(int64_t now_ns) const {
  return answers_ >= rules_.answers && now_ns - answered_ns_ < 2 * rules_.ask_old_ns + rules_.forget_ns;
}

Silence PauseWatch::Judge(int64_t now_ns) const {
  if (held() >= std::max(kLeastHeld, static_cast<int>(Missed()) - 1)) return Silence::kPaused;
  const bool passes = answered_ns_ != INT64_MIN && now_ns - answered_ns_ < rules_.forget_ns;
  const bool young = now_ns - began_ns_ < rules_.longest_ns;
  if (passes && young && (answers_ >= rules_.answers || verdict_ == Silence::kPaused)) return Silence::kPaused;
  const bool doubtful = std::any_of(open_.begin(), open_.end(), [](const Question& q) { return q.answered; });
  if (doubtful && young && verdict_ == Silence::kUnknown) return verdict_;  // the path lives: its class, too?
  // A host that could not ask, because it had no processor for so long, knows nothing of the path.
  const bool waited = now_ns - began_ns_ >= rules_.decide_ns && (asked_ >= rules_.answers || !young);
  if (waited || verdict_ == Silence::kDead) return Silence::kDead;
  return verdict_;
}

bool PauseWatch::Step(int64_t now_ns, uint32_t progress, uint32_t round) {
  if (progress != progress_) {  // it lets something through: what was asked before proves nothing any more
    answers_ = 0;
    open_.clear();
  }
  progress_ = progress;
  CountProven(now_ns, round);
  const Silence before = verdict_;
  verdict_ = Judge(now_ns);
  return verdict_ != before;
}

}  // namespace cw::control
