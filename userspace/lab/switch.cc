// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/switch.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "lab_switch.skel.h"

namespace cw::lab {
namespace {

constexpr uint32_t kTcHandle = 1;
constexpr uint32_t kTcPriority = 1;

// A map by id, checked by name because ids are reused in the long run.
absl::StatusOr<int> OpenMap(uint32_t id, const char* name) {
  int fd = bpf_map_get_fd_by_id(id);
  if (fd < 0) return absl::NotFoundError(absl::StrCat("the lab's BPF map ", name, " is gone: ", std::strerror(errno)));
  bpf_map_info info = {};
  uint32_t size = sizeof(info);
  if (bpf_obj_get_info_by_fd(fd, &info, &size) || std::strcmp(info.name, name)) {
    close(fd);
    return absl::NotFoundError(absl::StrCat("BPF map ", id, " is not the lab's ", name));
  }
  return fd;
}

template <typename Value>
absl::StatusOr<Value*> MapArray(uint32_t id, const char* name, int entries, int protection) {
  absl::StatusOr<int> fd = OpenMap(id, name);
  if (!fd.ok()) return fd.status();
  void* memory = mmap(nullptr, entries * sizeof(Value), protection, MAP_SHARED, *fd, 0);
  absl::Status status = absl::ErrnoToStatus(errno, absl::StrCat("mmap of BPF map ", name));
  close(*fd);
  if (memory == MAP_FAILED) return status;
  return static_cast<Value*>(memory);
}

absl::StatusOr<uint32_t> IdOf(const bpf_map* map) {
  bpf_map_info info = {};
  uint32_t size = sizeof(info);
  if (bpf_obj_get_info_by_fd(bpf_map__fd(map), &info, &size)) return absl::ErrnoToStatus(errno, bpf_map__name(map));
  return info.id;
}

absl::Status AttachTc(int ifindex, bpf_tc_attach_point point, int program_fd) {
  LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = ifindex, .attach_point = point);
  LIBBPF_OPTS(bpf_tc_opts, opts, .prog_fd = program_fd, .handle = kTcHandle, .priority = kTcPriority);
  if (int error = bpf_tc_attach(&hook, &opts)) {
    return absl::ErrnoToStatus(-error, absl::StrCat("attach a switch program to interface ", ifindex));
  }
  return absl::OkStatus();
}

absl::Status CreateClsact(int ifindex) {
  LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = ifindex,
              .attach_point = static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS));
  if (int error = bpf_tc_hook_create(&hook)) {
    return absl::ErrnoToStatus(-error, absl::StrCat("add clsact to interface ", ifindex));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> ProgramOn(int ifindex, bpf_tc_attach_point point) {
  LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = ifindex, .attach_point = point);
  LIBBPF_OPTS(bpf_tc_opts, opts, .handle = kTcHandle, .priority = kTcPriority);
  if (int error = bpf_tc_query(&hook, &opts)) {
    return absl::ErrnoToStatus(-error, absl::StrCat("find the switch program of interface ", ifindex));
  }
  int fd = bpf_prog_get_fd_by_id(opts.prog_id);
  if (fd < 0) return absl::ErrnoToStatus(errno, "open a switch program");
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SwitchMaps>> SwitchMaps::Open(const SwitchMapIds& ids) {
  std::unique_ptr<SwitchMaps> maps(new SwitchMaps);
  auto config = MapArray<lab_link_config>(ids.config, "lab_config", LAB_MAX_DIRS, PROT_READ | PROT_WRITE);
  if (!config.ok()) return config.status();
  maps->config_ = *config;
  auto links = MapArray<lab_link_counters>(ids.links, "lab_links", LAB_MAX_DIRS, PROT_READ);
  if (!links.ok()) return links.status();
  maps->links_ = *links;
  auto sums = MapArray<lab_totals>(ids.sums, "lab_sums", 1, PROT_READ);
  if (!sums.ok()) return sums.status();
  maps->sums_ = *sums;
  auto flows = OpenMap(ids.flows, "lab_flows");
  if (!flows.ok()) return flows.status();
  maps->flows_fd_ = *flows;
  return maps;
}

SwitchMaps::~SwitchMaps() {
  if (config_) munmap(config_, LAB_MAX_DIRS * sizeof(*config_));
  if (links_) munmap(links_, LAB_MAX_DIRS * sizeof(*links_));
  if (sums_) munmap(sums_, sizeof(*sums_));
  if (flows_fd_ >= 0) close(flows_fd_);
}

void SwitchMaps::SetFaultWord(int direction, uint64_t word) {
  std::atomic_ref<__u64>(config_[direction].fault).store(word, std::memory_order_seq_cst);
}

uint64_t SwitchMaps::FaultWord(int direction) const {
  return *const_cast<const volatile __u64*>(&config_[direction].fault);
}

lab_link_counters SwitchMaps::Counters(int direction) const {
  const volatile lab_link_counters& from = links_[direction];
  lab_link_counters to;
  // Drops before what they are a part of: a reader never sees more drops than packets.
  to.fault_drops = from.fault_drops;
  to.fault_drop_bytes = from.fault_drop_bytes;
  to.ce_marks = from.ce_marks;
  to.probe_packets = from.probe_packets;
  to.carried_packets = from.carried_packets;
  to.carried_bytes = from.carried_bytes;
  to.offered_packets = from.offered_packets;
  to.offered_bytes = from.offered_bytes;
  return to;
}

uint64_t SwitchMaps::UncountedFlowPackets() const {
  return static_cast<const volatile lab_totals*>(sums_)->uncounted_flow_packets;
}

absl::StatusOr<std::vector<std::pair<lab_flow_key, lab_flow_counters>>> SwitchMaps::Flows() const {
  std::vector<std::pair<lab_flow_key, lab_flow_counters>> flows;
  std::vector<lab_flow_key> keys(1024);
  std::vector<lab_flow_counters> values(keys.size());
  uint32_t cursor = 0;
  for (bool first = true;;) {
    uint32_t count = keys.size();
    const int error = bpf_map_lookup_batch(flows_fd_, first ? nullptr : &cursor, &cursor, keys.data(), values.data(),
                                           &count, nullptr);
    if (error && errno == ENOSPC && keys.size() < LAB_MAX_FLOWS) {  // a bucket longer than the batch
      keys.resize(keys.size() * 2);
      values.resize(keys.size());
      flows.clear();
      first = true;
      continue;
    }
    if (error && errno != ENOENT) return absl::ErrnoToStatus(errno, "read the lab's flow counters");
    for (uint32_t i = 0; i < count; ++i) flows.emplace_back(keys[i], values[i]);
    if (error) return flows;  // ENOENT: that was the last batch
    first = false;
  }
}

absl::StatusOr<std::unique_ptr<SwitchPrograms>> SwitchPrograms::Load() {
  std::unique_ptr<SwitchPrograms> programs(new SwitchPrograms);
  programs->skeleton_ = lab_switch__open_and_load();
  if (!programs->skeleton_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the kernel refuses the lab's switch programs: ", std::strerror(errno), " (root? BPF enabled?)"));
  }
  const auto& maps = programs->skeleton_->maps;
  SwitchMapIds& ids = programs->ids_;
  for (auto [map, id] : {std::pair{maps.lab_config, &ids.config}, std::pair{maps.lab_links, &ids.links},
                         std::pair{maps.lab_sums, &ids.sums}, std::pair{maps.lab_flows, &ids.flows}}) {
    absl::StatusOr<uint32_t> found = IdOf(map);
    if (!found.ok()) return found.status();
    *id = *found;
  }
  return programs;
}

SwitchPrograms::~SwitchPrograms() { lab_switch__destroy(skeleton_); }

absl::Status SwitchPrograms::AttachPort(int ifindex, bool xdp) const {
  absl::Status status = CreateClsact(ifindex);
  if (status.ok()) status = AttachTc(ifindex, BPF_TC_INGRESS, bpf_program__fd(skeleton_->progs.lab_ingress));
  if (status.ok()) status = AttachTc(ifindex, BPF_TC_EGRESS, bpf_program__fd(skeleton_->progs.lab_egress));
  if (!status.ok() || !xdp) return status;
  if (int error = bpf_xdp_attach(ifindex, bpf_program__fd(skeleton_->progs.lab_pass), XDP_FLAGS_DRV_MODE, nullptr)) {
    return absl::ErrnoToStatus(-error, absl::StrCat("attach XDP to interface ", ifindex));
  }
  return absl::OkStatus();
}

absl::Status AttachPortLike(int like_ifindex, int ifindex) {
  absl::Status status = CreateClsact(ifindex);
  for (bpf_tc_attach_point point : {BPF_TC_INGRESS, BPF_TC_EGRESS}) {
    if (!status.ok()) return status;
    absl::StatusOr<int> program = ProgramOn(like_ifindex, point);
    if (!program.ok()) return program.status();
    status = AttachTc(ifindex, point, *program);
    close(*program);
  }
  return status;
}

absl::Status AttachXdpLike(int like_ifindex, int ifindex) {
  __u32 id = 0;
  int error = bpf_xdp_query_id(like_ifindex, XDP_FLAGS_DRV_MODE, &id);
  const int program = error == 0 && id != 0 ? bpf_prog_get_fd_by_id(id) : -1;
  if (program < 0) return absl::NotFoundError(absl::StrCat("interface ", like_ifindex, " has no XDP program"));
  error = bpf_xdp_attach(ifindex, program, XDP_FLAGS_DRV_MODE, nullptr);
  close(program);
  if (error == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(-error, absl::StrCat("attach XDP to interface ", ifindex));
}

}  // namespace cw::lab
