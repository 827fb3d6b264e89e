// SPDX-License-Identifier: Apache-2.0
#include "userspace/rdma/qp_monitor.h"

#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "qp_watch.skel.h"

namespace cw::rdma {
namespace {

constexpr int kDeepest = 4;  // unnamed structs and unions within one another

// In bytes; looks into unnamed members, too.
std::optional<uint32_t> OffsetOf(const btf* types, int id, const std::string& member, int depth = 0) {
  const btf_type* type = btf__type_by_id(types, static_cast<uint32_t>(id));
  if (type == nullptr || !btf_is_composite(type) || depth > kDeepest) return std::nullopt;
  const btf_member* members = btf_members(type);
  for (uint32_t i = 0; i < btf_vlen(type); ++i) {
    const char* name = btf__name_by_offset(types, members[i].name_off);
    const uint32_t bits = btf_member_bit_offset(type, i);
    if (name != nullptr && member == name && bits % 8 == 0) return bits / 8;
    if (name != nullptr && *name != '\0') continue;
    const int inner_id = btf__resolve_type(types, members[i].type);
    if (const auto inner = OffsetOf(types, inner_id, member, depth + 1)) return bits / 8 + *inner;
  }
  return std::nullopt;
}

class Layout {
 public:
  explicit Layout(const btf* types) : types_(types) {}
  // path: struct, then its member; further pairs for members of members.
  uint32_t Of(std::initializer_list<std::pair<const char*, const char*>> path) {
    uint32_t sum = 0;
    for (const auto& [type, member] : path) {
      const int id = btf__find_by_name_kind(types_, type, BTF_KIND_STRUCT);
      const std::optional<uint32_t> offset = id < 0 ? std::nullopt : OffsetOf(types_, id, member);
      if (!offset && missing_.empty()) missing_ = absl::StrCat("struct ", type, " has no ", member);
      sum += offset.value_or(0);
    }
    return sum;
  }
  const std::string& missing() const { return missing_; }

 private:
  const btf* types_;
  std::string missing_;
};

}  // namespace

absl::StatusOr<cw_qp_layout> ReadQpLayout(const std::string& btf_folder) {
  btf* base = btf__parse((btf_folder + "/vmlinux").c_str(), nullptr);
  if (base == nullptr) return absl::NotFoundError("this kernel tells no types (no " + btf_folder + "/vmlinux)");
  const auto free_base = absl::MakeCleanup([base] { btf__free(base); });
  btf* types = btf__parse_split((btf_folder + "/ib_core").c_str(), base);
  if (types == nullptr) {
    return absl::NotFoundError("the types of the module ib_core are not there (no " + btf_folder +
                               "/ib_core): it is not loaded, or was built without");
  }
  const auto free_types = absl::MakeCleanup([types] { btf__free(types); });
  Layout layout(types);
  const cw_qp_layout found = {
      .qp_device = layout.Of({{"ib_qp", "device"}}),
      .qp_num = layout.Of({{"ib_qp", "qp_num"}}),
      .qp_type = layout.Of({{"ib_qp", "qp_type"}}),
      .device_name = layout.Of({{"ib_device", "name"}}),
      .attr_state = layout.Of({{"ib_qp_attr", "qp_state"}}),
      .attr_dest_qpn = layout.Of({{"ib_qp_attr", "dest_qp_num"}}),
      .attr_dgid = layout.Of({{"ib_qp_attr", "ah_attr"}, {"rdma_ah_attr", "grh"}, {"ib_global_route", "dgid"}}),
      .attr_label = layout.Of({{"ib_qp_attr", "ah_attr"}, {"rdma_ah_attr", "grh"}, {"ib_global_route", "flow_label"}}),
  };
  if (!layout.missing().empty()) return absl::NotFoundError("this kernel's " + layout.missing());
  return found;
}

int QpMonitor::OnEvent(void* self, void* data, size_t size) {
  if (size < sizeof(cw_ev_qp)) return 0;
  cw_ev_qp event;
  std::memcpy(&event, data, sizeof(event));
  event.comm[sizeof(event.comm) - 1] = '\0';
  event.device[sizeof(event.device) - 1] = '\0';
  static_cast<QpMonitor*>(self)->tell_(event);
  return 0;
}

absl::StatusOr<std::unique_ptr<QpMonitor>> QpMonitor::Open(Callback tell, const std::string& btf_folder) {
  const absl::StatusOr<cw_qp_layout> layout = ReadQpLayout(btf_folder);
  if (!layout.ok()) return layout.status();
  std::unique_ptr<QpMonitor> monitor(new QpMonitor(std::move(tell)));
  monitor->programs_ = qp_watch__open();
  if (monitor->programs_ == nullptr) return absl::ErrnoToStatus(errno, "the programs at ib_core cannot be opened");
  std::memcpy(const_cast<cw_qp_layout*>(&monitor->programs_->rodata->cw_layout), &*layout, sizeof(*layout));
  if (const int error = qp_watch__load(monitor->programs_); error != 0)
    return absl::ErrnoToStatus(-error, "the programs at ib_core cannot be loaded");
  if (const int error = qp_watch__attach(monitor->programs_); error != 0)
    return absl::ErrnoToStatus(-error, "ib_core's functions cannot be watched (kprobes, CAP_PERFMON)");
  monitor->ring_ = ring_buffer__new(bpf_map__fd(monitor->programs_->maps.cw_qp_ring), OnEvent, monitor.get(), nullptr);
  if (monitor->ring_ == nullptr) return absl::ErrnoToStatus(errno, "the ring of queue pairs cannot be read");
  return monitor;
}

QpMonitor::~QpMonitor() {
  ring_buffer__free(ring_);
  qp_watch__destroy(programs_);
}

int QpMonitor::fd() const { return ring_buffer__epoll_fd(ring_); }

void QpMonitor::Poll() { ring_buffer__consume(ring_); }

}  // namespace cw::rdma
