// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/xdp_hook.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/if_link.h>
#include <string.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "maps/names.h"
#include "userspace/dataplane/libbpf_log.h"
#include "userspace/dataplane/pinned_link.h"

namespace cw::dataplane {
namespace {

struct Attached {
  uint32_t program = 0;  // id; 0 = nothing is attached
  XdpMode mode = XdpMode::kNative;
};

absl::StatusOr<Attached> QueryXdp(uint32_t ifindex) {
  LibbpfLog quiet;
  LIBBPF_OPTS(bpf_xdp_query_opts, options);
  const int rc = bpf_xdp_query(static_cast<int>(ifindex), 0, &options);
  if (rc != 0) return absl::ErrnoToStatus(-rc, absl::StrFormat("ask what XDP program is on interface %u", ifindex));
  Attached out;
  for (uint32_t id : {options.prog_id, options.drv_prog_id, options.hw_prog_id, options.skb_prog_id}) {
    if (out.program == 0) out.program = id;
  }
  if (out.program != 0 && out.program == options.skb_prog_id) out.mode = XdpMode::kGeneric;
  return out;
}

// The instance on whose pinned maps this program works; "" when there is none.
std::string InstanceOf(const ProgramInfo& program, const PinFolder& ours) {
  std::error_code error;
  const auto root = std::filesystem::path(ours.path()).parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(root, error)) {
    const auto map = maps::BpfMap::OpenPinned(entry.path() / CW_MAP_COUNTERS);
    if (map.ok() && std::binary_search(program.map_ids.begin(), program.map_ids.end(), map->id())) {
      return entry.path().filename();
    }
  }
  return "";
}

absl::Status Foreign(uint32_t ifindex, uint32_t program_id, const PinFolder& pins) {
  const auto info = GetProgramInfoById(program_id);
  if (info.ok() && info->name == CW_PROG_XDP) {
    const std::string instance = InstanceOf(*info, pins);
    return absl::AlreadyExistsError(absl::StrFormat(
        "interface %u is served by another instance of cwfabric%s: its XDP program %s is attached. Stop that agent and "
        "detach it first",
        ifindex, instance.empty() ? "" : " (" + instance + ")", DescribeProgram(program_id)));
  }
  return absl::AlreadyExistsError(absl::StrFormat(
      "interface %u has an XDP program of another owner: %s. It is left alone; detach it first if it is not needed",
      ifindex, DescribeProgram(program_id)));
}

absl::Status ExchangeProgram(ProgramSet& programs, const PinnedLink& link, XdpAttachment& out) {
  LibbpfLog quiet;
  if (bpf_link_update(link.fd.get(), programs.xdp_fd(), nullptr) == 0) return absl::OkStatus();
  const int with_frags = errno;
  const auto plain = programs.PlainXdpFd();
  if (!plain.ok()) return plain.status();
  if (bpf_link_update(link.fd.get(), *plain, nullptr) != 0) {
    return absl::ErrnoToStatus(with_frags,
                               absl::StrFormat("exchange the XDP program of interface %u", link.info.ifindex));
  }
  out.frags = false;
  return absl::OkStatus();
}

// The program that is bound to the NIC; false, with the reason in out: it cannot be.
bool TryBound(ProgramSet& programs, uint32_t ifindex, const std::function<bool(int program)>& use, XdpAttachment& out) {
  LibbpfLog quiet;
  const auto bound = programs.LoadBoundXdp(ifindex);
  if (!bound.ok()) {
    out.stamps_note = std::string(bound.status().message());
    return false;
  }
  if (!use(bound->fd.get())) {
    out.stamps_note = absl::StrFormat("the driver refuses the program that is bound to it: %s", strerror(errno));
    return false;
  }
  out.nic_stamps = true;
  out.frags = bound->frags;
  if (!out.frags) out.warning = "native XDP without frags: needs frames smaller than a page";
  return true;
}

// A fresh link in the best mode that the driver takes.
absl::StatusOr<XdpAttachment> CreateLink(ProgramSet& programs, const PinFolder& pins, uint32_t ifindex,
                                         bool nic_stamps) {
  struct Way {
    XdpMode mode;
    bool frags;
  };
  XdpAttachment stamped;
  const auto create = [&](int program) {
    LIBBPF_OPTS(bpf_link_create_opts, options, .flags = XDP_FLAGS_DRV_MODE);
    stamped.link.reset(bpf_link_create(program, static_cast<int>(ifindex), BPF_XDP, &options));
    return stamped.link.ok();
  };
  if (nic_stamps && TryBound(programs, ifindex, create, stamped)) return stamped;
  std::string refusals;
  int last = 0;
  for (const Way& way : {Way{XdpMode::kNative, true}, Way{XdpMode::kNative, false}, Way{XdpMode::kGeneric, true},
                         Way{XdpMode::kGeneric, false}}) {
    const auto program = way.frags ? absl::StatusOr<int>(programs.xdp_fd()) : programs.PlainXdpFd();
    if (!program.ok()) return program.status();
    LIBBPF_OPTS(bpf_link_create_opts, options,
                .flags = way.mode == XdpMode::kNative ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE);
    LibbpfLog quiet;
    XdpAttachment out;
    out.link.reset(bpf_link_create(*program, static_cast<int>(ifindex), BPF_XDP, &options));
    last = out.link.ok() ? 0 : errno;
    if (out.link.ok()) {
      out.mode = way.mode;
      out.stamps_note = stamped.stamps_note;
      out.frags = way.frags;
      if (way.mode == XdpMode::kGeneric) {
        out.warning = "generic XDP: slower, and times are taken later in the stack";
      } else if (!way.frags) {
        out.warning = "native XDP without frags: needs frames smaller than a page";
      }
      if (!out.warning.empty()) out.warning += absl::StrFormat(" (%s)", refusals);
      return out;
    }
    if (last == EBUSY || last == EEXIST) {  // somebody was quicker, or attached through netlink
      const auto now = QueryXdp(ifindex);
      if (now.ok() && now->program != 0) return Foreign(ifindex, now->program, pins);
    }
    if (last == ENODEV || last == EPERM) break;
    absl::StrAppendFormat(&refusals, "%s%s%s: %s", refusals.empty() ? "" : ", ",
                          way.mode == XdpMode::kNative ? "native" : "generic", way.frags ? " with frags" : "",
                          strerror(last));
  }
  return absl::ErrnoToStatus(last, absl::StrFormat("attach XDP to interface %u: %s", ifindex, refusals));
}

// A program that is not known, and may not be looked at (that takes CAP_SYS_ADMIN), counts as another.
absl::StatusOr<bool> RunsOurs(const ProgramSet& programs, uint32_t id) {
  if (id == programs.xdp_info().id) return true;
  const auto current = GetProgramInfoById(id);
  if (absl::IsPermissionDenied(current.status())) return false;
  if (!current.ok()) return current.status();
  if (!programs.WorksOnTheseMaps(*current)) return false;
  return SameProgram(*current, programs.xdp_info(), programs.constants());
}

}  // namespace

