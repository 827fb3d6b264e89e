// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/tc_filters.h"

#include <bpf/libbpf.h>
#include <errno.h>

#include "absl/strings/str_format.h"
#include "maps/names.h"
#include "userspace/dataplane/libbpf_log.h"
#include "userspace/dataplane/netdev.h"
#include "userspace/dataplane/tc_dump.h"

namespace cw::dataplane {
namespace {

bpf_tc_hook Hook(TcSide side, uint32_t ifindex) {
  bpf_tc_hook hook = {};
  hook.sz = sizeof(hook);
  hook.ifindex = static_cast<int>(ifindex);
  hook.attach_point = side == TcSide::kEgress ? BPF_TC_EGRESS : BPF_TC_INGRESS;
  return hook;
}

bpf_tc_opts Place() {
  bpf_tc_opts options = {};
  options.sz = sizeof(options);
  options.handle = CW_TC_HANDLE;
  options.priority = CW_TC_PRIORITY;
  return options;
}

// As the filter calls it: libbpf's "NAME:[ID]".
std::string FilterName(TcSide side, uint32_t ifindex, uint32_t id) {
  const auto filters = DumpTcPrograms(ifindex, side == TcSide::kEgress);
  for (const TcProgram& filter : filters.value_or(std::vector<TcProgram>())) {
    if (filter.id == id) return filter.name.substr(0, filter.name.find(":["));
  }
  return "";
}

absl::Status EnsureClsact(uint32_t ifindex) {
  LibbpfLog log;
  bpf_tc_hook hook = Hook(TcSide::kEgress, ifindex);
  const int rc = bpf_tc_hook_create(&hook);
  if (rc == 0 || rc == -EEXIST) return absl::OkStatus();
  return absl::ErrnoToStatus(-rc, absl::StrFormat("add clsact to interface %u: %s", ifindex, log.text()));
}

}  // namespace

absl::StatusOr<uint32_t> FilterInPlace(TcSide side, uint32_t ifindex) {
  LibbpfLog quiet;
  const bpf_tc_hook hook = Hook(side, ifindex);
  bpf_tc_opts options = Place();
  const int rc = bpf_tc_query(&hook, &options);
  if (rc == 0) return options.prog_id;
  if (rc == -ENOENT) return 0u;
  if (rc == -EINVAL) {  // the kernel's answer both without a clsact qdisc and for a filter of another kind
    const auto filters = CountClsactFilters(ifindex, side == TcSide::kEgress);
    if (!filters.ok() || *filters == 0) return 0u;
    return absl::AlreadyExistsError(absl::StrFormat(
        "a tc filter of another kind holds %s priority %u of interface %u; it is left alone: move it to another "
        "priority first",
        NameOf(side), CW_TC_PRIORITY, ifindex));
  }
  return absl::ErrnoToStatus(-rc, absl::StrFormat("ask for the tc filters of interface %u", ifindex));
}

bool IsFilterOf(OwnedBy ours, TcSide side, uint32_t ifindex, uint32_t id) {
  const auto info = GetProgramInfoById(id);
  if (info.ok()) return ours(*info);
  return ours(ProgramInfo{.id = id, .name = FilterName(side, ifindex, id)});
}

absl::Status AttachFilter(TcSide side, uint32_t ifindex, int program_fd, uint32_t program_id, OwnedBy ours) {
  if (auto s = EnsureClsact(ifindex); !s.ok()) return s;
  const auto present = FilterInPlace(side, ifindex);
  if (!present.ok()) return present.status();
  if (*present == program_id) return absl::OkStatus();
  bpf_tc_opts options = Place();
  if (*present != 0) {
    if (!IsFilterOf(ours, side, ifindex, *present)) {
      return absl::AlreadyExistsError(absl::StrFormat(
          "%s priority %u of interface %u has a tc program of another owner: %s. It is left alone; remove it first "
          "if it is not needed",
          NameOf(side), CW_TC_PRIORITY, ifindex, DescribeProgram(*present)));
    }
    options.flags = BPF_TC_F_REPLACE;
  }
  options.prog_fd = program_fd;
  LibbpfLog log;
  const bpf_tc_hook hook = Hook(side, ifindex);
  const int rc = bpf_tc_attach(&hook, &options);
  if (rc == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(-rc,
                             absl::StrFormat("attach tc %s to interface %u: %s", NameOf(side), ifindex, log.text()));
}

absl::StatusOr<bool> DetachFilter(TcSide side, uint32_t ifindex, OwnedBy ours) {
  const auto present = FilterInPlace(side, ifindex);
  if (!present.ok() || *present == 0 || !IsFilterOf(ours, side, ifindex, *present)) return false;
  LibbpfLog log;
  const bpf_tc_hook hook = Hook(side, ifindex);
  const bpf_tc_opts options = Place();
  const int rc = bpf_tc_detach(&hook, &options);
  if (rc == 0 || rc == -ENOENT || rc == -ENODEV) return true;
  return absl::ErrnoToStatus(-rc, absl::StrFormat("detach tc from interface %u: %s", ifindex, log.text()));
}

}  // namespace cw::dataplane
