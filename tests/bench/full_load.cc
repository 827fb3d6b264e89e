// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/full_load.h"

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace cw::bench {
namespace {

constexpr absl::Duration kSettle = absl::Seconds(2);  // from then on flows are new to the agents, and assigned

lab::JobSpec LoadJob(const lab::Fabric& fabric, double share) {
  const lab::FabricSpec& spec = fabric.spec();
  lab::JobSpec job;
  job.name = "load";
  for (int host = 0; host < fabric.hosts(); ++host)
    job.pairs.push_back({host, (host + spec.hosts_per_leaf) % fabric.hosts()});
  job.qps_per_pair = kLoadFlows;
  job.message_bytes = 1 << 20;
  job.duration = absl::Hours(48);
  const double link_bps = spec.link_mbps * 1e6;
  job.rate = lab::RateConfig::ForLine(link_bps);
  // ECN would let the flows fill the links; the ceiling per flow sets the share that was asked for.
  job.rate.line_bps = share * link_bps * spec.spines / (kLoadFlows * spec.hosts_per_leaf);
  job.timeout = 18;
  return job;
}

}  // namespace

absl::StatusOr<std::unique_ptr<lab::Emulator>> StartFullLoad(lab::Testbed& testbed, double share, uint64_t seed) {
  absl::SleepFor(kSettle);
  const uint64_t before = testbed.CounterSum("flows_assigned");
  auto emulator = testbed.NewEmulator(seed);
  if (!emulator.ok()) return emulator.status();
  if (auto job = (*emulator)->AddJob(LoadJob(testbed.fabric(), share)); !job.ok()) return job.status();
  if (absl::Status status = (*emulator)->Start(); !status.ok()) return status;
  const auto wanted = static_cast<uint64_t>(kLoadFlows * testbed.fabric().hosts());
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (testbed.CounterSum("flows_assigned") < before + wanted) {
    if (absl::Now() > deadline)
      return absl::UnavailableError(absl::StrFormat("the agents did not put %d queue pairs on paths", wanted));
    absl::SleepFor(absl::Milliseconds(100));
  }
  return *std::move(emulator);
}

}  // namespace cw::bench
