// SPDX-License-Identifier: Apache-2.0
// How often a whole path is called dead: links at 95 % of their rate for SOAK_MINUTES (30), and within every minute a
// quarter of it without processors to spare, an agent that is stopped for two seconds, and a peer that dies for one and
// starts anew. No path is cut, so each verdict is wrong. In the end one is cut, and has to be seen: a soak that cannot
// see a death proves nothing. Two things are counted: verdicts that were told (wrong_verdicts), and paths that a kernel
// left as dead, told or not (kernel_deaths), with what was known at each; kernel_undisturbed are those about which
// neither a processor of this machine nor a link of the path stood still, so that the rule is at fault. Upper bounds
// are those of a Poisson process, at 95 % confidence.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/bench/liveness_soak_faults.h"
#include "tests/bench/poisson.h"
#include "tests/bench/soak_run.h"
#include "userspace/config/config.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/experiment_clock.h"
#include "userspace/lab/failover_verdicts.h"
#include "userspace/lab/kernel_deaths.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/stall_witness.h"
#include "userspace/lab/standstill.h"
#include "userspace/lab/testbed.h"

namespace {

using cw::lab::Testbed;

constexpr double kLoad = 0.95;
constexpr absl::Duration kCalm = absl::Seconds(14), kStarved = absl::Seconds(15), kStopped = absl::Seconds(2);
constexpr absl::Duration kAfter = absl::Seconds(4);  // what a disturbance may still cause belongs to it
constexpr absl::Duration kOutage = absl::Seconds(1);
constexpr double kConfidence = 0.95;
constexpr double kStoodStillMs = 1;  // of a processor; a link's standstill is one from Standstills::kLeastNs on

struct Tally {
  double path_hours = 0;
  int verdicts = 0;            // told
  uint64_t kernel_deaths = 0;  // by the dataplanes' own counters, told or not
  uint64_t kernel_revived = 0;
  uint64_t kernel_undisturbed = 0;
  int times = 0;  // of the disturbance
};

class Soak {
 public:
  Soak(Testbed& testbed, cw::lab::KernelDeaths& kernels, const cw::lab::StallWitness& machine,
       const cw::lab::LinkStills& links)
      : testbed_(testbed), kernels_(kernels), machine_(machine), links_(links), since_ns_(testbed.origin_ns()) {}

  // Runs `part`, and adds what the agents said meanwhile to `cause`. `away`: a host whose agent says nothing then, −1:
  // none; it is away for `length`.
  absl::Status Run(const std::string& cause, int away, absl::Duration length,
                   const std::function<absl::Status()>& part) {
    const int64_t began_ns = cw::lab::MonotonicNs();
    std::vector<double> paths;
    for (int host = 0; host < testbed_.fabric().hosts(); ++host) paths.push_back(PathsUp(host));
    if (absl::Status status = part(); !status.ok()) return status;
    absl::SleepFor(cause == "load" ? absl::ZeroDuration() : kAfter);
    Tally& tally = tallies_[cause];
    ++tally.times;
    const double hours = static_cast<double>(cw::lab::MonotonicNs() - began_ns) / 3.6e12;
    for (size_t host = 0; host < paths.size(); ++host) {
      const double lost = static_cast<int>(host) == away ? absl::ToDoubleHours(length) : 0;
      tally.path_hours += paths[host] * std::max(0.0, hours - lost);
    }
    return Collect(cause);
  }

  // What was said and done since the last call; an agent that is killed takes its events with it, so call this before.
  absl::Status Collect(const std::string& cause) {
    const int64_t now_ns = cw::lab::MonotonicNs();
    int deaths = 0;
    for (const Testbed::PathDeath& death : testbed_.PathDeaths(since_ns_)) {
      if (death.at_ns >= now_ns) continue;
      ++deaths;
      std::fprintf(stderr, "  %.3f s, %s, the machine stood still for %.1f ms just before: h%d: %s\n",
                   SecondsAt(death.at_ns), cause.c_str(),
                   LongestStallMs(machine_.Stalls(), death.at_ns - 100'000'000, death.at_ns), death.host,
                   death.text.c_str());
    }
    for (const Testbed::PathDeath& news : testbed_.PathNews(since_ns_)) {
      if (news.at_ns < now_ns)
        std::fprintf(stderr, "  %.3f s: h%d: %s\n", SecondsAt(news.at_ns), news.host, news.text.c_str());
    }
    since_ns_ = now_ns;
    tallies_[cause].verdicts += deaths;
    return CollectKernels(cause);
  }

  const std::map<std::string, Tally>& tallies() const { return tallies_; }

