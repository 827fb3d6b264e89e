// SPDX-License-Identifier: Apache-2.0
#include "tests/lab/tc_program.h"

#include <bpf/bpf.h>
#include <linux/pkt_cls.h>
#include <net/if.h>
#include <unistd.h>

#include <cerrno>

namespace cw::lab {

std::vector<bpf_insn> OneOf(uint32_t every, const std::vector<bpf_insn>& then) {
  std::vector<bpf_insn> program = {
      {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_get_prandom_u32},
      {.code = BPF_JMP32 | BPF_JLT | BPF_K,
       .dst_reg = BPF_REG_0,
       .off = 2,
       .imm = static_cast<int>(UINT32_MAX / every)},
      {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = TC_ACT_OK},
      {.code = BPF_JMP | BPF_EXIT},
  };
  program.insert(program.end(), then.begin(), then.end());
  program.push_back({.code = BPF_JMP | BPF_EXIT});
  return program;
}

absl::Status AttachTc(const std::string& device, bpf_tc_attach_point point, const std::vector<bpf_insn>& program) {
  const int fd = bpf_prog_load(BPF_PROG_TYPE_SCHED_CLS, "lab", "GPL", program.data(), program.size(), nullptr);
  if (fd < 0) return absl::ErrnoToStatus(errno, "BPF_PROG_LOAD");
  bpf_tc_hook hook = {};
  hook.sz = sizeof hook;
  hook.ifindex = static_cast<int>(if_nametoindex(device.c_str()));
  hook.attach_point = point;
  bpf_tc_opts place = {};
  place.sz = sizeof place;
  place.prog_fd = fd;
  place.priority = 7000;
  (void)bpf_tc_hook_create(&hook);  // another program's may be there
  const int rc = bpf_tc_attach(&hook, &place);
  close(fd);
  return rc == 0 ? absl::OkStatus() : absl::ErrnoToStatus(-rc, "bpf_tc_attach");
}

}  // namespace cw::lab
