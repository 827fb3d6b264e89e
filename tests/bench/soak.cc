// SPDX-License-Identifier: Apache-2.0
// Does anything grow? SOAK_MINUTES (30) of full links, with queue pairs that come and go, agents that read their
// configuration again, and readers of every kind. At thirty moments, at which nobody reads and only the queue pairs
// that stay are there, each agent is looked at: memory, descriptors, threads, entries of its maps, unread bytes of its
// rings. Growth of the last third over the second one, beyond the limits below, fails the run. So does a path that is
// called dead too often: nothing breaks here.
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/bench/full_load.h"
#include "tests/bench/growth.h"
#include "tests/bench/losses.h"
#include "tests/bench/pinned_state.h"
#include "tests/bench/process_sample.h"
#include "tests/bench/soak_readers.h"
#include "tests/bench/soak_run.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/experiment_clock.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/testbed.h"

namespace {

using cw::bench::GrowthLimit;
using cw::lab::Testbed;

constexpr double kLoad = 0.9, kLittleLoad = 0.05;
constexpr int kLooks = 30;
constexpr absl::Duration kRound = absl::Seconds(5);        // the life of queue pairs that come and go
constexpr absl::Duration kQuiet = absl::Seconds(1);        // from the last reader's goodbye to the look
constexpr int kComing = 6;                                 // queue pairs of a round, each way
constexpr absl::Duration kRemembered = absl::Minutes(10);  // for how long an agent remembers a flow that sends nothing

constexpr uint64_t kEventsKept = 16384;  // by telemetry/event_log.h

// A twentieth of the 140 (692 in 37 minutes on eight paths) that were counted before the rule learned patience.
constexpr double kWrongDeaths = 7;  // per path and hour

constexpr GrowthLimit kMemory{.percent = 5, .amount = 1};  // MiB
constexpr GrowthLimit kNone{};
constexpr GrowthLimit kPool{.percent = 0, .amount = 4};  // the API's library starts and ends some as it likes
// What a host sends of data, and its acknowledgements, of the rounds of a minute: agents remember flows for ten, and
// forget them when they come to it. In a third of half an hour ten times as many come.
constexpr int kRoundsAMinute = 12;
constexpr GrowthLimit kOneMinute{.percent = 0, .amount = 2 * kComing * kRoundsAMinute};
constexpr GrowthLimit kUnread{.percent = 0, .amount = 64 << 10};  // of a ring of 256 KiB or more, between two wake-ups

// One figure of one agent over the soak.
struct Series {
  std::string unit;
  GrowthLimit limit;
  bool settles_late = false;  // not before flows are forgotten as fast as they come
  bool judged = true;
  std::vector<double> values;
};
using AgentSeries = std::map<std::string, Series>;

// The number of the newest: so many since the agent's start.
uint64_t EventsSaid(Testbed& testbed, int host) {
  uint64_t newest = 0;
  cw::api::v1::EventsRequest request;
  request.set_last(1);
  (void)testbed.agent(host).Events(request, [&](const cw::api::v1::Event& event) {
    newest = event.seq();
    return true;
  });
  return newest;
}

// An agent keeps its newest events, so for hours each one is more memory. Here that is over before the soak begins: a
// flow is locked and unlocked until the log is full.
absl::Status FillLog(Testbed& testbed, int host) {
  cw::api::Client& agent = testbed.agent(host);
  const auto qps = agent.Qps({});
  if (!qps.ok()) return qps.status();
  if (qps->flows().empty()) return absl::InternalError(absl::StrFormat("h%d has no flow to lock", host));
  cw::api::v1::SteerLockRequest request;
  request.set_flow(qps->flows(0).id());
  for (uint64_t i = 0; i < 2 * kEventsKept; ++i) {
    request.set_lock(i % 2 == 0 ? cw::api::v1::LOCK_SOFT : cw::api::v1::LOCK_NONE);
    if (const auto done = agent.SteerLock(request); !done.ok()) return done.status();
    if (i % 512 == 511 && EventsSaid(testbed, host) >= kEventsKept) return absl::OkStatus();
  }
  return absl::InternalError(absl::StrFormat("the log of h%d does not fill: locks are no events any more", host));
}

// Under little load: thousands of calls take minutes beside one that fills two processors.
absl::Status FillLogs(Testbed& testbed) {
  auto load = cw::bench::StartFullLoad(testbed, kLittleLoad, 1);
  if (!load.ok()) return load.status();
  absl::SleepFor(absl::Seconds(3));
  for (int host = 0; host < testbed.fabric().hosts(); ++host) {
    if (absl::Status status = FillLog(testbed, host); !status.ok()) return status;
  }
  (*load)->Stop();
  return absl::OkStatus();
}

absl::Status Look(Testbed& testbed, int host, AgentSeries& series) {
  const auto process = cw::bench::ReadProcess(testbed.agent_pid(host));
  if (!process.ok()) return process.status();
  const auto fills = cw::bench::ReadFill(cw::lab::DescribeAgentHost(testbed.fabric(), host).instance);
  if (!fills.ok()) return fills.status();
  const auto add = [&](const std::string& name, Series kind, double value) {
    series.try_emplace(name, std::move(kind)).first->second.values.push_back(value);
  };
  add("events", {.unit = "count", .judged = false}, static_cast<double>(EventsSaid(testbed, host)));
  add("rss", {.unit = "MiB", .limit = kMemory, .settles_late = true}, process->rss_mib);
  add("pss", {.unit = "MiB", .limit = kMemory, .settles_late = true}, process->pss_mib);
  add("descriptors", {.unit = "count", .limit = kNone}, process->descriptors);
  add("threads", {.unit = "count", .limit = kPool}, process->threads);
  for (const auto& [name, fill] : *fills) {
    const auto value = static_cast<double>(fill.entries);
    if (fill.ring) {
      add(absl::StrCat("unread_", name), {.unit = "bytes", .limit = kUnread}, value);
    } else {
      // Where the least recently used make room, a map is full sooner or later, and stays as large as it was made.
      add(absl::StrCat("entries_", name),
          {.unit = "count", .limit = kOneMinute, .settles_late = true, .judged = !fill.evicts}, value);
    }
  }
  return absl::OkStatus();
}

// Queue pairs with numbers of their own, made, used and destroyed.
class Coming {
 public:
  explicit Coming(Testbed& testbed) : testbed_(testbed) {}

