// SPDX-License-Identifier: Apache-2.0
// Fleet time as others get it from running agents: processes in the hosts' namespaces through libcwclock, BPF programs
// through the pinned map, people through bpftool, chronyd through its socket. The hosts' clocks are hidden ones: what
// is read agrees only because the agents synchronise.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fleet_record.skel.h"
#include "libcwclock/cwclock.h"
#include "maps/names.h"
#include "maps/unique_fd.h"
#include "tests/lab/chronyd_rig.h"
#include "tests/lab/eventually.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/testbed.h"
#include "userspace/publish/kernel_clocks.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;
using ::testing::HasSubstr;

constexpr double kUtcAheadS = 0.123456789;  // of this machine's CLOCK_REALTIME, as the lab's anchor has it
constexpr int kLeap = 37;

// A process in a host's namespace that converts timestamps with libcwclock, one at a time.
class Reader {
 public:
  Reader(const std::string& netns, const std::string& page) {
    int ask[2] = {-1, -1}, answer[2] = {-1, -1};
    if (pipe2(ask, O_CLOEXEC) != 0 || pipe2(answer, O_CLOEXEC) != 0) return;
    process_ = fork();
    if (process_ == 0) {
      close(ask[1]);
      close(answer[0]);
      Serve(netns, page, ask[0], answer[1]);
    }
    close(ask[0]);
    close(answer[1]);
    ask_ = maps::UniqueFd(ask[1]);
    answer_ = maps::UniqueFd(answer[0]);
  }
  ~Reader() {
    ask_ = maps::UniqueFd();  // the process ends
    if (process_ > 0) waitpid(process_, nullptr, 0);
  }

  // Fleet time at a time of CLOCK_MONOTONIC; error: of the library, or of the process.
  cw_clock_time At(int64_t monotonic_ns, int* error) {
    Answer a{};
    const bool ok = write(ask_.get(), &monotonic_ns, sizeof(monotonic_ns)) == sizeof(monotonic_ns) &&
                    read(answer_.get(), &a, sizeof(a)) == sizeof(a);
    *error = ok ? a.error : CW_CLOCK_ESYSTEM;
    return a.time;
  }

 private:
  struct Answer {
    int error;
    cw_clock_time time;
  };

  [[noreturn]] static void Serve(const std::string& netns, const std::string& page, int ask, int answer) {
    const int place = open(netns.c_str(), O_RDONLY | O_CLOEXEC);
    cw_clock* clock = nullptr;
    int error = place >= 0 && setns(place, CLONE_NEWNET) == 0 ? cw_clock_open(page.c_str(), &clock) : CW_CLOCK_ESYSTEM;
    int64_t at_ns = 0;
    while (read(ask, &at_ns, sizeof(at_ns)) == sizeof(at_ns)) {
      Answer a{error, {}};
      if (clock != nullptr) a.error = cw_clock_convert(clock, CLOCK_MONOTONIC, at_ns, &a.time);
      if (write(answer, &a, sizeof(a)) != sizeof(a)) break;
    }
    _exit(0);
  }

  pid_t process_ = -1;
  maps::UniqueFd ask_, answer_;
};

class ClockOutputs : public ::testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);  // a reader that ends too early is an error to report
    auto rig = ChronydRig::Create();
    ASSERT_TRUE(rig.ok()) << rig.status();
    chronyd = *std::move(rig);
    const int64_t realtime_ns = publish::ReadKernelClock(CLOCK_REALTIME);
    const int64_t tai_ns =
        realtime_ns - MonotonicNs() + kLeap * int64_t{1'000'000'000} + std::llround(kUtcAheadS * 1e9);
    TestbedSpec spec;
    spec.fabric = {.lab = "clockout", .link_mbps = 400, .ecmp_seed = 1};
    spec.mode = "observe";
    spec.agent_binary = CWLAB_AGENTD_BINARY;
    spec.clock_neighbours = 1;
    spec.clocks = {
        {.offset_ns = 400'000'000, .drift_ppm = 60, .segment_s = 120, .seed = 1, .tai_less_monotonic_ns = tai_ns},
        {.offset_ns = -300'000'000, .drift_ppm = -40, .segment_s = 120, .seed = 2}};
    spec.adjust = [this](int host, config::Config& config) {
      config.clock.tai_minus_utc = kLeap;
      if (host == 0) config.clock.anchor = config::Anchor::kRealtime;
      if (host == 1) config.clock.chrony.sock = chronyd->SockPath();
    };
    auto up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed = *std::move(up);
    ASSERT_EQ(testbed->fabric().hosts(), 2);
    ASSERT_TRUE(Eventually([&] { return Synchronised(0) && Synchronised(1); }));
  }

  v1::ClockTracking Tracking(int host) {
    const auto reply = testbed->agent(host).Clock();
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? reply->tracking() : v1::ClockTracking();
  }
  bool Synchronised(int host) { return Tracking(host).state() == v1::ClockTracking::STATE_SYNCHRONISED; }

  std::string Page(int host) { return DescribeAgentHost(testbed->fabric(), host).run_dir + "/clock"; }
  std::string Pin(int host) {
    return absl::StrCat(CW_PIN_ROOT, "/", DescribeAgentHost(testbed->fabric(), host).instance, "/", CW_MAP_FLEET_CLOCK);
  }

  std::unique_ptr<ChronydRig> chronyd;
  std::unique_ptr<Testbed> testbed;
};

