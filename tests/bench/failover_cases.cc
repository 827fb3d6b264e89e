// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/failover_cases.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

namespace cw::bench {
namespace {

using lab::AgentFault;
using lab::CutKind;
using lab::FailoverSpec;

constexpr uint8_t kNcclTimeout = 20;  // NCCL_IB_TIMEOUT: 4.3 s, with the seven retries that all cases have
constexpr uint8_t kPeerTimeout = 18;  // 1.1 s: queue pairs outlive a peer that is away for two seconds

// A NIC comes back after a hold that doubles with each loss within ten minutes, up to a minute.
constexpr int kMostNicCuts = 5;

int CutsOf(const FailoverCase& c, const FailoverSystem& system, const Settings& settings) {
  const int by_default = system.agents ? (settings.full ? 100 : 15) : settings.full ? 20 : system.bfd_ms > 0 ? 2 : 3;
  const int cuts = settings.cuts > 0 ? settings.cuts : by_default;
  return c.kind == CutKind::kNicDown ? std::min(cuts, kMostNicCuts) : cuts;
}

// Where the fault's length is the case, it is the same for all.
bool HasOwnLength(const FailoverCase& c) {
  return lab::IsPause(c.kind) || lab::IsHost(c.kind) || c.kind == CutKind::kReboot;
}

uint8_t TimeoutOf(const FailoverCase& c, const Settings& settings) {
  if (c.timeout > 0) return static_cast<uint8_t>(c.timeout);
  if (c.tails) return kNcclTimeout;
  return lab::IsPeer(c.kind) ? std::max(kPeerTimeout, settings.timeout) : settings.timeout;
}

// `value` stays where the variable is not set.
absl::Status Read(const char* name, double least, double most, double& value) {
  const char* given = std::getenv(name);
  if (given == nullptr) return absl::OkStatus();
  if (absl::SimpleAtod(given, &value) && value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s: '%s' is no number from %g to %g", name, given, least, most));
}

}  // namespace

// What a smaller share of lost packets takes to see is longer; the default timers of BFD see a cut after 0.9 s.
const std::vector<FailoverCase>& FailoverCases() {
  static const auto* const kCases = new std::vector<FailoverCase>{
      {.name = "silent_forward", .kind = CutKind::kForward, .frr = true},
      {.name = "silent_forward_50", .kind = CutKind::kForward, .background = 0.5, .mode = "optimize"},
      {.name = "silent_forward_90", .kind = CutKind::kForward, .background = 0.9, .mode = "optimize"},
      {.name = "silent_forward_20", .kind = CutKind::kForward, .timeout = kNcclTimeout},
      {.name = "silent_reverse", .kind = CutKind::kReverse, .frr = true},
      {.name = "silent_reverse_50", .kind = CutKind::kReverse, .background = 0.5, .mode = "optimize"},
      {.name = "silent_both", .kind = CutKind::kBoth, .frr = true},
      {.name = "data_only", .kind = CutKind::kDataOnly, .hold_ms = 2000, .frr = true},
      {.name = "link_down", .kind = CutKind::kLinkDown, .frr = true},
      {.name = "spine_reboot", .kind = CutKind::kReboot, .hold_ms = 1000, .frr = true},
      {.name = "spine_reboot_50", .kind = CutKind::kReboot, .background = 0.5, .mode = "optimize", .hold_ms = 1000},
      {.name = "partial_50", .kind = CutKind::kShare, .drop_share = 0.5, .hold_ms = 1000, .frr = true},
      {.name = "partial_10", .kind = CutKind::kShare, .drop_share = 0.1, .hold_ms = 1000, .frr = true},
      {.name = "partial_10_20", .kind = CutKind::kShare, .drop_share = 0.1, .hold_ms = 1000, .timeout = kNcclTimeout},
      {.name = "partial_1", .kind = CutKind::kShare, .drop_share = 0.01, .hold_ms = 3000, .frr = true},
      {.name = "corrupt_10", .kind = CutKind::kCorrupt, .drop_share = 0.1, .hold_ms = 1000, .frr = true},
      {.name = "slow_link", .kind = CutKind::kSlow, .mode = "optimize", .hold_ms = 3000},
      {.name = "pause_1", .kind = CutKind::kPause, .hold_ms = 1},
      {.name = "pause_5", .kind = CutKind::kPause, .hold_ms = 5},
      {.name = "pause_20", .kind = CutKind::kPause, .hold_ms = 20},
      {.name = "pause_100", .kind = CutKind::kPause, .hold_ms = 100, .frr = true},
      {.name = "pause_500", .kind = CutKind::kPause, .hold_ms = 500},
      {.name = "pause_storm", .kind = CutKind::kStorm, .hold_ms = 1000},
      {.name = "tail_forward", .kind = CutKind::kForward, .tails = true},
      {.name = "tail_reverse", .kind = CutKind::kReverse, .tails = true},
      {.name = "tail_both", .kind = CutKind::kBoth, .tails = true},
      {.name = "agent_killed", .kind = CutKind::kForward, .agent_fault = AgentFault::kKilled},
      {.name = "agent_stopped", .kind = CutKind::kForward, .agent_fault = AgentFault::kStopped},
      {.name = "peer_down", .kind = CutKind::kPeerDown, .hold_ms = 2000},
      {.name = "peer_restart", .kind = CutKind::kPeerRestart, .hold_ms = 1000},
      {.name = "nic_down", .kind = CutKind::kNicDown},
  };
  return *kCases;
}

const std::vector<FailoverSystem>& FailoverSystems() {
  static const auto* const kSystems = new std::vector<FailoverSystem>{
      {"ecmp"}, {"frr_bfd_10ms", false, 10, 2500}, {"frr_bfd_default", false, 300, 2500}, {"cwfabric", true}};
  return *kSystems;
}

Sight SightOf(const FailoverSystem& system, const FailoverCase& c) {
  if (system.agents) return Sight::kMay;
  if (c.agent_fault != AgentFault::kNone) return Sight::kNoAgent;
  // Carriers are seen by the switch at their end, and by no other.
  if (system.bfd_ms == 0)
    return c.kind == CutKind::kLinkDown || c.kind == CutKind::kReboot ? Sight::kMay : Sight::kCannot;
  switch (c.kind) {
    case CutKind::kForward:
    case CutKind::kReverse:
    case CutKind::kBoth:
    case CutKind::kLinkDown:
    case CutKind::kReboot:
      return Sight::kMay;
    case CutKind::kShare:
      // BFD takes a neighbour for dead after three lost packets in a row.
      return c.drop_share >= 0.5 ? Sight::kMay : Sight::kCannot;
    default:  // BFD's packets pass in their own class, whole, or the fault is not between switches
      return Sight::kCannot;
  }
}

bool HasRecovery(const FailoverCase& c) { return !c.tails && !lab::IsPeer(c.kind); }

absl::StatusOr<Settings> Settings::FromEnvironment() {
  Settings settings;
  settings.full = std::getenv("BENCH_FULL") != nullptr;
  double cuts = 0, timeout = settings.timeout, patience_ms = -1;
  if (settings.full) settings.agent_away_s = 60;
  for (const absl::Status& status :
       {Read("BENCH_CUTS", 1, 10'000, cuts), Read("BENCH_TIMEOUT", 8, 24, timeout),
        Read("BENCH_PATIENCE_MS", 0, 1000, patience_ms), Read("BENCH_AGENT_AWAY_S", 0, 3600, settings.agent_away_s)}) {
    if (!status.ok()) return status;
  }
  settings.cuts = static_cast<int>(cuts);
  settings.timeout = static_cast<uint8_t>(timeout);
  if (patience_ms >= 0) settings.patience = absl::Milliseconds(patience_ms);
  return settings;
}

FailoverSpec SpecOf(const FailoverCase& c, const FailoverSystem& system, const Settings& settings) {
  FailoverSpec spec;
  spec.testbed.fabric = {.lab = "benchfo", .link_mbps = 200, .ecmp_seed = 1};
  spec.testbed.agents = system.agents;
  spec.testbed.mode = c.mode;
  if (c.kind == CutKind::kNicDown) spec.testbed.second_nics = {0, 1};
  if (system.bfd_ms > 0) spec.frr = lab::FrrSpec{.bfd_interval = absl::Milliseconds(system.bfd_ms)};
  spec.kind = c.kind;
  spec.drop_share = c.drop_share;
  spec.agent_fault = c.agent_fault;
  spec.agent_away = absl::Seconds(settings.agent_away_s);
  spec.timeout = TimeoutOf(c, settings);
  spec.tails = c.tails;
  spec.testbed.adjust = [tails = c.tails, nic = c.kind == CutKind::kNicDown, patience = settings.patience](
                            int, config::Config& config) {
    config.liveness.patience = patience;
    if (tails) config.steering.repair_tails = true;
    if (nic) config.steering.nic_failover = true;
  };
  spec.background_share = c.background;
  spec.cuts = CutsOf(c, system, settings);
  spec.hold = absl::Milliseconds(HasOwnLength(c) ? c.hold_ms : std::max(c.hold_ms, system.hold_ms));
  if (lab::IsPause(c.kind)) spec.settle = absl::Milliseconds(300);
  if (lab::IsPause(c.kind) && c.hold_ms > 500) spec.cuts = std::min(spec.cuts, std::max(3, spec.cuts / 3));
  return spec;
}

}  // namespace cw::bench
