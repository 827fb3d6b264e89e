// SPDX-License-Identifier: Apache-2.0
// The lab's RoCEv2 traffic: reliable queue pairs between hosts that are network namespaces, in one process.
//
//   auto emulator = Emulator::Create(config);      // opens the hosts' ports
//   (*emulator)->AddJob(job);                      // makes queue pairs; also while running
//   (*emulator)->Start();
//   (*emulator)->WaitDone(absl::Seconds(60));
//   Snapshot s = (*emulator)->TakeSnapshot();      // at any time
//
// The emulator knows hosts and addresses, and nothing of switches, paths or what a dataplane does to source ports.
// Times in results: nanoseconds of CLOCK_MONOTONIC. Thread rule: all methods from one thread at a time, except
// TakeSnapshot and FirstDeliveryAfter, which any thread may call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json_fwd.hpp"
#include "userspace/lab/emulator_announce.h"
#include "userspace/lab/emulator_flow.h"
#include "userspace/lab/emulator_worker.h"
#include "userspace/lab/job.h"

namespace cw::lab {

// The UDP source port of a flow's data, by the hosts that it goes from and to and the port that its driver would take.
using PortChoice = std::function<uint16_t(int source, int destination, uint16_t native)>;

struct EmulatorConfig {
  std::vector<HostSpec> hosts;
  uint64_t seed = 1;          // of QPNs, and so of the source ports that the switches hash
  int workers = 2;            // threads; host i belongs to thread i mod workers
  bool realtime = false;      // SCHED_FIFO for them: on a machine with other work, ten times the throughput
  uint32_t verify_every = 1;  // the ICRC of 1 of so many received packets is checked
  uint32_t stamp_every = 0;   // > 0: kernel send and receive times of payload packets with PSN mod this = 0
  absl::Duration tick = absl::Microseconds(100);   // batches packets: at 50 µs a third more CPU, no more throughput
  absl::Duration bin = absl::Milliseconds(10);     // of goodput over time
  absl::Duration longest_run = absl::Minutes(10);  // goodput bins end there
  size_t arrivals = 1 << 16;                       // delivery times kept per flow
  PortChoice choose_port;                          // none: as drivers do
};

struct OneWayDelay {
  uint32_t psn = 0;
  int64_t sent_realtime_ns = 0;  // kernel stamps, CLOCK_REALTIME
  int64_t received_realtime_ns = 0;
};

struct FlowReport {
  int id = 0;
  int job = 0;
  int source = 0;  // host that sends the payload
  int destination = 0;
  uint32_t source_qpn = 0;
  uint32_t destination_qpn = 0;
  uint16_t source_port = 0;  // as the source emits it; the network may see another
  bool finished = false;
  bool dead = false;             // retries exceeded
  double rate_bps = 0;           // what the source may send now
  int64_t waiting_since_ns = 0;  // > 0: something is unacknowledged, and since when nothing moved
  QpCounters requester;
  QpCounters responder;
  SendStats send;
  ReceiveStats receive{0, 1, 0};
  std::vector<OneWayDelay> delays;  // with stamp_every: packets seen exactly once at each end

  // From the first post to the last completion; zero before that.
  absl::Duration CompletionTime() const;
  double GoodputBps() const;  // delivered payload between the first and the last delivery
};

struct JobReport {
  std::string name;
  int64_t start_ns = 0;
  bool finished = false;
  int rounds_done = 0;
};

struct Snapshot {
  int64_t taken_ns = 0;
  int64_t origin_ns = 0;  // where goodput bins start
  int64_t bin_ns = 0;
  std::vector<JobReport> jobs;
  std::vector<FlowReport> flows;
  std::vector<PortCounters> ports;  // per host

  PortCounters Total() const;
  int FlowsDied() const;
};

nlohmann::json ToJson(const Snapshot& snapshot);

class Emulator {
 public:
  static absl::StatusOr<std::unique_ptr<Emulator>> Create(const EmulatorConfig& config);
  ~Emulator();
  Emulator(const Emulator&) = delete;
  Emulator& operator=(const Emulator&) = delete;

  // The job's index. Its queue pairs exist, and agents hear of them, from now on.
  absl::StatusOr<int> AddJob(const JobSpec& job);
  absl::Status Start();
  // True when every job has finished (a flow that died has), false after `limit`.
  bool WaitDone(absl::Duration limit) const;
  // Ends all traffic at once and closes the agents' connections. Results stay readable.
  void Stop();

  Snapshot TakeSnapshot() const;
  // The first arrivals of a flow's payload at or after `monotonic_ns`: how long after a fault it recovered.
  ArrivalRing::After FirstDeliveryAfter(int flow, int64_t monotonic_ns) const;
  const Announcer& announcer() const { return announcer_; }

 private:
  struct Flow {
    int job = 0;
    JobPair hosts;
    Endpoint* requester = nullptr;
    Endpoint* responder = nullptr;
    const Endpoint* Receiver() const { return requester->spec().receives ? requester : responder; }
    const Endpoint* Sender() const { return requester->spec().receives ? responder : requester; }
  };

  explicit Emulator(const EmulatorConfig& config);
  absl::Status Open();
  void AddFlow(int job, const JobPair& pair);
  void Announce(const Endpoint& endpoint, const std::string& label);
  Worker& WorkerOf(int host) const { return *workers_[static_cast<size_t>(host) % workers_.size()]; }
  FlowReport ReportOf(int id, const Flow& flow, int64_t now_ns) const;

  EmulatorConfig config_;
  int64_t origin_ns_ = 0;
  bool running_ = false;
  std::vector<uint32_t> next_qpn_;  // per host
  Announcer announcer_;
  mutable absl::Mutex mutex_;  // jobs_ and flows_; taken before a worker's lock
  std::vector<std::unique_ptr<JobState>> jobs_;
  std::vector<Flow> flows_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace cw::lab
