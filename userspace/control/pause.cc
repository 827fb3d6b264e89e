// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/pause.h"

namespace cw::control {
namespace {

constexpr uint8_t kBestEffort = 0, kLowPriority = 8;  // CS0, CS1

}  // namespace

uint8_t OtherClass(uint8_t flows_dscp, std::optional<uint8_t> wanted) {
  if (wanted && *wanted != flows_dscp) return *wanted;
  return flows_dscp >> 3 == kBestEffort >> 3 ? kLowPriority : kBestEffort;
}

bool PauseWatch::Ask(int64_t now_ns) {
  const bool old = now_ns - began_ns_ >= rules_.longest_ns;  // no answer would change the verdict
  const int64_t every_ns = old ? rules_.ask_old_ns : verdict_ == Silence::kUnknown ? rules_.ask_ns : rules_.ask_slow_ns;
  if (asked_ns_ != INT64_MIN && now_ns - asked_ns_ < every_ns) return false;
  asked_ns_ = now_ns;
  ++asked_;
  return true;
}

void PauseWatch::Answered(int64_t now_ns) {
  answered_ns_ = now_ns;
  ++answers_;
  ++all_answers_;
}

bool PauseWatch::ClassStands(int64_t now_ns) const {
  return answers_ >= rules_.answers && now_ns - answered_ns_ < 2 * rules_.ask_old_ns + rules_.forget_ns;
}

Silence PauseWatch::Judge(int64_t now_ns) const {
  if (held_ >= rules_.held) return Silence::kPaused;
  const bool passes = answered_ns_ != INT64_MIN && now_ns - answered_ns_ < rules_.forget_ns;
  const bool young = now_ns - began_ns_ < rules_.longest_ns;
  if (passes && young && (answers_ >= rules_.answers || verdict_ == Silence::kPaused)) return Silence::kPaused;
  // A host that could not ask, because it had no processor for so long, knows nothing of the path.
  const bool waited = now_ns - began_ns_ >= rules_.decide_ns && (asked_ >= rules_.answers || !young);
  if (waited || verdict_ == Silence::kDead) return Silence::kDead;
  return verdict_;
}

bool PauseWatch::Step(int64_t now_ns, uint32_t progress) {
  if (progress != progress_) answers_ = 0;
  progress_ = progress;
  const Silence before = verdict_;
  verdict_ = Judge(now_ns);
  return verdict_ != before;
}

}  // namespace cw::control
