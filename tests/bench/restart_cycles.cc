// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/restart_cycles.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "other_release.skel.h"
#include "tests/bench/pinned_state.h"
#include "userspace/dataplane/dataplane.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/host_fault.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/netns.h"

namespace cw::bench {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(30);  // ten times what a start takes on a busy machine
constexpr absl::Duration kControl = absl::Seconds(1);

double SinceMs(int64_t from_ns) { return static_cast<double>(lab::MonotonicNs() - from_ns) / 1e6; }

std::string InstanceOf(lab::Testbed& testbed, int host) {
  return lab::DescribeAgentHost(testbed.fabric(), host).instance;
}

absl::StatusOr<uint64_t> ProbesSent(const std::string& instance) {
  const absl::StatusOr<PinnedState> state = ReadPinned(instance);
  if (!state.ok()) return state.status();
  return state->counters.at("probe_sent");
}

// Puts the programs of another release where those of `host` are; its agent must be gone.
absl::Status Exchange(lab::Testbed& testbed, int host) {
  size_t size = 0;
  const void* bytes = other_release__elf_bytes(&size);
  dataplane::Options options;
  options.instance = InstanceOf(testbed, host);
  options.elf = absl::string_view(static_cast<const char*>(bytes), size);
  return lab::RunInNetns(testbed.fabric().HostNetns(host), [&]() -> absl::Status {
    const auto plane = dataplane::Dataplane::Open(options);
    if (!plane.ok()) return plane.status();
    if ((*plane)->replaced() && (*plane)->Attached().size() == 1) return absl::OkStatus();
    return absl::InternalError(absl::StrFormat("h%d: the other release's programs are not in place", host));
  });
}

// Fills in the rest of `times`.
absl::StatusOr<CycleTimes> StartAgain(lab::Testbed& testbed, int host, int64_t began_ns, uint64_t probes_before,
                                      CycleTimes times) {
  const std::string instance = InstanceOf(testbed, host);
  if (absl::Status status = testbed.StartAgent(host); !status.ok()) return status;
  if (auto reply = testbed.agent(host).Status(); !reply.ok()) return reply.status();
  times.down_ms = SinceMs(began_ns);
  for (const absl::Time deadline = absl::Now() + kLimit;; absl::SleepFor(absl::Milliseconds(1))) {
    const absl::StatusOr<uint64_t> sent = ProbesSent(instance);
    if (!sent.ok()) return sent.status();
    times.probes_ms = SinceMs(began_ns);
    if (*sent > probes_before) return times;
    if (absl::Now() > deadline)
      return absl::DeadlineExceededError(absl::StrFormat("the agent of h%d sends no probe", host));
  }
}

absl::StatusOr<CycleTimes> Restart(Cycle cycle, lab::Testbed& testbed, int host) {
  const std::string instance = InstanceOf(testbed, host);
  const auto programs = PinnedPrograms(instance);
  if (!programs.ok()) return programs.status();
  const int64_t began_ns = lab::MonotonicNs();
  if (absl::Status status = lab::EndAgent(testbed, host, cycle == Cycle::kKill ? SIGKILL : SIGTERM); !status.ok())
    return status;
  const CycleTimes ended{.end_ms = SinceMs(began_ns)};
  const absl::StatusOr<uint64_t> probes = ProbesSent(instance);
  if (!probes.ok()) return probes.status();
  if (cycle == Cycle::kUpgrade) {
    if (absl::Status status = Exchange(testbed, host); !status.ok()) return status;
    const auto other = PinnedPrograms(instance);
    if (!other.ok()) return other.status();
    if ((*other)[0] == (*programs)[0] || (*other)[1] == (*programs)[1])
      return absl::InternalError("an exchange left a program where it was");
  }
  const auto times = StartAgain(testbed, host, began_ns, *probes, ended);
  const auto after = PinnedPrograms(instance);
  if (!after.ok()) return after.status();
  if ((*after == *programs) == (cycle == Cycle::kUpgrade))
    return absl::InternalError(absl::StrFormat("h%d: %s left other programs than it should", host, NameOf(cycle)));
  return times;
}

// What the agent said newest of `type`, and how much it has said.
uint64_t NewestEvent(lab::Testbed& testbed, int host, const std::string& type) {
  uint64_t newest = 0;
  api::v1::EventsRequest request;
  request.set_type(type);
  (void)testbed.agent(host).Events(request, [&](const api::v1::Event& event) {
    newest = std::max(newest, event.seq());
    return true;
  });
  return newest;
}

absl::StatusOr<CycleTimes> Reload(lab::Testbed& testbed, int host) {
  const uint64_t said = NewestEvent(testbed, host, "keys");
  const int64_t began_ns = lab::MonotonicNs();
  if (kill(testbed.agent_pid(host), SIGHUP) != 0) return absl::ErrnoToStatus(errno, "reload an agent");
  for (const absl::Time deadline = absl::Now() + kLimit; NewestEvent(testbed, host, "keys") == said;) {
    if (absl::Now() > deadline)
      return absl::DeadlineExceededError(absl::StrFormat("the agent of h%d did not read its keys again", host));
    absl::SleepFor(absl::Milliseconds(1));
  }
  return CycleTimes{.down_ms = SinceMs(began_ns)};
}

}  // namespace

std::string NameOf(Cycle cycle) {
  switch (cycle) {
    case Cycle::kNothing:
      return "nothing";
    case Cycle::kKill:
      return "kill";
    case Cycle::kRestart:
      return "restart";
    case Cycle::kUpgrade:
      return "upgrade";
    case Cycle::kReload:
      return "reload";
  }
  return "";
}

absl::StatusOr<CycleTimes> Run(Cycle cycle, lab::Testbed& testbed, int host) {
  if (cycle == Cycle::kReload) return Reload(testbed, host);
  if (cycle != Cycle::kNothing) return Restart(cycle, testbed, host);
  absl::SleepFor(kControl);
  return CycleTimes();
}

}  // namespace cw::bench
