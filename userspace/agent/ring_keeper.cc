// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/ring_keeper.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/time/clock.h"
#include "userspace/agent/agent.h"

namespace cw::agent {
namespace {

constexpr absl::Duration kEvery = absl::Seconds(1);

}  // namespace

RingKeeper::RingKeeper(const config::Config& config, Agent& agent, uint64_t run, uint64_t told, Asks asks,
                       std::unique_ptr<uplink::Ring> ring)
    : agent_(agent),
      asks_(std::move(asks)),
      run_(run),
      ring_(std::move(ring)),
      seconds_(run),
      answers_(config.RingDir() + "/copies"),
      after_seq_(told) {
  agent_.RecordForRing(true);
  thread_ = std::thread([this] { Run(); });
}

absl::StatusOr<std::unique_ptr<RingKeeper>> RingKeeper::Start(const config::Config& config, Agent& agent, uint64_t run,
                                                              uint64_t told, Asks asks) {
  absl::StatusOr<std::unique_ptr<uplink::Ring>> ring =
      uplink::Ring::Open(config.RingDir() + "/ring", static_cast<uint64_t>(config.fleet.ring_mib) << 20);
  if (!ring.ok()) return ring.status();
  return std::unique_ptr<RingKeeper>(new RingKeeper(config, agent, run, told, std::move(asks), *std::move(ring)));
}

RingKeeper::~RingKeeper() { Stop(); }

void RingKeeper::Stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
    news_.notify_all();
  }
  thread_.join();
  agent_.RecordForRing(false);
}

void RingKeeper::Take(const cwfabric::v1::RingAsk& ask) {
  answers_.Take(ask);
  const std::lock_guard lock(mutex_);
  asked_ = true;
  news_.notify_all();
}

void RingKeeper::Write() {
  const absl::StatusOr<uplink::SecondSeen> taken = agent_.SecondForRing();
  if (!taken.ok()) return;  // the agent ends
  uplink::SecondSeen seen = *taken;
  seen.interval.bound_ns = asks_.bound_ns();
  cwfabric::v1::EventsRequest request;
  request.set_after_seq(after_seq_);
  const auto events = agent_.Events(request, absl::ZeroDuration());
  const std::vector<cwfabric::v1::Event> none;
  bool turned = false;  // the record is made anew for a new block
  const absl::Status status = seconds_.Write(seen, events.ok() ? *events : none, [&](const std::string& record) {
    const bool begins = !ring_->Fits(record.size()) && !turned;
    if (begins) turned = true;
    if (begins) return absl::OutOfRangeError("it begins a block");
    turned = false;
    return ring_->Append(run_, seen.interval.to_ns, record);
  });
  if (events.ok() && !events->empty()) after_seq_ = events->back().seq();
  if (!status.ok() && !failed_) asks_.tell("the ring file is not written any more: " + std::string(status.message()));
  failed_ = !status.ok();
}

void RingKeeper::Run() {
  // Steady: a clock that is set back must not hold the next record up.
  using Clock = std::chrono::steady_clock;
  const auto every = absl::ToChronoMilliseconds(kEvery);
  Clock::time_point write_at = Clock::now() + every;
  while (true) {
    bool more = false;
    if (Clock::now() >= write_at) {
      Write();
      write_at = std::max(write_at + every, Clock::now());
    }
    more = answers_.Step(*ring_, absl::Now());
    if (more) asks_.wake();
    std::unique_lock lock(mutex_);
    if (!more) news_.wait_until(lock, write_at, [this] { return end_ || asked_; });
    asked_ = false;
    if (end_) break;
  }
  Write();
}

}  // namespace cw::agent
