// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/host_fault.h"

#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/lab/fabric_process.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

absl::Status Signal(const Testbed& testbed, int host, int signal, const char* what) {
  if (kill(testbed.agent_pid(host), signal) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat(what, " the agent of h", host));
}

// Of all its NICs.
std::vector<int> PortsOf(const Testbed& testbed, int host) {
  std::vector<int> ports = {host};
  if (!testbed.spec().second_nics.empty()) ports.push_back(testbed.second_port(host));
  return ports;
}

// Of hosts' NICs on it.
std::vector<int> PortsAt(const Testbed& testbed, const Fabric& fabric, int leaf) {
  std::vector<int> ports;
  const std::vector<int>& second = testbed.spec().second_nics;
  for (int host = 0; host < fabric.hosts(); ++host) {
    if (fabric.HostLeaf(host) == leaf) ports.push_back(host);
    if (!second.empty() && second[static_cast<size_t>(host)] == leaf) ports.push_back(testbed.second_port(host));
  }
  return ports;
}

// The network is there before the agent starts, as service managers order it.
absl::Status WaitForNetwork(const Testbed& testbed, Fabric& fabric, int host) {
  std::vector<std::string> devices = {"eth0", "mgmt0"};
  if (!testbed.spec().second_nics.empty()) devices.emplace_back("eth1");
  return RunInNetns(fabric.HostNetns(host), [&] { return WaitUntilRunning(devices); });
}

absl::Status SetManagementUp(const Fabric& fabric, int host, bool up) {
  return RunInNetns(fabric.MgmtNetns(), [&] {
    return RunTool({"ip", "link", "set", absl::StrCat("h", host), up ? "up" : "down"}).status();
  });
}

}  // namespace

absl::Status EndAgent(Testbed& testbed, int host, int signal) {
  if (absl::Status status = Signal(testbed, host, signal, "end"); !status.ok()) return status;
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (waitpid(testbed.agent_pid(host), nullptr, WNOHANG) == 0) {
    if (absl::Now() > deadline)
      return absl::DeadlineExceededError(absl::StrCat("the agent of h", host, " does not end on signal ", signal));
    absl::SleepFor(absl::Milliseconds(1));
  }
  return absl::OkStatus();
}

absl::Status KillAgent(Testbed& testbed, int host) { return EndAgent(testbed, host, SIGKILL); }

absl::Status StopAgent(Testbed& testbed, int host) { return Signal(testbed, host, SIGSTOP, "stop"); }

absl::Status ContinueAgent(Testbed& testbed, int host) { return Signal(testbed, host, SIGCONT, "continue"); }

absl::Status CutPort(Fabric& fabric, int port, bool cut) {
  absl::Status status;
  for (const LinkDirection& link : {LinkDirection::HostToLeaf(port), LinkDirection::LeafToHost(port)})
    status.Update(fabric.SetFault(link, cut ? Fault::Drop() : Fault::None()).status());
  return status;
}

absl::Status CutLeaf(Testbed& testbed, int leaf, bool cut) {
  Fabric& fabric = testbed.fabric();
  absl::Status status;
  for (const LinkDirection& link : fabric.LinkDirections()) {
    if (link.tier != LinkDirection::Tier::kSpine || link.leaf != leaf) continue;
    status.Update(fabric.SetFault(link, cut ? Fault::Drop() : Fault::None()).status());
  }
  for (const int port : PortsAt(testbed, fabric, leaf)) status.Update(CutPort(fabric, port, cut));
  return status;
}

absl::Status CutSpine(Fabric& fabric, int spine, bool cut) {
  absl::Status status;
  for (const LinkDirection& link : fabric.LinkDirections()) {
    if (link.tier != LinkDirection::Tier::kSpine || link.spine != spine) continue;
    status.Update(fabric.SetFault(link, cut ? Fault::Drop() : Fault::None()).status());
  }
  return status;
}

absl::Status SetLeafPower(Testbed& testbed, int leaf, bool on) {
  Fabric& fabric = testbed.fabric();
  absl::Status status;
  for (int spine = 0; spine < fabric.spec().spines; ++spine) status.Update(fabric.SetLinkUp(leaf, spine, on).status());
  for (const int port : PortsAt(testbed, fabric, leaf)) status.Update(fabric.SetHostLinkUp(port, on));
  return status;
}

absl::Status PowerOff(Testbed& testbed, int host) {
  absl::Status status = SetManagementUp(testbed.fabric(), host, false);
  for (const int port : PortsOf(testbed, host)) status.Update(testbed.fabric().SetHostLinkUp(port, false));
  status.Update(testbed.LoseAgent(host));
  return status;
}

absl::Status PowerOn(Testbed& testbed, int host) {
  absl::Status status;
  for (const int port : PortsOf(testbed, host)) status.Update(testbed.fabric().SetHostLinkUp(port, true));
  status.Update(SetManagementUp(testbed.fabric(), host, true));
  if (status.ok()) status = WaitForNetwork(testbed, testbed.fabric(), host);
  if (status.ok()) status = testbed.StartAgent(host);
  return status;
}

}  // namespace cw::lab