 private:
  absl::Status CollectKernels(const std::string& cause) {
    const absl::StatusOr<cw::lab::KernelCounts> now = kernels_.Counted();
    if (!now.ok()) return now.status();
    Tally& tally = tallies_[cause];
    tally.kernel_deaths += now->died - counted_.died;
    tally.kernel_revived += now->revived - counted_.revived;
    counted_ = *now;
    const std::vector<cw::lab::KernelDeath> seen = kernels_.Seen();
    for (; shown_ < seen.size(); ++shown_) {
      if (!Disturbed(cause, seen[shown_])) tally.kernel_undisturbed += seen[shown_].times;
    }
    return absl::OkStatus();
  }

  double SecondsAt(int64_t at_ns) const { return static_cast<double>(at_ns - testbed_.origin_ns()) / 1e9; }

  // Whether a processor or a link of the path stood still just before; says what is known.
  bool Disturbed(const std::string& cause, const cw::lab::KernelDeath& death) const {
    const int64_t from_ns = death.at_ns - cw::lab::kSceneNs;
    const double machine_ms = LongestStallMs(machine_.Stalls(), from_ns, death.at_ns);
    double up_ms = 0, down_ms = 0;
    const auto way = cw::lab::WayOf(testbed_, death.local, death.remote, death.udp_port);
    if (way) {
      using cw::lab::LinkDirection;
      up_ms = links_.LongestMs(LinkDirection::LeafToSpine(way->from_leaf, way->spine), from_ns, death.at_ns);
      down_ms = links_.LongestMs(LinkDirection::SpineToLeaf(way->spine, way->to_leaf), from_ns, death.at_ns);
    }
    std::fprintf(stderr,
                 "  %.3f s, %s: h%d's kernel left path %d to %s (udp-port %d, spine%d) as dead, %u times: a processor "
                 "stood still for %.1f ms, the path's links for %.1f and %.1f ms; %s\n",
                 SecondsAt(death.at_ns), cause.c_str(), death.host, death.slot, death.remote.c_str(), death.udp_port,
                 way ? way->spine : -1, death.times, machine_ms, up_ms, down_ms, SceneText(death.scene).c_str());
    return machine_ms >= kStoodStillMs || up_ms > 0 || down_ms > 0;
  }

  int PathsUp(int host) {
    const auto reply = testbed_.agent(host).Paths({});
    if (!reply.ok()) return 0;
    int up = 0;
    for (const auto& pair : reply->pairs()) {
      up += static_cast<int>(std::count_if(pair.paths().begin(), pair.paths().end(), [](const auto& path) {
        return path.state() == cw::api::v1::PATH_STATE_UP;
      }));
    }
    return up;
  }