int64_t HalfWidth(const cw_clock_time& t) { return (t.latest_ns - t.earliest_ns) / 2; }

TEST_F(ClockOutputs, ProcessesOfTwoHostsReadTheSameTime) {
  Reader first(testbed->fabric().HostNetns(0), Page(0)), second(testbed->fabric().HostNetns(1), Page(1));
  int64_t worst_ns = 0;
  for (int i = 0; i < 100; ++i) {
    const int64_t at_ns = MonotonicNs();
    int error_a = 0, error_b = 0;
    const cw_clock_time a = first.At(at_ns, &error_a), b = second.At(at_ns, &error_b);
    ASSERT_EQ(error_a, 0) << cw_clock_strerror(error_a);
    ASSERT_EQ(error_b, 0) << cw_clock_strerror(error_b);
    EXPECT_EQ(a.timeline, b.timeline);
    const int64_t apart_ns = std::llabs(a.fleet_ns - b.fleet_ns);
    // A bound is told of the reference; between two hosts both count.
    EXPECT_LE(apart_ns, HalfWidth(a) + HalfWidth(b));
    worst_ns = std::max(worst_ns, apart_ns);
    absl::SleepFor(absl::Milliseconds(20));
  }
  std::printf("two processes on two hosts: at most %lld ns apart\n", static_cast<long long>(worst_ns));
  EXPECT_LT(worst_ns, 100'000) << "far above what is expected, far below the 700 ms that the clocks are apart";
}

TEST_F(ClockOutputs, ProgramsReadTheSameTimeAsProcesses) {
  Reader other(testbed->fabric().HostNetns(1), Page(1));
  const std::unique_ptr<fleet_record, decltype(&fleet_record__destroy)> program(fleet_record__open(),
                                                                                &fleet_record__destroy);
  ASSERT_NE(program, nullptr);
  const maps::UniqueFd map(bpf_obj_get(Pin(0).c_str()));
  ASSERT_GE(map.get(), 0) << Pin(0);
  ASSERT_EQ(bpf_map__reuse_fd(program->maps.fleet_clock, map.get()), 0);
  ASSERT_EQ(fleet_record__load(program.get()), 0);
  for (int i = 0; i < 50; ++i) {
    std::array<char, 64> packet{};
    LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = packet.data(), .data_size_in = packet.size(), .repeat = 1);
    ASSERT_EQ(bpf_prog_test_run_opts(bpf_program__fd(program->progs.fleet_time), &run), 0);
    ASSERT_EQ(program->bss->result, 0);
    int error = 0;
    const cw_clock_time b = other.At(static_cast<int64_t>(program->bss->local_ns), &error);
    ASSERT_EQ(error, 0) << cw_clock_strerror(error);
    EXPECT_LE(std::llabs(program->bss->fleet_ns - b.fleet_ns),
              static_cast<int64_t>(program->bss->bound_ns) + HalfWidth(b));
    absl::SleepFor(absl::Milliseconds(20));
  }
}

TEST_F(ClockOutputs, BpftoolShowsTheFields) {
  std::string out;
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(absl::StrCat("bpftool map dump pinned ", Pin(0)).c_str(), "re"),
                                             pclose);
  std::array<char, 4096> part{};
  while (pipe && fgets(part.data(), part.size(), pipe.get()) != nullptr) out += part.data();
  EXPECT_THAT(out, HasSubstr("\"generation\""));
  EXPECT_THAT(out, HasSubstr("\"error_est_ns\""));
  EXPECT_THAT(out, HasSubstr("\"tai_bound_ns\""));
}

TEST_F(ClockOutputs, ChronydFollowsTheFleetsTai) {
  EXPECT_NE(Tracking(1).chrony(), "fed") << "chronyd is not there yet";
  ASSERT_TRUE(chronyd->Start("SOCK " + chronyd->SockPath()).ok());
  std::string said;
  // The anchor is trusted to a millisecond, but the lab's is right: what is expected is a hundredth of this.
  EXPECT_TRUE(Eventually([&] { return chronyd->Follows(kUtcAheadS, 1e-4, &said); }))
      << said << chronyd->Log() << Tracking(1).ShortDebugString();
  const v1::ClockTracking fed = Tracking(1);
  EXPECT_EQ(fed.chrony(), "fed") << fed.ShortDebugString();
  EXPECT_GT(fed.chrony_samples(), 3u);
  EXPECT_EQ(Tracking(0).chrony(), "") << "not configured there";
}

}  // namespace
}  // namespace cw::lab
