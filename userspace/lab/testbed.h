// SPDX-License-Identifier: Apache-2.0
//
// A whole lab for an experiment: the fabric, an agent per host (or none: plain ECMP), and the means to drive traffic
// and to look at what happened from all sides at once. Everything goes down with the object.
//
// Thread rule: one thread, besides the sampler's own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/api/client.h"
#include "userspace/config/config.h"
#include "userspace/lab/emulator.h"
#include "userspace/lab/fabric.h"
#include "userspace/lab/hidden_clock.h"
#include "userspace/lab/report.h"

namespace cw::lab {

struct TestbedSpec {
  FabricSpec fabric;
  bool agents = true;
  std::string mode = "optimize";  // observe, protect or optimize
  absl::Duration active_interval = absl::Microseconds(400);
  absl::Duration idle_interval = absl::Milliseconds(100);
  int64_t probe_budget_pps = 20'000;  // per host
  int extra_peers = 0;                // further peers of host 0 at addresses of leaf 1 that no host has
  int sample_level = 4;               // 1 packet in 2^level
  bool all_hosts = false;        // false: peers are the hosts behind other leaves, the only ones with several paths
  int clock_neighbours = 0;      // probed faster for the clock; all hosts of a lab share one machine's processors
  std::vector<int> second_nics;  // by host, the leaf of its eth1; empty: hosts have one NIC
  bool wait_paths = true;        // Up returns when all paths are up, or already when the agents answer
  std::vector<HiddenClockSpec> clocks;                    // by host; empty: true clocks
  std::vector<NicClockSpec> nic_clocks;                   // by host; empty: no NIC has a clock of its own
  std::function<void(int host, config::Config&)> adjust;  // the agents' configuration, last
  std::string agent_binary = "cwlab-agentd";
};

// An emulator's hosts: all of a fabric's. agents: each has an agent, which is told of its queue pairs.
EmulatorConfig EmulatedHosts(const Fabric& fabric, bool agents);

class Testbed {
 public:
  // Returns when every agent knows its paths and each of them answers, where the specification says so.
  static absl::StatusOr<std::unique_ptr<Testbed>> Up(const TestbedSpec& spec);
  ~Testbed();

  // Fabric and agents stay up when this object goes, until Fabric::Down.
  void Release();

  Fabric& fabric() { return *fabric_; }
  const TestbedSpec& spec() const { return spec_; }
  int64_t origin_ns() const { return origin_ns_; }  // CLOCK_MONOTONIC when Up returned
  api::Client& agent(int host) { return *agents_.at(static_cast<size_t>(host)); }
  pid_t agent_pid(int host) const { return agent_pids_.at(static_cast<size_t>(host)); }
  // Starts a host's agent again after it was ended.
  absl::Status StartAgent(int host);
  // What a reboot, or the agent's removal, leaves of it: nothing in the kernel, no drain. Its queue pairs live on.
  absl::Status LoseAgent(int host);

  int second_port(int host) const { return second_ports_.at(static_cast<size_t>(host)); }  // of its eth1

  // An emulator whose queue pairs announce themselves to the agents. `seed` decides QPNs and so the ports hashed.
  absl::StatusOr<std::unique_ptr<Emulator>> NewEmulator(uint64_t seed, uint32_t stamp_every = 0,
                                                        PortChoice choose_port = nullptr);

  // All paths of all pairs are up, in the eyes of every agent.
  absl::Status WaitPathsUp(absl::Duration limit);

  // The leaf–spine link that a flow's data crossed last (`newer_than`: CLOCK_MONOTONIC ns), or its acknowledgements;
  // −1: none since.
  int SpineOf(const FlowReport& flow, int64_t newer_than_ns, bool acknowledgements = false) const;

  // Agents' events since origin as marks, at_s counted from `origin_ns`.
  std::vector<Mark> Events(int64_t origin_ns, const std::string& type);

  struct PathDeath {
    int64_t at_ns = 0;  // CLOCK_MONOTONIC
    int host = 0;       // whose verdict it is
    int peer = 0;
    uint16_t udp_port = 0;
    std::string text;
  };
  std::vector<PathDeath> PathDeaths(int64_t since_ns);
  // Of what agents told of paths, all that is no death: that one is up again, was paused, and what its silence was.
  std::vector<PathDeath> PathNews(int64_t since_ns);

  // Sum over the agents of one of their counters (cwctl counters).
  uint64_t CounterSum(const std::string& name);

 private:
  explicit Testbed(const TestbedSpec& spec) : spec_(spec) {}
  absl::Status StartAgents();
  absl::StatusOr<std::string> AgentConfig(int host) const;
  std::vector<PathDeath> PathEvents(int64_t since_ns, bool deaths);

  TestbedSpec spec_;
  std::unique_ptr<Fabric> fabric_;
  std::vector<std::unique_ptr<api::Client>> agents_;
  std::vector<pid_t> agent_pids_;
  std::vector<int> second_ports_;
  int64_t origin_ns_ = 0;
  bool released_ = false;
};

// A host's hidden clock as its agent pinned it, with what the agent adds now: the truth to compare with. NotFound: the
// host has a true clock.
absl::StatusOr<cw_lab_clock> ReadHiddenClock(const Fabric& fabric, int host);
// Its NICs' simulated clock.
absl::StatusOr<cw_lab_clock> ReadNicClock(const Fabric& fabric, int host);

// Reads the switches' counters on a thread of its own: load per leaf–spine link over time.
class LoadSampler {
 public:
  LoadSampler(const Fabric& fabric, absl::Duration period);
  ~LoadSampler();
  void Stop();
  // Mbit/s carried per leaf–spine link that ever had more than 5 % of its rate, or 20 Mbit/s; seconds since
  // `origin_ns`.
  Chart LinkLoad(int64_t origin_ns) const;

 private:
  struct Sample {
    int64_t at_ns;
    std::vector<uint64_t> bytes;  // per link
  };
  const Fabric& fabric_;
  std::vector<LinkDirection> links_;
  std::vector<Sample> samples_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// One-way delay per path of one pair over time, as the agent of `host` measures it (1 s windows).
class DelaySampler {
 public:
  DelaySampler(Testbed& testbed, int host, absl::Duration period);
  ~DelaySampler();
  void Stop();
  Chart PathDelay(int64_t origin_ns) const;  // p50 of the forward direction, us

 private:
  struct Line {
    std::string name;
    std::vector<int64_t> at_ns;
    std::vector<double> p50_us;
  };
  std::vector<Line> lines_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Payload delivered per `bin`, a multiple of the emulator's; the slowest flow first. job < 0: of all jobs.
Chart Goodput(const Snapshot& snapshot, int job, int64_t origin_ns, absl::Duration bin);

}  // namespace cw::lab