  Testbed& testbed_;
  cw::lab::KernelDeaths& kernels_;
  const cw::lab::StallWitness& machine_;
  const cw::lab::LinkStills& links_;
  int64_t since_ns_;
  cw::lab::KernelCounts counted_;
  size_t shown_ = 0;  // of the deaths that were seen
  std::map<std::string, Tally> tallies_;
};

absl::Status Minute(Soak& soak, Testbed& testbed, int host) {
  const auto calm = [] {
    absl::SleepFor(kCalm);
    return absl::OkStatus();
  };
  absl::Status status = soak.Run("load", -1, {}, calm);
  if (status.ok()) {
    status = soak.Run("starved", -1, {}, [] {
      cw::bench::Starve(kStarved);
      return absl::OkStatus();
    });
  }
  if (status.ok()) {
    status = soak.Run("stopped", host, kStopped, [&] { return cw::bench::StopAgent(testbed, host, kStopped); });
  }
  if (status.ok()) status = soak.Run("load", -1, {}, calm);
  if (!status.ok()) return status;
  return soak.Run("peer", host, kOutage, [&]() -> absl::Status {
    if (absl::Status collected = soak.Collect("load"); !collected.ok()) return collected;
    if (absl::Status killed = cw::bench::KillHost(testbed, host, kOutage); !killed.ok()) return killed;
    return testbed.WaitPathsUp(absl::Seconds(60));
  });
}

// The control.
absl::Status SeesACut(Soak& soak, Testbed& testbed) {
  const auto cut = cw::lab::LinkDirection::LeafToSpine(0, 1);
  if (absl::StatusOr<int64_t> at = testbed.fabric().SetFault(cut, cw::lab::Fault::Drop()); !at.ok()) return at.status();
  absl::SleepFor(absl::Seconds(2));
  if (absl::StatusOr<int64_t> at = testbed.fabric().ClearFault(cut); !at.ok()) return at.status();
  if (absl::Status status = soak.Collect("control"); !status.ok()) return status;
  const Tally& control = soak.tallies().at("control");
  if (control.verdicts > 0 && control.kernel_deaths > 0) return absl::OkStatus();
  return absl::InternalError("the cut at the end was not seen, so that none was wrong means nothing");
}

void AddRate(cw::bench::Report& report, const std::string& cause, const char* metric, uint64_t events,
             double path_hours) {
  const double bound = cw::bench::PoissonUpperBound(events, kConfidence);
  report.Add(cause, "cwfabric", metric, "per path-hour", {path_hours > 0 ? bound / path_hours : 0});
}

void AddRows(cw::bench::Report& report, const std::string& cause, const Tally& tally) {
  report.Add(cause, "cwfabric", "wrong_verdicts", "count", {static_cast<double>(tally.verdicts)});
  report.Add(cause, "cwfabric", "kernel_deaths", "count", {static_cast<double>(tally.kernel_deaths)});
  report.Add(cause, "cwfabric", "kernel_revived", "count", {static_cast<double>(tally.kernel_revived)});
  report.Add(cause, "cwfabric", "kernel_undisturbed", "count", {static_cast<double>(tally.kernel_undisturbed)});
  report.Add(cause, "cwfabric", "path_hours", "h", {tally.path_hours});
  AddRate(report, cause, "wrong_upper_95", static_cast<uint64_t>(tally.verdicts), tally.path_hours);
  AddRate(report, cause, "kernel_upper_95", tally.kernel_deaths, tally.path_hours);
}

// Returns a sentence of all together.
std::string AddTallies(cw::bench::Report& report, const std::map<std::string, Tally>& tallies) {
  Tally all;
  for (const auto& [cause, tally] : tallies) {
    if (tally.times == 0) {  // before the soak, and the control
      if (cause != "control") continue;
      report.Add(cause, "cwfabric", "cut_seen", "count", {static_cast<double>(tally.verdicts)});
      report.Add(cause, "cwfabric", "kernel_deaths", "count", {static_cast<double>(tally.kernel_deaths)});
      continue;
    }
    AddRows(report, cause, tally);
    report.Add(cause, "cwfabric", "times", "count", {static_cast<double>(tally.times)});
    all.path_hours += tally.path_hours;
    all.verdicts += tally.verdicts;
    all.kernel_deaths += tally.kernel_deaths;
    all.kernel_revived += tally.kernel_revived;
    all.kernel_undisturbed += tally.kernel_undisturbed;
  }
  AddRows(report, "all", all);
  return absl::StrFormat("%d wrong verdicts told, %d healthy paths called dead by kernels, in %.2f path-hours",
                         all.verdicts, static_cast<int>(all.kernel_deaths), all.path_hours);
}

absl::Status Measure(absl::Duration length, cw::bench::Report& report, std::string& said) {
  cw::lab::TestbedSpec spec;
  spec.fabric = {.lab = "soaklive", .link_mbps = 200, .ecmp_seed = 1};
  spec.adjust = [](int, cw::config::Config& config) {
    config.liveness.patience = cw::bench::SoakPatience(config.liveness.patience);
  };
  spec.mode = "observe";  // flows stay where kernel ECMP puts them, which is what loads all links alike
  absl::StatusOr<std::unique_ptr<Testbed>> testbed = Testbed::Up(spec);
  if (!testbed.ok()) return testbed.status();
  // A timer of one second: an outage must not end the load.
  auto load = cw::lab::StartEvenLoad((*testbed)->fabric(), true, kLoad, 1, /*timeout=*/18);
  if (!load.ok()) return load.status();
  absl::SleepFor(absl::Seconds(5));
  cw::lab::LoadMeter meter((*testbed)->fabric());
  auto machine = cw::lab::StallWitness::Start();
  if (!machine.ok()) return machine.status();
  auto kernels = cw::lab::KernelDeaths::Start((*testbed)->fabric());
  if (!kernels.ok()) return kernels.status();
  const std::unique_ptr<cw::lab::LinkStills> links = cw::lab::LinkStills::Start((*testbed)->fabric());
  Soak soak(**testbed, **kernels, **machine, *links);
  if (absl::Status status = soak.Collect("start"); !status.ok()) return status;
  const absl::Time until = absl::Now() + length;
  for (int minute = 0; absl::Now() < until; ++minute) {
    if (absl::Status status = Minute(soak, **testbed, minute % (*testbed)->fabric().hosts()); !status.ok())
      return status;
    std::fprintf(stderr, "minute %d over\n", minute + 1);
  }
  std::vector<double> shares = meter.Shares();
  for (double& share : shares) share *= 100;
  if (absl::Status status = SeesACut(soak, **testbed); !status.ok()) return status;

  said = AddTallies(report, soak.tallies());
  std::vector<double> stalls_ms;
  for (const auto& stall : (*machine)->Stalls())
    stalls_ms.push_back(static_cast<double>(stall.end_ns - stall.begin_ns) / 1e6);
  report.Add("all", "machine", "stood_still", "ms", stalls_ms);
  report.Add("all", "cwfabric", "load", "percent", shares);
  report.Add("all", "cwfabric", "flows_lost", "count", {static_cast<double>((*load)->TakeSnapshot().FlowsDied())});
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  std::string said;
  const int status = cw::bench::RunSoak(
      argc, argv, "liveness_soak",
      [&](absl::Duration length, cw::bench::Report& report) { return Measure(length, report, said); });
  if (status == 0) std::printf("%s: passed\n", said.c_str());
  return status;
}
