// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/tail_repair.h"

namespace cw::control {
namespace {

// A window that is larger belongs to two lives of a queue pair (the largest message has 2^19 packets of 4 KiB).
constexpr int32_t kMaxOutstanding = 1 << 19;

int32_t PsnDiff(uint32_t a, uint32_t b) { return static_cast<int32_t>((a - b) << 8) >> 8; }

}  // namespace

uint32_t Unacknowledged(const TailView& view) {
  if (!view.known) return 0;
  const int32_t count = PsnDiff(view.next, view.acked);
  return count > 0 && count <= kMaxOutstanding ? static_cast<uint32_t>(count) : 0;
}

TailWatch::TailWatch(const TailView& view, int64_t now_ns, const TailRules& rules)
    : rules_(rules),
      began_ns_(now_ns),
      quiet_since_ns_(now_ns),
      wait_ns_(rules.quiet_ns),
      tail_end_(view.next),
      acked_(view.acked),
      sent_(view.sent) {}

void TailWatch::Extend(const TailView& view, int64_t now_ns) {
  if (PsnDiff(view.next, tail_end_) > 0) tail_end_ = view.next;
  began_ns_ = now_ns;
}

TailStep TailWatch::Step(const TailView& view, int64_t now_ns) {
  if (Unacknowledged(view) == 0 || PsnDiff(view.acked, tail_end_) >= 0) return TailStep::kDone;
  if (now_ns - began_ns_ > rules_.life_ns) return naks_ > 0 ? TailStep::kGiveUp : TailStep::kDone;
  if (view.acked != acked_ || (!view.acks_seen && view.sent != sent_)) {
    acked_ = view.acked;
    sent_ = view.sent;
    quiet_since_ns_ = now_ns;
    return TailStep::kWait;
  }
  if (!view.can_go || now_ns - quiet_since_ns_ < wait_ns_) return TailStep::kWait;
  if (naks_ >= rules_.max_naks) return TailStep::kGiveUp;
  ++naks_;
  quiet_since_ns_ = now_ns;
  wait_ns_ *= rules_.backoff;
  return TailStep::kNak;
}

}  // namespace cw::control
