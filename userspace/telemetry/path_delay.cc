// SPDX-License-Identifier: Apache-2.0
#include "userspace/telemetry/path_delay.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_format.h"

namespace cw::telemetry {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kKeptSeconds = 60;
constexpr uint32_t kMostInRow = 3;  // losses: more are an outage

// Seconds are kept one by one for the shortest window, then by twos, then by tens.
struct Tier {
  int64_t seconds;
  int64_t older_than_s;
};
constexpr std::array<Tier, 2> kTiers = {{{10, 10}, {2, 2}}};

int64_t SecondOf(int64_t ns) { return ns >= 0 ? ns / kSecondNs : (ns - kSecondNs + 1) / kSecondNs; }

int64_t RoundDown(int64_t second, int64_t to) { return second - ((second % to) + to) % to; }

}  // namespace

PathDelay::Block* PathDelay::At(int64_t second) {
  if (blocks_.empty() || second > blocks_.back().from_s) {
    Age(second);
    if (!blocks_.empty()) blocks_.back().owd.Shrink();
    blocks_.push_back({.from_s = second});
    return &blocks_.back();
  }
  for (auto it = blocks_.rbegin(); it != blocks_.rend(); ++it) {
    if (it->from_s == second && it->seconds == 1) return &*it;
    if (it->from_s < second) return &*blocks_.insert(it.base(), {.from_s = second});
  }
  return nullptr;
}

void PathDelay::Block::Merge(const Block& other) {
  known += other.known;
  lost += other.lost;
  outage += other.outage;
  sent += other.sent;
  jitter_count += other.jitter_count;
  jitter_sum_ns += other.jitter_sum_ns;
  owd.Merge(other.owd);
}

// Puts old seconds together and drops what is out of every window.
void PathDelay::Age(int64_t now_s) {
  bool dropped = false;
  std::vector<Block> kept;
  kept.reserve(blocks_.size() + 1);
  for (Block& b : blocks_) {
    if (b.from_s + b.seconds <= now_s - kKeptSeconds) {
      dropped = true;
      continue;
    }
    Block start{.from_s = b.from_s, .seconds = b.seconds};
    for (const Tier& t : kTiers) {
      const int64_t from = RoundDown(b.from_s, t.seconds);
      if (b.seconds >= t.seconds || from + t.seconds > now_s - t.older_than_s) continue;
      start = {.from_s = from, .seconds = static_cast<uint16_t>(t.seconds)};
      break;
    }
    if (!kept.empty() && kept.back().from_s == start.from_s) {
      kept.back().Merge(b);
    } else {
      b.from_s = start.from_s;
      b.seconds = start.seconds;
      kept.push_back(std::move(b));
    }
    kept.back().owd.Shrink();
  }
  blocks_ = std::move(kept);
  if (dropped) FindBase();
}

void PathDelay::FindBase() {
  base_ns_ = INT64_MAX;
  for (const Block& b : blocks_) {
    if (b.owd.count() > 0) base_ns_ = std::min(base_ns_, b.owd.min_ns());
  }
}

void PathDelay::AddProbe(int64_t now_ns, int64_t owd_ns) {
  Block* block = At(SecondOf(now_ns));
  if (block == nullptr) return;
  block->owd.Add(owd_ns);
  if (has_last_) {
    block->jitter_sum_ns += static_cast<float>(std::llabs(owd_ns - last_owd_ns_));
    ++block->jitter_count;
  }
  has_last_ = true;
  last_owd_ns_ = owd_ns;
  base_ns_ = std::min(base_ns_, owd_ns);
  ++samples_;
}

void PathDelay::AddFates(int64_t now_ns, uint32_t known, uint32_t lost) {
  Block* block = At(SecondOf(now_ns));
  if (block == nullptr) return;
  block->known += known;
  block->lost += lost;
  const uint32_t before = std::exchange(lost_in_row_, lost < known ? 0 : lost_in_row_ + lost);
  // Those that began it may be of the block before: Window() does not count more than were lost.
  if (lost == known && lost_in_row_ > kMostInRow) block->outage += lost_in_row_ - (before > kMostInRow ? before : 0);
}

