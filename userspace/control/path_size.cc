// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/path_size.h"

#include <algorithm>

namespace cw::control {
namespace {

constexpr uint32_t kCommon[] = {576, 1088, 1280, 1400, 1450, 1492, 1500, 2044, 2112, 3000, 4096};  // MTUs, and RoCE's
constexpr uint32_t kPoints = 9;  // of a round between two known sizes
constexpr int kLookAgain = 5;    // after so many checks: up to which size packets arrive may have changed

}  // namespace

uint32_t RocePacketBytes(uint32_t mtu, bool v4) {
  const uint32_t headers = (v4 ? 20 : 40) + 8 + 12 + 16 + 4 + 4;  // IP, UDP, BTH, RETH, immediate, ICRC
  for (uint32_t payload = 4096; payload >= 256; payload /= 2) {
    if (payload + headers <= mtu) return payload + headers;
  }
  return 0;
}

bool PathSize::Due(int64_t now_ns, bool late) {
  if (late && waits_) Void(now_ns);
  if (now_ns < due_ns_) return false;
  return !waits_ || Judge(now_ns);
}

void PathSize::Rest(int64_t now_ns, int64_t for_ns) {
  waits_ = false;
  round_ = 0;
  due_ns_ = now_ns + for_ns;
}

void PathSize::Void(int64_t now_ns) { Rest(now_ns, rules_.hesitate_ns); }

void PathSize::Hurry(int64_t now_ns) {
  if (!waits_) due_ns_ = std::min(due_ns_, now_ns);
}

void PathSize::Answered(uint32_t token, uint32_t bytes) {
  if (!waits_ || token != token_) return;
  if (std::find(asked_.begin(), asked_.end(), bytes) != asked_.end()) answered_.push_back(bytes);
}

// What the answers of a round say of the sizes between; false: nothing.
bool PathSize::Narrow() {
  const auto arrived = [&](uint32_t bytes) {
    return std::find(answered_.begin(), answered_.end(), bytes) != answered_.end();
  };
  const uint32_t most = answered_.empty() ? 0 : *std::max_element(answered_.begin(), answered_.end());
  if (!arrived(0) || most < low_) return false;
  uint32_t least_lost = high_;
  for (const uint32_t bytes : asked_) {
    if (bytes <= most && !arrived(bytes)) return false;
    if (bytes > most) least_lost = std::min(least_lost, bytes);
  }
  low_ = most;
  high_ = least_lost;
  return true;
}

// Whether the next round is to be asked now.
bool PathSize::Judge(int64_t now_ns) {
  const bool full_arrived = std::find(answered_.begin(), answered_.end(), full_) != answered_.end();
  if (full_arrived) {
    passed_ns_ = asked_ns_;
    arrives_ = lost_ = 0;
    Rest(now_ns, rules_.interval_ns);
    return false;
  }
  if (round_ == 0 && arrives_ > 0 && ++again_ % kLookAgain != 0) {  // as before
    Rest(now_ns, rules_.interval_ns);
    return false;
  }
  if (round_ > 0 && !Narrow()) {
    Void(now_ns);
    return false;
  }
  const bool found = round_ >= rules_.least_rounds && (high_ - low_ <= 1 || round_ >= rules_.most_rounds);
  if (found && low_ > 0) {
    arrives_ = low_;
    lost_ = high_;
    Rest(now_ns, rules_.interval_ns);
    return false;
  }
  if (found) {
    Void(now_ns);
    return false;
  }
  ++round_;
  waits_ = false;  // it may be asked later
  return true;
}

std::vector<uint32_t> PathSize::Between() const {
  std::vector<uint32_t> sizes;
  if (round_ == 1) {
    for (const uint32_t bytes : kCommon) {
      if (bytes < full_) sizes.push_back(bytes);
    }
    return sizes;
  }
  sizes.push_back(low_);
  const uint32_t step = std::max(1u, (high_ - low_) / (kPoints + 1));
  for (uint32_t bytes = low_ + step; bytes < high_ && sizes.size() <= kPoints; bytes += step) sizes.push_back(bytes);
  sizes.push_back(high_);
  return sizes;
}

std::vector<uint32_t> PathSize::Ask(uint32_t full, int64_t now_ns) {
  if (full != full_) {  // another question
    full_ = full;
    if (arrives_ >= full) arrives_ = lost_ = 0;
    round_ = 0;
  }
  if (round_ <= 1) {
    low_ = 0;
    high_ = full_;
  }
  asked_ = {full_};
  if (round_ > 0) {
    const std::vector<uint32_t> between = Between();
    asked_.insert(asked_.begin(), between.begin(), between.end());
    asked_.insert(asked_.begin(), 0);
    asked_.insert(asked_.end(), rules_.copies - 1, full_);
  }
  answered_.clear();
  ++token_;
  waits_ = true;
  asked_ns_ = now_ns;
  if (round_ == 0) began_ns_ = now_ns;
  due_ns_ = now_ns + rules_.patience_ns;
  return asked_;
}

}  // namespace cw::control