absl::StatusOr<XdpAttachment> AttachXdp(ProgramSet& programs, const PinFolder& pins, uint32_t ifindex,
                                        bool nic_stamps) {
  const std::string path = pins.XdpLink(ifindex);
  auto attached = QueryXdp(ifindex);
  if (!attached.ok()) return attached.status();
  auto link = OpenPinnedLink(path);
  if (link.ok()) {
    // The pin may be of an interface that is gone, or of one with this number in another namespace.
    if (link->info.ifindex == ifindex && attached->program == link->info.program) {
      XdpAttachment out;
      out.mode = attached->mode;
      out.adopted = true;
      const auto exchange = [&](int program) { return bpf_link_update(link->fd.get(), program, nullptr) == 0; };
      if (nic_stamps && out.mode == XdpMode::kNative && TryBound(programs, ifindex, exchange, out)) {
        out.link = std::move(link->fd);
        return out;
      }
      const auto same = RunsOurs(programs, link->info.program);
      if (!same.ok()) return same.status();
      out.frags = link->info.program == programs.xdp_info().id;  // the same code under another id is the plain one
      if (!*same) {
        out.frags = true;
        if (auto s = ExchangeProgram(programs, *link, out); !s.ok()) return s;
      }
      if (out.mode == XdpMode::kGeneric) out.warning = "generic XDP: slower, and times are taken later in the stack";
      out.link = std::move(link->fd);
      return out;
    }
    if (auto s = DetachXdp(pins, ifindex); !s.ok()) return s;
    attached = QueryXdp(ifindex);
    if (!attached.ok()) return attached.status();
  }
  if (attached->program != 0) return Foreign(ifindex, attached->program, pins);
  auto fresh = CreateLink(programs, pins, ifindex, nic_stamps);
  if (!fresh.ok()) return fresh;
  if (auto s = pins.Pin(fresh->link.get(), absl::StrFormat(CW_PIN_XDP_LINK_FMT, ifindex)); !s.ok()) return s;
  return fresh;
}

absl::StatusOr<uint32_t> XdpOf(uint32_t ifindex) {
  const auto attached = QueryXdp(ifindex);
  if (!attached.ok()) return attached.status();
  return attached->program;
}

absl::Status DetachXdp(const PinFolder& pins, uint32_t ifindex) {
  const auto link = OpenPinnedLink(pins.XdpLink(ifindex));
  if (absl::IsNotFound(link.status())) return absl::OkStatus();
  if (!link.ok()) return link.status();
  if (auto s = DetachLink(link->fd.get()); !s.ok()) return s;
  return pins.Unpin(absl::StrFormat(CW_PIN_XDP_LINK_FMT, ifindex));
}

}  // namespace cw::dataplane