  absl::Status Round(absl::Duration length) {
    cw::lab::EmulatorConfig config = cw::lab::EmulatedHosts(testbed_.fabric(), /*agents=*/true);
    config.seed = ++seed_;
    config.verify_every = 16;  // it sees the other load's packets, too, and leaves the processors to that
    config.arrivals = 1 << 8;
    auto emulator = cw::lab::Emulator::Create(config);
    if (!emulator.ok()) return emulator.status();
    cw::lab::JobSpec job;
    job.name = absl::StrCat("job", seed_ % 100);
    job.pairs = {{0, 1}, {1, 0}};
    job.qps_per_pair = kComing;
    job.message_bytes = 64 << 10;
    job.duration = length;
    job.packet_interval = absl::Milliseconds(2);
    job.path_mtu = 1024;
    job.timeout = 18;
    if (auto added = (*emulator)->AddJob(job); !added.ok()) return added.status();
    if (absl::Status status = (*emulator)->Start(); !status.ok()) return status;
    absl::SleepFor(length);
    (*emulator)->Stop();
    count_ += 2 * kComing;
    died_ += (*emulator)->TakeSnapshot().FlowsDied();
    return absl::OkStatus();
  }
  int count() const { return count_; }
  int died() const { return died_; }

 private:
  Testbed& testbed_;
  uint64_t seed_ = 1000;
  int count_ = 0, died_ = 0;
};

class Soak {
 public:
  Soak(Testbed& testbed, absl::Duration length)
      : testbed_(testbed), length_(length), agents_(static_cast<size_t>(testbed.fabric().hosts())), coming_(testbed) {}