void PathDelay::AddSent(int64_t now_ns, uint64_t probes) {
  const bool known = counted_to_ns_ != INT64_MIN && now_ns - counted_to_ns_ <= 2 * kSecondNs;
  const int64_t since = known ? counted_to_ns_ : now_ns - kSecondNs;
  counted_to_ns_ = now_ns;
  if (probes == 0 || now_ns <= since) return;
  const double rate = static_cast<double>(probes) / static_cast<double>(now_ns - since);
  for (int64_t from = since; from < now_ns;) {
    const int64_t to = std::min(now_ns, (SecondOf(from) + 1) * kSecondNs);
    if (Block* block = At(SecondOf(from))) block->sent += static_cast<float>(rate * static_cast<double>(to - from));
    from = to;
  }
}

void PathDelay::ForgetDelays() {
  for (Block& b : blocks_) {
    b.owd = Sketch();
    b.jitter_sum_ns = 0;
    b.jitter_count = 0;
  }
  base_ns_ = INT64_MAX;
  has_last_ = false;
}

void PathDelay::Restart(int64_t now_ns) {
  lost_in_row_ = 0;
  blocks_.clear();
  base_ns_ = INT64_MAX;
  has_last_ = false;
  counted_to_ns_ = now_ns;
}

DelayWindow PathDelay::Window(int64_t now_ns, int seconds) const {
  DelayWindow w{.seconds = seconds};
  const int64_t now_s = SecondOf(now_ns);
  const int64_t counted_s = counted_to_ns_ == INT64_MIN ? INT64_MIN / 2 : SecondOf(counted_to_ns_);
  double jitter_sum = 0, sent = 0;
  uint64_t jitter_count = 0;
  for (const Block& b : blocks_) {
    if (b.from_s > now_s - seconds && b.from_s <= now_s) {
      w.owd.Merge(b.owd);
      jitter_sum += static_cast<double>(b.jitter_sum_ns);
      jitter_count += b.jitter_count;
      w.known += b.known;
      w.lost += b.lost;
      w.outage += b.outage;
    }
    if (b.from_s >= counted_s - seconds && b.from_s + b.seconds <= counted_s && counted_s > now_s - seconds) {
      sent += static_cast<double>(b.sent);
    }
  }
  w.sent = static_cast<uint64_t>(std::llround(sent));
  w.outage = std::min(w.outage, w.lost);
  w.queueing = base_ns_ == INT64_MAX ? Sketch() : w.owd.Above(base_ns_);
  w.jitter_ns = jitter_count > 0 ? jitter_sum / static_cast<double>(jitter_count) : 0;
  return w;
}

size_t PathDelay::MemoryBytes() const {
  size_t bytes = sizeof(PathDelay) + blocks_.capacity() * sizeof(Block);
  for (const Block& b : blocks_) bytes += b.owd.MemoryBytes() - sizeof(Sketch);
  return bytes;
}

std::string FormatOwd(double owd_ns, double error_ns) {
  const auto text = [](double ns) {
    if (ns < 9'950) return absl::StrFormat("%.2f µs", ns / 1e3);
    if (ns < 99'950) return absl::StrFormat("%.1f µs", ns / 1e3);
    if (ns < 999'500) return absl::StrFormat("%.0f µs", ns / 1e3);
    if (ns < 9'995'000) return absl::StrFormat("%.2f ms", ns / 1e6);
    if (ns < 999'500'000) return absl::StrFormat("%.1f ms", ns / 1e6);
    return absl::StrFormat("%.2f s", ns / 1e9);
  };
  const double least = std::max(10.0, error_ns);
  return owd_ns < least ? "< " + text(least) : text(owd_ns);
}

}  // namespace cw::telemetry
