// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/keeper.h"

#include <utility>

#include "absl/time/clock.h"
#include "spdlog/spdlog.h"
#include "userspace/fleet/main/kept_time.h"
#include "userspace/model/steady.h"

namespace cw::fleet {
namespace {

constexpr absl::Duration kFlushPeriod = absl::Milliseconds(50);
constexpr absl::Duration kStrangersPeriod = absl::Seconds(1);
constexpr absl::Duration kCompactPeriod = absl::Seconds(10);
constexpr absl::Duration kRetentionPeriod = absl::Minutes(10);

}  // namespace

Keeper::Keeper(UplinkService& uplink, Store& store, OrderClock& clock, const Retention& retention)
    : uplink_(uplink),
      store_(store),
      clock_(clock),
      retention_(retention),
      flusher_([this] { Flushing(); }),
      keeper_([this] { Keeping(); }) {}

Keeper::~Keeper() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
    ended_.notify_all();
  }
  flusher_.join();
  keeper_.join();
}

bool Keeper::Sleep(absl::Duration duration) {
  std::unique_lock lock(mutex_);
  return !ended_.wait_for(lock, absl::ToChronoMilliseconds(duration), [this] { return end_; });
}

void Keeper::Flushing() {
  absl::Time looked = SteadyNow();
  while (Sleep(kFlushPeriod)) {
    Flush();
    if (SteadyNow() - looked < kStrangersPeriod) continue;
    looked = SteadyNow();
    uplink_.EndStrangers(absl::Now());
  }
  Flush();
}

// Said once, until it is another fault or none.
void Keeper::Flush() {
  const absl::Status stored = uplink_.Flush();
  failures_ += !stored.ok();
  const std::string trouble(stored.message());
  if (trouble == trouble_) return;
  if (!stored.ok())
    spdlog::error("what hosts tell cannot be stored, and waits in their spools: {}", trouble);
  else
    spdlog::warn("what hosts tell is stored again");
  trouble_ = trouble;
}

void Keeper::Keeping() {
  absl::Time retention_at = SteadyNow() + kCompactPeriod;
  std::string told;
  while (Sleep(kCompactPeriod)) {
    absl::StatusOr<bool> more = true;
    while (more.ok() && *more) more = Sleep(absl::ZeroDuration()) ? store_.Compact(absl::GetCurrentTimeNanos()) : false;
    const std::string problem(more.status().message());
    if (!more.ok() && problem != told) spdlog::error("the store cannot be compacted: {}", problem);
    told = problem;
    KeepTime(store_, clock_.NowNs()).IgnoreError();  // the flusher says what is wrong with the store
    TellLosses();
    if (SteadyNow() < retention_at) continue;
    retention_at = SteadyNow() + kRetentionPeriod;
    LetGo();
  }
}

void Keeper::TellLosses() {
  const WorkLosses losses = store_.work_losses();
  if (losses.left_out != losses_.left_out)
    spdlog::warn("{} samples of flows and jobs are not kept: a host told of more than the store takes in ten minutes",
                 losses.left_out - losses_.left_out);
  if (losses.damaged != losses_.damaged)
    spdlog::error("{} blocks of flows and jobs were damaged and are given up: check the disk of the store",
                  losses.damaged - losses_.damaged);
  losses_ = losses;
  TellHostLosses();
  if (const uint64_t events = store_.thinned_events(); events != std::exchange(thinned_events_, events))
    spdlog::error("the disk of the store is full, and no sample is left: the oldest events are given up; make room");
  const uint64_t thinned = store_.thinned_bytes();
  if (thinned != thinned_)
    spdlog::error("the disk of the store is full: {} KiB of samples were given up for newer events; make room",
                  (thinned - thinned_ + 1023) >> 10);
  thinned_ = thinned;
}

// Of a host that floods, once and then every hour at most.
void Keeper::TellHostLosses() {
  const absl::Time now = SteadyNow();
  for (const auto& [host, lost] : store_.host_losses()) {
    Told& told = told_losses_[host];
    if (lost == told.losses || now - told.at < absl::Hours(1)) continue;
    spdlog::warn(
        "{} tells more than is kept of one host: left out since the service began are {} events, {} samples of "
        "further paths, {} hop lists",
        host, lost.events, lost.samples, lost.hop_lists);
    told = {lost, now};
  }
}

void Keeper::LetGo() {
  const absl::StatusOr<std::vector<Deletion>> plan = store_.PlanRetention(clock_.NowNs(), retention_);
  if (!plan.ok()) {
    spdlog::error("what is too old is not known: {}", std::string(plan.status().message()));
    return;
  }
  for (const Deletion& deletion : *plan) {
    spdlog::warn("{} before {} go, about {} MiB: {}", deletion.what,
                 absl::FormatTime(absl::RFC3339_sec, absl::FromUnixNanos(deletion.before_ns), absl::UTCTimeZone()),
                 deletion.bytes >> 20, deletion.reason);
  }
  if (plan->empty()) return;
  if (const absl::Status status = store_.Delete(*plan); !status.ok())
    spdlog::error("what is too old stays: {}", std::string(status.message()));
}

}  // namespace cw::fleet
