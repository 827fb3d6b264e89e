// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe_verbs/receive_queue.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "spdlog/spdlog.h"
#include "userspace/model/clock.h"

namespace cw::probe_verbs {
namespace {

constexpr size_t kBatch = 64;

class PlainQueue final : public ReceiveQueue {
 public:
  PlainQueue(CqHandle cq, std::string note) : cq_(std::move(cq)), note_(std::move(note)) {}

  ibv_cq* cq() override { return cq_.get(); }
  size_t Poll(absl::Span<Completion> done) override;
  bool has_clock() const override { return false; }
  void KeepClock(int64_t) override {}
  ArrivalStamps stamps() const override {
    ArrivalStamps stamps;
    stamps.note = note_;
    return stamps;
  }

 private:
  CqHandle cq_;
  const std::string note_;
};

size_t PlainQueue::Poll(absl::Span<Completion> done) {
  std::array<ibv_wc, kBatch> wc;
  const int n = ibv_poll_cq(cq_.get(), static_cast<int>(std::min(done.size(), wc.size())), wc.data());
  const size_t filled = static_cast<size_t>(std::max(n, 0));
  for (size_t i = 0; i < filled; ++i) {
    done[i] = {.id = wc[i].wr_id,
               .success = wc[i].status == IBV_WC_SUCCESS,
               .bytes = wc[i].byte_len,
               .from_qpn = wc[i].src_qp,
               .arrived_ns = std::nullopt};
  }
  return filled;
}

class StampedQueue final : public ReceiveQueue {
 public:
  StampedQueue(ibv_cq_ex* cq, const TickCounter& counter)
      : extended_(cq), cq_(ibv_cq_ex_to_cq(cq)), device_clock_(counter) {}

  ibv_cq* cq() override { return cq_.get(); }
  size_t Poll(absl::Span<Completion> done) override;
  bool has_clock() const override { return true; }
  void KeepClock(int64_t now_ns) override;
  ArrivalStamps stamps() const override;

 private:
  void Convert(absl::Span<Completion> done, absl::Span<const uint64_t> ticks);

