// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/tc_hook.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_format.h"
#include "maps/names.h"
#include "userspace/dataplane/libbpf_log.h"
#include "userspace/dataplane/netdev.h"

namespace cw::dataplane {
namespace {

bpf_tc_hook Hook(uint32_t ifindex, bpf_tc_attach_point point) {
  bpf_tc_hook hook = {};
  hook.sz = sizeof(hook);
  hook.ifindex = static_cast<int>(ifindex);
  hook.attach_point = point;
  return hook;
}

bpf_tc_attach_point Point(TcSide side) { return side == TcSide::kEgress ? BPF_TC_EGRESS : BPF_TC_INGRESS; }

const char* Name(TcSide side) { return side == TcSide::kEgress ? "egress" : "ingress"; }

bpf_tc_opts Place() {
  bpf_tc_opts options = {};
  options.sz = sizeof(options);
  options.handle = CW_TC_HANDLE;
  options.priority = CW_TC_PRIORITY;
  return options;
}

// Id of the BPF program in our place, 0 when there is no such filter.
absl::StatusOr<uint32_t> ProgramInPlace(TcSide side, uint32_t ifindex) {
  LibbpfLog quiet;
  const bpf_tc_hook hook = Hook(ifindex, Point(side));
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
        Name(side), CW_TC_PRIORITY, ifindex));
  }
  return absl::ErrnoToStatus(-rc, absl::StrFormat("ask for the tc filters of interface %u", ifindex));
}

absl::Status EnsureClsact(uint32_t ifindex, const std::string& marker) {
  LibbpfLog log;
  bpf_tc_hook hook = Hook(ifindex, BPF_TC_EGRESS);
  const int rc = bpf_tc_hook_create(&hook);
  if (rc == -EEXIST) return absl::OkStatus();
  if (rc != 0) return absl::ErrnoToStatus(-rc, absl::StrFormat("add clsact to interface %u: %s", ifindex, log.text()));
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(marker).parent_path(), error);
  std::ofstream(marker) << "clsact of this interface was added by cwfabric\n";
  return absl::OkStatus();
}

absl::Status RemoveClsactIfOurs(uint32_t ifindex, const std::string& marker) {
  std::error_code error;
  if (!std::filesystem::exists(marker, error)) return absl::OkStatus();
  const auto left = CountClsactFilters(ifindex);
  if (left.ok() && *left == 0) {
    LibbpfLog log;
    bpf_tc_hook hook = Hook(ifindex, static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS));
    const int rc = bpf_tc_hook_destroy(&hook);
    if (rc != 0 && rc != -ENOENT && rc != -ENODEV && rc != -EINVAL) {
      return absl::ErrnoToStatus(-rc, absl::StrFormat("remove clsact from interface %u: %s", ifindex, log.text()));
    }
  }
  unlink(marker.c_str());
  return absl::OkStatus();
}

}  // namespace

absl::Status AttachTc(const ProgramSet& programs, TcSide side, uint32_t ifindex, const std::string& clsact_marker) {
  if (auto s = EnsureClsact(ifindex, clsact_marker); !s.ok()) return s;
  const auto undo = [&](absl::Status why) {
    RemoveClsactIfOurs(ifindex, clsact_marker).IgnoreError();
    return why;
  };
  const auto present = ProgramInPlace(side, ifindex);
  if (!present.ok()) return undo(present.status());
  const bool egress = side == TcSide::kEgress;
  if (*present == (egress ? programs.tc_info() : programs.tc_in_info()).id) return absl::OkStatus();
  bpf_tc_opts options = Place();
  if (*present != 0) {
    const auto info = GetProgramInfoById(*present);
    if (!programs.Knows(*present) && (!info.ok() || !programs.UsesOurMaps(*info))) {
      return undo(absl::AlreadyExistsError(absl::StrFormat(
          "%s priority %u of interface %u has a tc program of another owner: %s. It is left alone; remove it first "
          "if it is not needed",
          Name(side), CW_TC_PRIORITY, ifindex, DescribeProgram(*present))));
    }
    options.flags = BPF_TC_F_REPLACE;
  }
  options.prog_fd = egress ? programs.tc_fd() : programs.tc_in_fd();
  LibbpfLog log;
  const bpf_tc_hook hook = Hook(ifindex, Point(side));
  const int rc = bpf_tc_attach(&hook, &options);
  if (rc == 0) return absl::OkStatus();
  return undo(
      absl::ErrnoToStatus(-rc, absl::StrFormat("attach tc %s to interface %u: %s", Name(side), ifindex, log.text())));
}

absl::Status DetachTc(TcSide side, uint32_t ifindex,
                      absl::FunctionRef<bool(uint32_t id, const ProgramInfo* info)> owned_by,
                      const std::string& clsact_marker) {
  const auto present = ProgramInPlace(side, ifindex);
  if (present.ok() && *present != 0) {
    const auto info = GetProgramInfoById(*present);
    if (owned_by(*present, info.ok() ? &*info : nullptr)) {
      LibbpfLog log;
      const bpf_tc_hook hook = Hook(ifindex, Point(side));
      const bpf_tc_opts options = Place();
      const int rc = bpf_tc_detach(&hook, &options);
      if (rc != 0 && rc != -ENOENT && rc != -ENODEV) {
        return absl::ErrnoToStatus(-rc, absl::StrFormat("detach tc from interface %u: %s", ifindex, log.text()));
      }
    }
  }
  return side == TcSide::kEgress ? RemoveClsactIfOurs(ifindex, clsact_marker) : absl::OkStatus();
}

}  // namespace cw::dataplane
