// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/xdp_filter_peer.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"

namespace cw::bench {
namespace {

absl::Status Shell(const std::string& command) {
  FILE* pipe = popen(("{ " + command + "; } 2>&1").c_str(), "r");
  if (pipe == nullptr) return absl::ErrnoToStatus(errno, "popen");
  std::string out;
  char buffer[1024];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) out.append(buffer, n);
  if (pclose(pipe) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrFormat("%s: %s", command, out));
}

absl::StatusOr<maps::UniqueFd> ProgramIn(const std::string& netns, const char* device) {
  maps::UniqueFd home(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  maps::UniqueFd there(open(("/run/netns/" + netns).c_str(), O_RDONLY | O_CLOEXEC));
  if (!home.ok() || !there.ok() || setns(there.get(), CLONE_NEWNET) != 0) return absl::ErrnoToStatus(errno, "setns");
  uint32_t id = 0;
  const int rc = bpf_xdp_query_id(static_cast<int>(if_nametoindex(device)), 0, &id);
  if (setns(home.get(), CLONE_NEWNET) != 0) return absl::ErrnoToStatus(errno, "setns back");
  if (rc != 0 || id == 0) return absl::NotFoundError("xdp-filter attached no program");
  maps::UniqueFd fd(bpf_prog_get_fd_by_id(id));
  if (!fd.ok()) return absl::ErrnoToStatus(errno, "open xdp-filter's program");
  return fd;
}

}  // namespace

absl::StatusOr<maps::UniqueFd> LoadXdpFilter(const std::string& features, const std::vector<std::string>& rules) {
  if (system("command -v xdp-filter >/dev/null") != 0) {
    return absl::NotFoundError("the peer xdp-filter is missing: install the package xdp-tools");
  }
  const std::string netns = absl::StrFormat("cwbench-%d", getpid());
  const auto remove = absl::MakeCleanup([&] { Shell("ip netns del " + netns).IgnoreError(); });
  if (auto s =
          Shell(absl::StrFormat("ip netns add %s && ip -n %s link add nic0 type veth peer name nic1", netns, netns));
      !s.ok()) {
    return s;
  }
  // A BPF file system of its own, so that the pins of an xdp-filter in use here are neither seen nor touched.
  std::string script = "mount -t bpf bpf /sys/fs/bpf && xdp-filter load nic0 -p allow -f " + features;
  for (const std::string& rule : rules) script += " && xdp-filter " + rule;
  if (auto s = Shell(absl::StrFormat(
          "nsenter --net=/run/netns/%s unshare --mount env LIBXDP_SKIP_DISPATCHER=1 sh -c '%s'", netns, script));
      !s.ok()) {
    return s;
  }
  return ProgramIn(netns, "nic0");
}

}  // namespace cw::bench
