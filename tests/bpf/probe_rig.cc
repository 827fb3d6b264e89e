// SPDX-License-Identifier: Apache-2.0
#include "tests/bpf/probe_rig.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <sched.h>
#include <unistd.h>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "maps/unique_fd.h"
#include "tests/bpf/veth_rig.h"

namespace cw::test {
namespace {

// Replaces the XDP program of the interface by one that returns `action` for every packet.
void AttachXdp(const char* device, int action) {
  const bpf_insn code[] = {
      {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .src_reg = 0, .off = 0, .imm = action},
      {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0}};
  const maps::UniqueFd program(bpf_prog_load(BPF_PROG_TYPE_XDP, "cwtest_const", "GPL", code, 2, nullptr));
  ASSERT_TRUE(program.ok()) << strerror(errno);
  ASSERT_EQ(0, bpf_xdp_attach(static_cast<int>(if_nametoindex(device)), program.get(), XDP_FLAGS_DRV_MODE, nullptr));
}

}  // namespace

std::string ProbeRig::Name(const std::string& host) const { return absl::StrFormat("cwtest-%d-%s", getpid(), host); }

ProbeRig::ProbeRig() {
  const std::string script = absl::StrReplaceAll(R"(set -e
for n in a r1 r2 b; do ip netns add $P-$n; ip -n $P-$n link set lo up; done
ip -n $P-a link add nic0 type veth peer name host netns $P-r1
ip -n $P-b link add nic0 type veth peer name host netns $P-r2
for i in 1 2; do ip -n $P-r1 link add link$i type veth peer name link$i netns $P-r2; done
ip -n $P-a addr add 10.98.1.2/24 dev nic0
ip -n $P-b addr add 10.98.3.2/24 dev nic0
ip -n $P-r1 addr add 10.98.1.1/24 dev host
ip -n $P-r2 addr add 10.98.3.1/24 dev host
ip -n $P-r1 addr add 10.98.2.1/30 dev link1
ip -n $P-r2 addr add 10.98.2.2/30 dev link1
ip -n $P-r1 addr add 10.98.4.1/30 dev link2
ip -n $P-r2 addr add 10.98.4.2/30 dev link2
for h in a b; do ip -n $P-$h link set nic0 up; done
for r in r1 r2; do for d in host link1 link2; do ip -n $P-$r link set $d up; done; done
ip -n $P-a route add default via 10.98.1.1
ip -n $P-b route add default via 10.98.3.1
for r in r1 r2; do
  ip netns exec $P-$r sysctl -q -w net.ipv4.ip_forward=1 net.ipv4.fib_multipath_hash_policy=1 net.ipv4.icmp_ratelimit=0
  ip netns exec $P-$r sysctl -q -w net.ipv4.icmp_errors_use_inbound_ifaddr=1 net.ipv4.conf.all.rp_filter=0
done
ip -n $P-r1 route add 10.98.3.0/24 nexthop via 10.98.2.2 nexthop via 10.98.4.2
ip -n $P-r2 route add 10.98.1.0/24 nexthop via 10.98.2.1 nexthop via 10.98.4.1
)",
                                                 {{"$P", absl::StrFormat("cwtest-%d", getpid())}});
  Shell("( " + script + " )");
  for (const char* router : {"r1", "r2"}) In(router, [] { AttachXdp("host", XDP_PASS); });
  In("r2", [] {
    for (const char* link : {"link1", "link2"}) AttachXdp(link, XDP_PASS);
  });
}

ProbeRig::~ProbeRig() {
  for (const char* host : {"a", "r1", "r2", "b"}) Shell("ip netns del " + Name(host), true);
}

void ProbeRig::SetForwardCut(int link, bool cut) const {
  In("r2", [&] { AttachXdp(link == 1 ? "link1" : "link2", cut ? XDP_DROP : XDP_PASS); });
}

void ProbeRig::SetBackwardCut(int link, bool cut) const {
  In("r1", [&] { AttachXdp(link == 1 ? "link1" : "link2", cut ? XDP_DROP : XDP_PASS); });
}

void ProbeRig::In(const std::string& host, absl::FunctionRef<void()> run) const {
  const maps::UniqueFd home(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  const maps::UniqueFd there(open(("/run/netns/" + Name(host)).c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(home.ok() && there.ok() && setns(there.get(), CLONE_NEWNET) == 0) << "enter " << host;
  run();
  ASSERT_EQ(setns(home.get(), CLONE_NEWNET), 0) << "leave " << host;
}

}  // namespace cw::test
