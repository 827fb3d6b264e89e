// SPDX-License-Identifier: Apache-2.0
#include "userspace/host/doctor.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "userspace/host/kernel_checks.h"
#include "userspace/host/nic_checks.h"

namespace cw::host {
namespace {

using Result = Check::Result;

Check AgentCheck(const DoctorInput& input) {
  if (input.agent_runs) return {"agent", Result::kOk, input.agent_note, ""};
  return {"agent", Result::kWarn, input.agent_note.empty() ? "not running" : input.agent_note,
          "systemctl start cwfabric-agent, or name its socket with --instance or --socket"};
}

Check AttachCheck(const NicFacts& nic) {
  const std::string name = "xdp " + nic.name;
  if (!nic.hooks.empty())
    return {name, Result::kFail, nic.hooks,
            "until this is over no dead path is left on this NIC; see cwctl events --type nic"};
  if (nic.ingress == "native") return {name, Result::kOk, "native", ""};
  const std::string why = nic.note.empty() ? "" : ": " + nic.note;
  if (nic.ingress == "generic") {
    return {name, Result::kWarn, "generic" + why,
            "works, at a higher cost per packet; a driver with native XDP, or a smaller MTU, would avoid it"};
  }
  if (nic.ingress == "none") {
    if (nic.probes.empty())
      return {name, Result::kWarn, "not attached" + why, "nothing is measured or steered on this NIC"};
    return {name, Result::kWarn, absl::StrCat("not attached", why, "; ", nic.probes),
            "paths are measured, dead ones told; queue pairs are not seen, nor steered"};
  }
  return {name, Result::kUnknown, "known once an agent runs", ""};
}

Check ProgramsCheck(LiveProbe& live, const NicFacts& facts) {
  const std::string& nic = facts.name;
  const std::string name = "programs " + nic;
  absl::StatusOr<std::vector<AttachedProgram>> programs = live.Programs(nic);
  if (!programs.ok()) {
    return {name, Result::kUnknown, std::string(programs.status().message()), "run as root to see them"};
  }
  std::vector<std::string> others, unnamed;
  bool other_xdp = false, own_xdp = false, own_egress = false;
  size_t ours = 0;
  for (const AttachedProgram& program : *programs) {
    if (program.ours) {
      ++ours;
      own_xdp = own_xdp || program.hook.starts_with("xdp");
      own_egress = own_egress || program.hook.ends_with("egress");
      continue;
    }
    if (program.name.empty()) {
      unnamed.push_back(absl::StrFormat("%s (id %d)", program.hook, program.id));
      continue;
    }
    other_xdp |= program.hook.rfind("xdp", 0) == 0;
    others.push_back(absl::StrFormat("%s \"%s\" (id %d)", program.hook, program.name, program.id));
  }
  if (others.empty() && !unnamed.empty()) {
    return {name, Result::kUnknown, absl::StrFormat("whose this is may not be asked: %s", absl::StrJoin(unnamed, ", ")),
            "run as root to see it"};
  }
  const bool wanted = facts.ingress == "native" || facts.ingress == "generic" || !facts.hooks.empty();
  if (wanted && !other_xdp && !(own_xdp && own_egress)) {
    const std::string gone = ours == 0 ? "programs are" : own_xdp ? "tc egress program is" : "XDP program is";
    return {name, Result::kFail,
            absl::StrCat("the agent's ", gone, " not on this NIC; somebody detached ", ours == 0 ? "them" : "it"),
            "the agent attaches them again within seconds, or in mode off with the next mode (cwctl mode observe); see "
            "what is in the way: cwctl events --type nic"};
  }
  if (others.empty()) return {name, Result::kOk, ours == 0 ? "none" : "only ours", ""};
  const std::string seen = absl::StrFormat("another owner's: %s", absl::StrJoin(others, ", "));
  if (other_xdp) {
    return {name, Result::kFail, seen,
            absl::StrFormat("it is never replaced: end its owner, or ip link set dev %s xdp off", nic)};
  }
  return {name, Result::kWarn, seen, "it sees packets before or after ours; check that it leaves UDP 4791 alone"};
}

Check RdmaUnknown(const std::string& nic, const absl::Status& status) {
  return {"rdma " + nic, Result::kUnknown, std::string(status.message()), "see rdma link"};
}

Check RealtimeCheck(LiveProbe& live, const DoctorInput& input) {
  if (input.agent_runs && input.prober_realtime)
    return {"real time", Result::kOk, "the prober runs under SCHED_FIFO", ""};
  // An agent that runs has given up the right to try.
  if (input.agent_runs) {
    return {"real time", Result::kWarn, "the prober does not run under SCHED_FIFO",
            "set probe.realtime = true, and give the unit CAP_SYS_NICE or LimitRTPRIO="};
  }
  const absl::Status status = live.Realtime();
  if (!status.ok()) {
    return {"real time", Result::kWarn, std::string(status.message()),
            "give the unit CAP_SYS_NICE or LimitRTPRIO=; without it probes are late when the CPUs are busy"};
  }
  return {"real time", Result::kOk, "SCHED_FIFO is permitted", ""};
}

Check SystemClockCheck(LiveProbe& live) {
  absl::StatusOr<ClockDiscipline> clock = live.Clock();
  if (!clock.ok()) return {"system clock", Result::kUnknown, std::string(clock.status().message()), ""};
  if (clock->synchronised) {
    return {"system clock", Result::kOk, absl::StrFormat("disciplined, error ≤ %d µs", clock->max_error_us), ""};
  }
  return {"system clock", Result::kWarn, "no daemon disciplines it",
          "delays do not need it, but times of events do: run chronyd or the like"};
}

Check FleetClockCheck(const DoctorInput& input) {
  if (input.clock_error_ns >= 0) {
    return {"fleet clock", Result::kOk, absl::StrFormat("likely error %.2f µs", input.clock_error_ns / 1000), ""};
  }
  if (!input.agent_runs) return {"fleet clock", Result::kUnknown, "known once an agent runs", ""};
  return {"fleet clock", Result::kUnknown, "no estimate: no peer answers yet",
          "see cwctl paths; peers need an agent with the same secret"};
}

Check HashingCheck(const DoctorInput& input) {
  const std::string name = "fabric hashing";
  const std::string no_moves = "flows are not moved for balance on such a fabric; hash on addresses and UDP ports only";
  switch (input.hashing) {
    case Hashing::kPorts:
      return {name, Result::kOk, "on ports", ""};
    case Hashing::kQpn:
      return {name, Result::kWarn, "on the destination QPN too: probes do not take the paths of flows",
              no_moves + "; until then flows leave a dead path only by trying other ports"};
    case Hashing::kTtl:
      return {name, Result::kWarn, "on the TTL too: traces of different length contradict each other",
              no_moves +
                  "; and let switches answer traces from the port where they came in "
                  "(Linux: net.ipv4.icmp_errors_use_inbound_ifaddr=1)"};
    case Hashing::kSprayed:
      return {name, Result::kWarn, "packets are sprayed or routed adaptively: one port takes other switches each time",
              no_moves};
    case Hashing::kSinglePath:
      return {name, Result::kOk, "one path only: there is nothing to choose", ""};
    case Hashing::kUnknown:
      break;
  }
  if (!input.agent_runs) return {name, Result::kUnknown, "known once an agent runs", ""};
  return {name, Result::kUnknown, "not known yet: flows leave dead paths, and are not moved for balance",
          "wait for path discovery; it needs switches that answer with ICMP"};
}

Check CertificatesCheck(const DoctorInput& input) {
  if (input.certificates) return CheckCertificates(*input.certificates, absl::Now());
  if (!input.agent_runs) return {"certificates", Result::kUnknown, "known once an agent runs", "see [api] listen"};
  return {"certificates", Result::kOk, "none: the API is not served over TCP", ""};
}

// Without it they are known from lists, seconds later and without their peers' addresses.
Check QueuePairCheck(const DoctorInput& input) {
  if (input.no_qp_moments.empty()) return {"queue pairs", Result::kOk, "told by the kernel as they connect", ""};
  return {
      "queue pairs", Result::kWarn, "read from lists every 2 s: " + input.no_qp_moments,
      "restart the agent now that the modules are loaded; see that the kernel has kprobes and the unit CAP_PERFMON"};
}

Check LinkCheck(const NicFacts& nic, const Interface* interface) {
  const std::string name = "link " + nic.name;
  if (!nic.trouble.empty())
    return {name, Result::kFail, nic.trouble, "see ip addr; give it back, or correct [[nic]] and restart the agent"};
  Check check = CheckNicUp(nic.name, interface);
  if (check.result != Result::kOk || nic.renamed.empty()) return check;
  return {name, Result::kWarn, nic.renamed, "correct [[nic]] name: the next start goes by it"};
}

}  // namespace

std::vector<Check> RunDoctor(const Roots& roots, LiveProbe& live, const DoctorInput& input) {
  const std::vector<Interface> interfaces = live.Interfaces().value_or(std::vector<Interface>());
  const absl::StatusOr<std::vector<RdmaPort>> ports = live.RdmaPorts();
  const std::vector<RdmaDevice> devices = RdmaDevices(roots, ports.value_or(std::vector<RdmaPort>()));
  std::vector<NicFacts> nics = input.nics;
  if (nics.empty()) {
    for (const std::string& name : CandidateNics(interfaces, devices)) nics.push_back({name, "", ""});
  }
  std::vector<Check> checks = {AgentCheck(input), CheckBtf(roots),
                               CheckBpffs(roots), CheckCapabilities(roots, input.agent_runs),
                               CheckJit(roots),   CheckClocksource(roots)};
  for (const NicFacts& nic : nics) {
    const Interface* interface = FindInterface(interfaces, nic.name);
    checks.push_back(LinkCheck(nic, interface));
    if (interface == nullptr || !nic.trouble.empty()) continue;
    checks.push_back(CheckMtu(*interface));
    const Check past_kernel = ports.ok() ? CheckOffload(nic.name, devices) : RdmaUnknown(nic.name, ports.status());
    checks.push_back(past_kernel);
    checks.push_back(AttachCheck(nic));
    checks.push_back(ProgramsCheck(live, nic));
    if (interface->needs_clsact) checks.push_back(CheckClsact(*interface));
    checks.push_back(CheckRpFilter(roots, nic.name, nics.size()));
    if (past_kernel.result == Result::kWarn) continue;  // nothing is attached there
    checks.push_back(CheckNicOffloads(*interface, nic.ingress == "generic"));
    checks.push_back(CheckAttach(*interface, nic.ingress == "native"));
  }
  if (input.agent_runs) checks.push_back(CheckGsoFrames(input.gso_frames));
  if (input.agent_runs && !devices.empty()) checks.push_back(QueuePairCheck(input));
  checks.push_back(RealtimeCheck(live, input));
  checks.push_back(SystemClockCheck(live));
  checks.push_back(FleetClockCheck(input));
  checks.push_back(HashingCheck(input));
  checks.push_back(CertificatesCheck(input));
  return checks;
}

Check::Result Worst(const std::vector<Check>& checks) {
  auto weight = [](Result result) {
    switch (result) {
      case Result::kOk:
        return 0;
      case Result::kUnknown:
        return 1;
      case Result::kWarn:
        return 2;
      case Result::kFail:
        return 3;
    }
    return 3;
  };
  Result worst = Result::kOk;
  for (const Check& check : checks) {
    if (weight(check.result) > weight(worst)) worst = check.result;
  }
  return worst;
}

}  // namespace cw::host