  ibv_cq_ex* const extended_;
  CqHandle cq_;  // the same
  const MonotonicClock clock_;
  DeviceClock device_clock_;
  int64_t read_ns_ = 0;
  mutable std::mutex mutex_;  // of told_
  ArrivalStamps told_{.by_device = false, .note = "the device's clock is being learned", .error_ns = 0};
};

absl::StatusOr<TickReading> ReadTicks(ibv_context* context, const Clock& clock) {
  ibv_values_ex values = {};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  TickReading reading;
  reading.before_ns = clock.NowNs();
  const int error = ibv_query_rt_values_ex(context, &values);
  reading.after_ns = clock.NowNs();
  if (error != 0) return absl::ErrnoToStatus(error, "its clock cannot be read (ibv_query_rt_values_ex)");
  // Ticks stand in the nanoseconds alone (rdma-core, mlx4 and mlx5): a driver that gives seconds means something else.
  if ((values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK) == 0 || values.raw_clock.tv_sec != 0) {
    return absl::UnimplementedError("its clock cannot be read in ticks (ibv_query_rt_values_ex)");
  }
  reading.ticks = static_cast<uint64_t>(values.raw_clock.tv_nsec);
  return reading;
}

// A poll is ended before anything is done with what it brought: until then the queue is locked.
size_t StampedQueue::Poll(absl::Span<Completion> done) {
  std::array<uint64_t, kBatch> ticks;
  const size_t room = std::min(done.size(), ticks.size());
  ibv_poll_cq_attr attr = {};
  if (room == 0 || ibv_start_poll(extended_, &attr) != 0) return 0;
  size_t n = 0;
  do {
    const bool success = extended_->status == IBV_WC_SUCCESS;
    done[n] = {.id = extended_->wr_id, .success = success};
    if (success) {
      done[n].bytes = ibv_wc_read_byte_len(extended_);
      done[n].from_qpn = ibv_wc_read_src_qp(extended_);
      ticks[n] = ibv_wc_read_completion_ts(extended_);
    }
    ++n;
  } while (n < room && ibv_next_poll(extended_) == 0);
  ibv_end_poll(extended_);
  Convert(done.first(n), ticks);
  return n;
}

void StampedQueue::Convert(absl::Span<Completion> done, absl::Span<const uint64_t> ticks) {
  using Verdict = DeviceClock::Stamp::Verdict;
  const int64_t now_ns = clock_.NowNs();
  uint64_t stamped = 0, doubted = 0;
  for (size_t i = 0; i < done.size(); ++i) {
    if (!done[i].success) continue;
    const DeviceClock::Stamp stamp = device_clock_.Convert(ticks[i], now_ns);
    if (stamp.verdict == Verdict::kTaken) done[i].arrived_ns = stamp.ns;
    stamped += stamp.verdict == Verdict::kTaken;
    doubted += stamp.verdict == Verdict::kDoubted;
  }
  std::lock_guard hold(mutex_);
  told_.stamped += stamped;
  told_.doubted += doubted;
}

void StampedQueue::KeepClock(int64_t now_ns) {
  if (read_ns_ != 0 && now_ns - read_ns_ < DeviceClock::kPeriodNs) return;
  read_ns_ = now_ns;
  const absl::StatusOr<TickReading> reading = ReadTicks(cq_->context, clock_);
  if (reading.ok()) device_clock_.Add(*reading);
  const bool ready = device_clock_.ready(clock_.NowNs());
  std::lock_guard hold(mutex_);
  told_.by_device = ready;
  told_.note = ready           ? ""
               : !reading.ok() ? std::string(reading.status().message())
                               : "the device's clock is being learned";
  told_.error_ns = device_clock_.error_ns();
  told_.bound_ns = device_clock_.bound_ns();
}

ArrivalStamps StampedQueue::stamps() const {
  std::lock_guard hold(mutex_);
  return told_;
}

// Unimplemented: the device gives no stamps, and says so. Other codes: it says that it does.
absl::StatusOr<std::unique_ptr<ReceiveQueue>> MakeStamped(ibv_context* context, int entries,
                                                          ibv_comp_channel* channel) {
  ibv_device_attr_ex device = {};
  if (ibv_query_device_ex(context, nullptr, &device) != 0 || device.completion_timestamp_mask == 0) {
    return absl::UnimplementedError("the device gives no stamps");
  }
  const TickCounter counter = {.mask = device.completion_timestamp_mask, .khz = device.hca_core_clock};
  if (!counter.Usable()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("its clock cannot be followed: %d kHz, mask 0x%x", counter.khz, counter.mask));
  }
  if (auto reading = ReadTicks(context, MonotonicClock()); !reading.ok()) {
    return absl::FailedPreconditionError(reading.status().message());
  }
  ibv_cq_init_attr_ex init = {};
  init.cqe = static_cast<uint32_t>(entries);
  init.channel = channel;
  init.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  ibv_cq_ex* cq = ibv_create_cq_ex(context, &init);
  if (cq == nullptr) return absl::ErrnoToStatus(errno, "ibv_create_cq_ex");
  return std::make_unique<StampedQueue>(cq, counter);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReceiveQueue>> ReceiveQueue::Make(ibv_context* context, const std::string& device,
                                                                 int entries, ibv_comp_channel* channel) {
  absl::StatusOr<std::unique_ptr<ReceiveQueue>> stamped = MakeStamped(context, entries, channel);
  if (stamped.ok()) return stamped;
  if (!absl::IsUnimplemented(stamped.status())) {
    spdlog::warn("{}: arrivals of probes are stamped by software: {}", device, std::string(stamped.status().message()));
  }
  CqHandle cq(ibv_create_cq(context, entries, nullptr, channel, 0));
  if (cq == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("ibv_create_cq on ", device));
  return std::make_unique<PlainQueue>(std::move(cq), std::string(stamped.status().message()));
}

}  // namespace cw::probe_verbs