  absl::Status Run() {
    cw::bench::Readers readers(testbed_.fabric(), CW_CTL);
    const absl::Duration period = length_ / kLooks;
    const auto rounds = std::max<int64_t>(1, (period - kQuiet) / kRound);
    const absl::Duration round = std::max((period - kQuiet) / rounds, absl::Seconds(1));
    for (int look = 0; look < kLooks; ++look) {
      for (int64_t i = 0; i < rounds; ++i) {
        if (absl::Status status = Reload(reloads_ % testbed_.fabric().hosts()); !status.ok()) return status;
        if (absl::Status status = coming_.Round(round); !status.ok()) return status;
      }
      readers.Pause();
      absl::SleepFor(kQuiet);
      for (size_t host = 0; host < agents_.size(); ++host) {
        if (absl::Status status = Look(testbed_, static_cast<int>(host), agents_[host]); !status.ok()) return status;
      }
      readers.Resume();
      std::fprintf(stderr, "look %d of %d: h0 has %.1f MiB, %.0f descriptors, %.0f flows; %.0f deaths so far\n",
                   look + 1, kLooks, agents_[0]["rss"].values.back(), agents_[0]["descriptors"].values.back(),
                   agents_[0]["entries_cw_tx_flows"].values.back(),
                   static_cast<double>(testbed_.CounterSum("slots_died")));
    }
    reads_ = readers.tally();
    return absl::OkStatus();
  }

  // Rows, and a sentence for each figure that grew.
  std::vector<std::string> Tell(cw::bench::Report& report) const {
    std::vector<std::string> grew;
    const bool settled = length_ / 3 >= kRemembered;
    for (size_t host = 0; host < agents_.size(); ++host) {
      const std::string name = absl::StrCat("h", host);
      for (const auto& [metric, series] : agents_[host]) {
        report.Add(name, "cwfabric", metric, series.unit, series.values);
        const auto growth = cw::bench::GrowthOf(series.values);
        if (!growth) continue;
        report.Add(name, "cwfabric", absl::StrCat(metric, "_growth"), series.unit, {growth->Amount()});
        if (!series.judged || (series.settles_late && !settled) || !Grows(*growth, series.limit)) continue;
        grew.push_back(absl::StrFormat("%s: %s grew from %.1f to %.1f %s, %.1f %s an hour", name, metric,
                                       growth->before, growth->last, series.unit,
                                       growth->Amount() / absl::ToDoubleHours(length_ / 3), series.unit));
      }
    }
    report.Add("all", "cwfabric", "reads", "count", {static_cast<double>(reads_.reads)});
    report.Add("all", "cwfabric", "reads_failed", "count", {static_cast<double>(reads_.failed)});
    report.Add("all", "cwfabric", "reloads", "count", {static_cast<double>(reloads_)});
    report.Add("all", "cwfabric", "qps_came_and_went", "count", {static_cast<double>(coming_.count())});
    report.Add("all", "cwfabric", "qps_of_these_died", "count", {static_cast<double>(coming_.died())});
    report.Add("all", "cwfabric", "grew", "count", {static_cast<double>(grew.size())});
    if (reads_.failed > 0) std::fprintf(stderr, "a reader was refused: %s\n", reads_.failure.c_str());
    if (!settled) {
      std::fprintf(stderr,
                   "memory and entries of maps are told, not judged: agents remember flows for %.0f minutes, and a "
                   "third of the soak is less\n",
                   absl::ToDoubleMinutes(kRemembered));
    }
    return grew;
  }

 private:
  absl::Status Reload(int host) {
    ++reloads_;
    if (kill(testbed_.agent_pid(host), SIGHUP) == 0) return absl::OkStatus();
    return absl::InternalError(absl::StrFormat("the agent of h%d is gone", host));
  }

