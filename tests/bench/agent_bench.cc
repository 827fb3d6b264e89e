// SPDX-License-Identifier: Apache-2.0
// What the agent costs: CPU (process and its BPF programs) by probe rate, and memory by number of paths. The peer is a
// second host of the lab for the rates; the paths' case has peers that do not exist, whose slots are probed all the
// same. cpu_own leaves out the soft interrupts inside the process: in the lab a packet's whole way, up to the peer and
// back, runs in those of the sender. Its programs' run time stays in (that of tc egress even twice).
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "maps/unique_fd.h"
#include "tests/bench/softirq_meter.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/testbed.h"

namespace {

using cw::lab::Testbed;
using cw::lab::TestbedSpec;

// The programs' run time is counted by the kernel only while this switch is on; it is put back.
class BpfStats {
 public:
  BpfStats() {
    std::ifstream(kPath) >> before_;
    std::ofstream(kPath) << 1;
  }
  ~BpfStats() { std::ofstream(kPath) << before_; }

 private:
  static constexpr char kPath[] = "/proc/sys/kernel/bpf_stats_enabled";
  int before_ = 0;
};

struct Cost {
  double cpu_percent = 0, process_percent = 0, rate_pps = 0, rss_mib = 0;
  double softirq_percent = 0;  // of process_percent: packets on all hops of the lab
  double OwnPercent() const { return cpu_percent - softirq_percent; }
};

// After path discovery has settled.
absl::StatusOr<Cost> Measure(Testbed& testbed, absl::Duration settle) {
  absl::SleepFor(settle);
  absl::StatusOr<std::unique_ptr<cw::bench::SoftirqMeter>> meter = cw::bench::SoftirqMeter::Start(testbed.agent_pid(0));
  if (!meter.ok()) return meter.status();
  absl::StatusOr<cw::bench::SoftirqMeter::Reading> begin = (*meter)->Read();
  absl::SleepFor(absl::Seconds(15));
  absl::StatusOr<cw::bench::SoftirqMeter::Reading> end = (*meter)->Read();
  if (!begin.ok()) return begin.status();
  if (!end.ok()) return end.status();
  absl::StatusOr<cw::api::v1::StatusReply> status = testbed.agent(0).Status();
  if (!status.ok()) return status.status();
  const double percent = 100 / static_cast<double>(end->at_ns - begin->at_ns);
  const double process = percent * static_cast<double>(end->cpu_ns - begin->cpu_ns);
  return Cost{.cpu_percent = process + status->cpu_percent() - status->cpu_process_percent(),
              .process_percent = process,
              .rate_pps = status->prober().rate_pps(),
              .rss_mib = static_cast<double>(status->rss_bytes()) / (1 << 20),
              .softirq_percent = percent * static_cast<double>(end->softirq_ns - begin->softirq_ns)};
}

// What a program costs that wakes in the same rhythm and sends as many packets of that size, and does nothing else: how
// much of the agent's figures is the machine's own price of a wake-up and of a packet.
void SendInRhythm(const std::string& netns, const std::string& address, absl::Duration interval, int packets,
                  const std::atomic<bool>& stop) {
  cw::maps::UniqueFd place(open(netns.c_str(), O_RDONLY | O_CLOEXEC));
  if (place.get() < 0 || setns(place.get(), CLONE_NEWNET) != 0) return;
  const sched_param fifo{.sched_priority = 20};
  (void)pthread_setschedparam(pthread_self(), SCHED_FIFO, &fifo);
  cw::maps::UniqueFd out(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {}, .sin_zero = {}};
  inet_pton(AF_INET, address.c_str(), &to.sin_addr);
  char payload[100] = {};
  iovec part{payload, sizeof(payload)};
  std::vector<mmsghdr> messages(static_cast<size_t>(packets));
  for (mmsghdr& m : messages) {
    m.msg_hdr = {.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = &part, .msg_iovlen = 1};
  }
  absl::Duration next = absl::Nanoseconds(cw::lab::MonotonicNs());
  while (!stop.load()) {
    next += interval;
    const timespec at = absl::ToTimespec(next);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
    (void)sendmmsg(out.get(), messages.data(), static_cast<unsigned>(packets), MSG_DONTWAIT);
  }
}

absl::StatusOr<double> TrivialPercent(absl::Duration interval) {
  TestbedSpec spec;
  spec.fabric = {.lab = "benchag", .link_mbps = 0};
  spec.agents = false;
  absl::StatusOr<std::unique_ptr<Testbed>> testbed = Testbed::Up(spec);
  if (!testbed.ok()) return testbed.status();
  absl::StatusOr<std::unique_ptr<cw::bench::SoftirqMeter>> meter = cw::bench::SoftirqMeter::Start(getpid());
  if (!meter.ok()) return meter.status();
  std::atomic<bool> stop{false};
  const cw::lab::Fabric& fabric = (*testbed)->fabric();
  std::thread sender(
      [&] { SendInRhythm(fabric.HostNetns(0), fabric.HostAddr(fabric.hosts() - 1), interval, 4, stop); });
  absl::SleepFor(absl::Seconds(1));
  absl::StatusOr<cw::bench::SoftirqMeter::Reading> begin = (*meter)->Read();
  absl::SleepFor(absl::Seconds(8));
  absl::StatusOr<cw::bench::SoftirqMeter::Reading> end = (*meter)->Read();
  stop = true;
  sender.join();
  if (!begin.ok()) return begin.status();
  if (!end.ok()) return end.status();
  return 100 * static_cast<double>(end->OwnNs() - begin->OwnNs()) / static_cast<double>(end->at_ns - begin->at_ns);
}

absl::Status RunRate(cw::bench::Report& report, int pps) {
  TestbedSpec spec;
  spec.fabric = {.lab = "benchag", .link_mbps = 0};
  spec.mode = "protect";
  spec.probe_budget_pps = pps;
  // Idle pairs are probed at the idle interval: the budget's rate comes from making that interval short.
  spec.idle_interval = absl::Seconds(4.0 / pps);
  spec.active_interval = spec.idle_interval;
  const absl::StatusOr<double> trivial = TrivialPercent(spec.idle_interval);
  if (!trivial.ok()) return trivial.status();
  absl::StatusOr<std::unique_ptr<Testbed>> testbed = Testbed::Up(spec);
  if (!testbed.ok()) return testbed.status();
  absl::StatusOr<Cost> cost = Measure(**testbed, absl::Seconds(5));
  if (!cost.ok()) return cost.status();
  const std::string name = absl::StrCat("probes_", pps);
  report.Add(name, "cwfabric", "rate", "1/s", {cost->rate_pps});
  report.Add(name, "cwfabric", "cpu", "percent", {cost->cpu_percent});
  report.Add(name, "cwfabric", "cpu_process", "percent", {cost->process_percent});
  report.Add(name, "cwfabric", "cpu_own", "percent", {cost->OwnPercent()});
  report.Add(name, "trivial", "cpu_own", "percent", {*trivial});
  report.Add(name, "cwfabric", "cpu_per_1000_probes", "percent", {cost->cpu_percent * 1000 / cost->rate_pps});
  report.Add(name, "cwfabric", "cpu_own_per_1000_probes", "percent", {cost->OwnPercent() * 1000 / cost->rate_pps});
  report.Add(name, "cwfabric", "rss", "MiB", {cost->rss_mib});
  return absl::OkStatus();
}

absl::Status RunPaths(cw::bench::Report& report, int paths) {
  TestbedSpec spec;
  spec.fabric = {.lab = "benchag", .spines = 8, .link_mbps = 0};
  spec.mode = "protect";
  spec.probe_budget_pps = 4000;
  spec.extra_peers = paths / 8 - 1;  // besides the other host; 8 paths each
  absl::StatusOr<std::unique_ptr<Testbed>> testbed = Testbed::Up(spec);
  if (!testbed.ok()) return testbed.status();
  absl::StatusOr<Cost> cost = Measure(**testbed, absl::Seconds(25));
  if (!cost.ok()) return cost.status();
  absl::StatusOr<cw::api::v1::StatusReply> status = (*testbed)->agent(0).Status();
  if (!status.ok()) return status.status();
  double found = status->paths().new_() + status->paths().up() + status->paths().suspect() + status->paths().dead();
  const std::string name = absl::StrCat("paths_", paths);
  report.Add(name, "cwfabric", "paths", "count", {found});
  report.Add(name, "cwfabric", "cpu", "percent", {cost->cpu_percent});
  report.Add(name, "cwfabric", "cpu_own", "percent", {cost->OwnPercent()});
  report.Add(name, "cwfabric", "rss", "MiB", {cost->rss_mib});
  return absl::OkStatus();
}

// BENCH_CASE=probes_1000 runs that case alone.
bool Wanted(const std::string& name) {
  const char* only = std::getenv("BENCH_CASE");
  return only == nullptr || name == only;
}

}  // namespace

int main(int argc, char** argv) {
  BpfStats stats;
  cw::bench::Report report("agent");
  absl::Status status;
  for (int pps : {100, 1000, 10000}) {
    if (Wanted(absl::StrCat("probes_", pps))) status.Update(RunRate(report, pps));
  }
  for (int paths : {16, 256, 2560}) {
    if (Wanted(absl::StrCat("paths_", paths))) status.Update(RunPaths(report, paths));
  }
  status.Update(report.Write(cw::bench::OutPath(argc, argv, "build/bench/agent.json")));
  std::printf("%s", report.Table().c_str());
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
