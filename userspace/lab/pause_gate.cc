// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/pause_gate.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/lab/fabric_layout.h"
#include "userspace/lab/fabric_process.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

constexpr int64_t kHeldBytes = 64 << 20;  // nothing is lost in a pause

// As the lab's own pause: with the overhead a packet costs more than the bucket holds, so that after the first one,
// which may as well have been on the wire, the queue stands.
std::string Gate(const FabricSpec& spec, bool paused) {
  return absl::StrFormat("tbf rate %s burst %d limit %d%s", paused ? "8kbit" : "40gbit",
                         paused ? spec.mtu + 64 : 1 << 20, kHeldBytes, paused ? " overhead 60000" : "");
}

}  // namespace

absl::StatusOr<std::unique_ptr<PauseGate>> PauseGate::Open(Fabric& fabric, const LinkDirection& link, bool by_class) {
  const absl::StatusOr<double> mbps = fabric.LinkRateMbps(link);
  if (!mbps.ok()) return mbps.status();
  if (link.tier != LinkDirection::Tier::kSpine || *mbps <= 0)
    return absl::FailedPreconditionError("only shaped leaf-spine links can be paused");
  std::unique_ptr<PauseGate> gate(new PauseGate(fabric, link));
  if (absl::Status status = gate->Start(by_class); !status.ok()) return status;
  return gate;
}

absl::Status PauseGate::Start(bool by_class) {
  const SwitchPort port = SendingPort(fabric_.spec(), link_);
  device_ = port.device;
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  const std::string netns = "--net=" + NetnsPath(port.netns);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(pipe_ends[0], STDIN_FILENO);
    execlp("nsenter", "nsenter", netns.c_str(), "tc", "-force", "-batch", "-", nullptr);
    _exit(127);
  }
  close(pipe_ends[0]);
  to_tc_ = pipe_ends[1];
  if (pid_ < 0) return absl::ErrnoToStatus(errno, "fork");
  const absl::StatusOr<double> mbps = fabric_.LinkRateMbps(link_);
  if (!mbps.ok()) return mbps.status();
  const std::string device = absl::StrCat(" dev ", device_, " ");
  const std::string rate =
      absl::StrFormat("htb rate %dbit burst 16k cburst 16k quantum 10000", std::llround(*mbps * 1e6));
  // Two classes that share the link's rate: LAB_OTHER_CLASS by the priority that the switch program gives it, all the
  // rest, or everything, by default.
  absl::Status status = Line(absl::StrCat("qdisc replace", device, "root handle 1: htb default 10"));
  status.Update(Line(absl::StrCat("class add", device, "parent 1: classid 1:1 ", rate)));
  status.Update(Line(absl::StrCat("class add", device, "parent 1:1 classid 1:10 ", rate)));
  if (by_class) status.Update(Line(absl::StrCat("class add", device, "parent 1:1 classid 1:20 ", rate)));
  status.Update(Line(absl::StrCat("qdisc add", device, "parent 1:10 handle 3: ", Gate(fabric_.spec(), false))));
  return status;
}

PauseGate::~PauseGate() {
  if (to_tc_ >= 0) close(to_tc_);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
  const SwitchPort port = SendingPort(fabric_.spec(), link_);
  const absl::StatusOr<double> mbps = fabric_.LinkRateMbps(link_);
  if (!mbps.ok()) return;
  RunInNetns(NetnsPath(port.netns), [&] {
    std::vector<std::string> argv = {"tc", "qdisc", "replace", "dev", port.device, "root"};
    const std::string shaper = Shaper(fabric_.spec(), *mbps);
    for (size_t at = 0; at < shaper.size();) {
      const size_t end = std::min(shaper.find(' ', at), shaper.size());
      argv.push_back(shaper.substr(at, end - at));
      at = end + 1;
    }
    (void)RunTool({"tc", "qdisc", "del", "dev", port.device, "root"});
    return RunTool(argv).status();
  }).IgnoreError();
}

absl::Status PauseGate::Line(const std::string& line) {
  const std::string text = line + "\n";
  if (write(to_tc_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return absl::ErrnoToStatus(errno, "write to tc");
  return absl::OkStatus();
}

absl::StatusOr<int64_t> PauseGate::Set(bool paused) {
  absl::Status status =
      Line(absl::StrCat("qdisc change dev ", device_, " parent 1:10 handle 3: ", Gate(fabric_.spec(), paused)));
  if (!status.ok()) return status;
  return MonotonicNs();
}

}  // namespace cw::lab
