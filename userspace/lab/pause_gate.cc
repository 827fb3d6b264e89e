// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/pause_gate.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "userspace/lab/fabric_layout.h"
#include "userspace/lab/fabric_process.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

constexpr uint32_t kGatedClass = 0x10010;  // 1:10
constexpr uint32_t kGateHandle = 0x30000;  // 3:

int PortIfindex(const LinkDirection& link) {
  const bool up = link.toward == LinkDirection::Toward::kUp;
  return up ? LeafPortIfindex(link.leaf, link.spine) : SpinePortIfindex(link.leaf, link.spine);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PauseGate>> PauseGate::Open(Fabric& fabric, const LinkDirection& link, bool by_class) {
  const absl::StatusOr<double> mbps = fabric.LinkRateMbps(link);
  if (!mbps.ok()) return mbps.status();
  if (link.tier != LinkDirection::Tier::kSpine || *mbps <= 0)
    return absl::FailedPreconditionError("only shaped leaf-spine links can be paused");
  std::unique_ptr<PauseGate> gate(new PauseGate(fabric, link));
  if (absl::Status status = gate->Start(by_class, *mbps); !status.ok()) return status;
  return gate;
}

absl::Status PauseGate::Start(bool by_class, double mbps) {
  const SwitchPort port = SendingPort(fabric_.spec(), link_);
  const std::string device = absl::StrCat(" dev ", port.device, " ");
  const std::string rate =
      absl::StrFormat("htb rate %dbit burst 16k cburst 16k quantum 10000", std::llround(mbps * 1e6));
  // Two classes that share the link's rate: LAB_OTHER_CLASS by the priority that the switch program gives it, all the
  // rest, or everything, by default.
  std::vector<std::string> lines = {absl::StrCat("qdisc replace", device, "root handle 1: htb default 10"),
                                    absl::StrCat("class add", device, "parent 1: classid 1:1 ", rate),
                                    absl::StrCat("class add", device, "parent 1:1 classid 1:10 ", rate)};
  if (by_class) lines.push_back(absl::StrCat("class add", device, "parent 1:1 classid 1:20 ", rate));
  absl::Status status = RunInNetns(NetnsPath(port.netns), [&] {
    return RunTool({"tc", "-batch", "-"}, absl::StrJoin(lines, "\n") + "\n").status();
  });
  if (!status.ok()) return status;
  absl::StatusOr<std::unique_ptr<TbfPort>> bucket = TbfPort::Open({.netns_path = NetnsPath(port.netns),
                                                                   .ifindex = PortIfindex(link_),
                                                                   .parent = kGatedClass,
                                                                   .handle = kGateHandle,
                                                                   .mtu = fabric_.spec().mtu});
  if (!bucket.ok()) return bucket.status();
  bucket_ = *std::move(bucket);
  return bucket_->Add();
}

PauseGate::~PauseGate() {
  if (bucket_) bucket_->Let().IgnoreError();
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

absl::StatusOr<int64_t> PauseGate::Pause() {
  if (absl::Status status = bucket_->Shut(); !status.ok()) return status;
  return MonotonicNs();
}

absl::StatusOr<int64_t> PauseGate::Resume() {
  if (absl::Status status = bucket_->Let(); !status.ok()) return status;
  return MonotonicNs();
}

}  // namespace cw::lab