  Testbed& testbed_;
  const absl::Duration length_;
  std::vector<AgentSeries> agents_;
  Coming coming_;
  int reloads_ = 0;
  cw::bench::Readers::Tally reads_;
};

// What was known of each path that was called dead, and how it ended.
void TellPathNews(Testbed& testbed, int64_t since_ns) {
  std::vector<Testbed::PathDeath> news = testbed.PathNews(since_ns);
  for (const Testbed::PathDeath& death : testbed.PathDeaths(since_ns)) news.push_back(death);
  std::sort(news.begin(), news.end(), [](const auto& a, const auto& b) { return a.at_ns < b.at_ns; });
  for (const Testbed::PathDeath& each : news) {
    std::fprintf(stderr, "  %.3f s: h%d: %s\n", static_cast<double>(each.at_ns - since_ns) / 1e9, each.host,
                 each.text.c_str());
  }
}

// A row, and a sentence if the programs called paths dead too often.
void JudgeDeaths(Testbed& testbed, absl::Duration length, cw::bench::Report& report, std::string& said,
                 std::vector<std::string>& faults) {
  double paths = 0;
  for (int host = 0; host < testbed.fabric().hosts(); ++host) {
    const auto status = testbed.agent(host).Status();
    if (status.ok()) paths += status->paths().up() + status->paths().suspect() + status->paths().dead();
  }
  const double died = static_cast<double>(testbed.CounterSum("slots_died"));
  const double rate = paths > 0 ? died / paths / absl::ToDoubleHours(length) : 0;
  said = absl::StrFormat("%.0f times one of %.0f healthy paths was called dead, %.2f per path and hour", died, paths,
                         rate);
  report.Add("all", "cwfabric", "wrong_deaths", "per_path_hour", {rate});
  if (paths == 0 || rate > kWrongDeaths) {
    faults.push_back(absl::StrFormat("%s, and %.0f are let pass", said, kWrongDeaths));
  }
}

absl::Status Measure(absl::Duration length, cw::bench::Report& report, std::string& said,
                     std::vector<std::string>& grew) {
  cw::lab::TestbedSpec spec;
  spec.fabric = {.lab = "soak", .link_mbps = 200, .ecmp_seed = 1};
  spec.mode = "optimize";
  // Small enough to be full before the second third.
  spec.adjust = [](int, cw::config::Config& config) {
    config.limits.max_flows = 1024;
    config.liveness.patience = cw::bench::SoakPatience(config.liveness.patience);
  };
  absl::StatusOr<std::unique_ptr<Testbed>> testbed = Testbed::Up(spec);
  if (!testbed.ok()) return testbed.status();
  if (absl::Status status = FillLogs(**testbed); !status.ok()) return status;
  auto load = cw::bench::StartFullLoad(**testbed, kLoad, 2);
  if (!load.ok()) return load.status();
  absl::SleepFor(absl::Seconds(3));
  cw::lab::LoadMeter meter((*testbed)->fabric());
  const absl::StatusOr<cw::bench::Losses> before = cw::bench::ReadLosses((*testbed)->fabric(), **load);
  if (!before.ok()) return before.status();
  const int64_t began_ns = cw::lab::MonotonicNs();
  Soak soak(**testbed, length);
  if (absl::Status status = soak.Run(); !status.ok()) return status;
  const absl::StatusOr<cw::bench::Losses> after = cw::bench::ReadLosses((*testbed)->fabric(), **load);
  if (!after.ok()) return after.status();
  grew = soak.Tell(report);
  std::vector<double> shares = meter.Shares();
  for (double& share : shares) share *= 100;
  report.Add("all", "cwfabric", "load", "percent", shares);
  report.Add("all", "cwfabric", "lost", "count", {static_cast<double>((*after - *before).Lost())});
  // What of it the agents took on purpose.
  for (const char* counter : {"moves_dead", "moves_idle", "moves_gap", "moves_forced", "slots_died"})
    report.Add("all", "cwfabric", counter, "count", {static_cast<double>((*testbed)->CounterSum(counter))});
  JudgeDeaths(**testbed, length, report, said, grew);
  TellPathNews(**testbed, began_ns);
  std::fprintf(stderr, "the queue pairs that stayed lost: %s\n", (*after - *before).Text().c_str());
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> grew;
  std::string said;
  const int status = cw::bench::RunSoak(argc, argv, "soak", [&](absl::Duration length, cw::bench::Report& report) {
    return Measure(length, report, said, grew);
  });
  if (status == 0 && grew.empty()) std::printf("nothing grew; %s: passed\n", said.c_str());
  for (const std::string& each : grew) std::fprintf(stderr, "%s\n", each.c_str());
  return status == 0 && !grew.empty() ? 1 : status;
}
