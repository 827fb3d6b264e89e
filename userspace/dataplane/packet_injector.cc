// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/packet_injector.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "absl/strings/str_format.h"
#include "userspace/dataplane/netdev.h"

namespace cw::dataplane {
namespace {

// In linux/bpf.h since 5.18.
constexpr uint32_t kLiveFrames = 1u << 1;

using Frame = std::array<uint8_t, ETH_HLEN + PacketInjector::kMaxPacket>;

// An XDP program that does the same with every packet.
absl::StatusOr<maps::UniqueFd> Load(xdp_action action) {
  const bpf_insn code[] = {
      {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .src_reg = 0, .off = 0, .imm = action},
      {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0},
  };
  bpf_prog_load_opts options = {};
  options.sz = sizeof(options);
  maps::UniqueFd program(bpf_prog_load(BPF_PROG_TYPE_XDP, "cw_inject", "Dual BSD/GPL", code, 2, &options));
  if (!program.ok()) return absl::ErrnoToStatus(errno, "load the program that delivers packets");
  return program;
}

absl::Status RunLive(int program, uint32_t ifindex, absl::Span<const uint8_t> frame) {
  xdp_md context = {};
  context.data_end = static_cast<__u32>(frame.size());
  context.ingress_ifindex = ifindex;
  bpf_test_run_opts run = {};
  run.sz = sizeof(run);
  run.data_in = frame.data();
  run.data_size_in = static_cast<__u32>(frame.size());
  run.ctx_in = &context;
  run.ctx_size_in = sizeof(context);
  run.repeat = 1;
  run.batch_size = 1;
  run.flags = kLiveFrames;
  if (bpf_prog_test_run_opts(program, &run) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrFormat("deliver a packet on interface %d", ifindex));
}

}  // namespace

absl::StatusOr<PacketInjector> PacketInjector::Create() {
  absl::StatusOr<maps::UniqueFd> drop = Load(XDP_DROP);
  if (!drop.ok()) return drop.status();
  const std::array<uint8_t, 64> nothing{};
  constexpr uint32_t kLoopback = 1;
  if (absl::Status tried = RunLive(drop->get(), kLoopback, nothing); !tried.ok()) {
    return absl::UnimplementedError(absl::StrFormat(
        "this kernel cannot deliver packets to itself (5.18 and later can): %s", std::string(tried.message())));
  }
  absl::StatusOr<maps::UniqueFd> pass = Load(XDP_PASS);
  if (!pass.ok()) return pass.status();
  return PacketInjector(*std::move(pass));
}

absl::Status PacketInjector::Deliver(uint32_t ifindex, absl::Span<const uint8_t> packet) const {
  if (packet.size() > kMaxPacket) {
    return absl::InvalidArgumentError(absl::StrFormat("a packet of %d bytes, limit %d", packet.size(), kMaxPacket));
  }
  absl::StatusOr<std::array<uint8_t, 6>> mac = MacOf(ifindex);
  if (!mac.ok()) return mac.status();
  Frame frame{};
  std::copy(mac->begin(), mac->end(), frame.begin());
  frame[6] = 0x02;  // from a locally administered address
  const uint16_t type = !packet.empty() && packet[0] >> 4 == 6 ? ETH_P_IPV6 : ETH_P_IP;
  frame[12] = static_cast<uint8_t>(type >> 8);
  frame[13] = type & 0xff;
  std::copy(packet.begin(), packet.end(), frame.begin() + ETH_HLEN);
  return RunLive(pass_.get(), ifindex, {frame.data(), ETH_HLEN + packet.size()});
}

}  // namespace cw::dataplane
