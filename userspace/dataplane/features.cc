// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/features.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>

#include "absl/strings/str_format.h"
#include "maps/unique_fd.h"
#include "userspace/dataplane/libbpf_log.h"

namespace cw::dataplane {
namespace {

// r0 = 2 (XDP_PASS); exit
constexpr bpf_insn kReturn2[] = {
    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .src_reg = 0, .off = 0, .imm = 2},
    {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0},
};

bool LoadsWithFrags() {
  bpf_prog_load_opts options = {};
  options.sz = sizeof(options);
  options.prog_flags = BPF_F_XDP_HAS_FRAGS;
  maps::UniqueFd fd(bpf_prog_load(BPF_PROG_TYPE_XDP, "cw_frags", "Dual BSD/GPL", kReturn2, 2, &options));
  return fd.ok();
}

bool MmapableArray() {
  bpf_map_create_opts options = {};
  options.sz = sizeof(options);
  options.map_flags = BPF_F_MMAPABLE;
  maps::UniqueFd fd(bpf_map_create(BPF_MAP_TYPE_ARRAY, "cw_mmap", 4, 8, 1, &options));
  return fd.ok();
}

bool HasHelper(bpf_prog_type type, bpf_func_id id) { return libbpf_probe_bpf_helper(type, id, nullptr) == 1; }
bool HasMap(bpf_map_type type) { return libbpf_probe_bpf_map_type(type, nullptr) == 1; }
bool HasProgram(bpf_prog_type type) { return libbpf_probe_bpf_prog_type(type, nullptr) == 1; }

}  // namespace

std::vector<Feature> ProbeFeatures() {
  LibbpfLog quiet;
  constexpr bpf_prog_type xdp = BPF_PROG_TYPE_XDP, tc = BPF_PROG_TYPE_SCHED_CLS;
  return {
      {"program type xdp", "measuring received packets, answering probes", HasProgram(xdp)},
      {"program type sched_cls", "steering", HasProgram(tc)},
      {"program type syscall", "changing a live flow without losing its counters", HasProgram(BPF_PROG_TYPE_SYSCALL)},
      {"map type lru_hash", "flow records", HasMap(BPF_MAP_TYPE_LRU_HASH)},
      {"map type percpu_array", "counters", HasMap(BPF_MAP_TYPE_PERCPU_ARRAY)},
      {"map type ringbuf", "events and samples", HasMap(BPF_MAP_TYPE_RINGBUF)},
      {"map type perf_event_array", "telling an agent that is gone from a starved one",
       HasMap(BPF_MAP_TYPE_PERF_EVENT_ARRAY)},
      {"mmapable arrays", "path states without system calls", MmapableArray()},
      {"XDP frags", "RoCE packets larger than a page in native mode", LoadsWithFrags()},
      {"helper jiffies64 in xdp", "ageing of flows", HasHelper(xdp, BPF_FUNC_jiffies64)},
      {"helper ktime_get_ns in xdp", "one-way delay", HasHelper(xdp, BPF_FUNC_ktime_get_ns)},
      {"helper loop in xdp", "path liveness", HasHelper(xdp, BPF_FUNC_loop)},
      {"helper xdp_load_bytes in xdp", "messages between agents", HasHelper(xdp, BPF_FUNC_xdp_load_bytes)},
      {"helper set_hash_invalid in sched_cls", "steering through software switches",
       HasHelper(tc, BPF_FUNC_set_hash_invalid)},
      {"helper skb_store_bytes in sched_cls", "steering", HasHelper(tc, BPF_FUNC_skb_store_bytes)},
  };
}

std::string MissingFeatures(const std::vector<Feature>& features) {
  std::string out;
  for (const Feature& f : features) {
    if (f.available) continue;
    out += absl::StrFormat("%s%s (needed for %s)", out.empty() ? "; this kernel lacks: " : ", ", f.name, f.purpose);
  }
  return out;
}

}  // namespace cw::dataplane
