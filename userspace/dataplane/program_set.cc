// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/program_set.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "maps/names.h"
#include "maps/views.h"
#include "userspace/dataplane/bpf_object_file.h"
#include "userspace/dataplane/icrc_table.h"

namespace cw::dataplane {
namespace {

constexpr char kLabClockKnob[] = "cw_lab_clock_on";
constexpr char kLabNicKnob[] = "cw_lab_nic_on";
constexpr char kNicFailoverKnob[] = "cw_nic_failover_on";
constexpr uint32_t kNeverSample = 32;

// Constants of every program are blinded: that makes copies of programs.
bool JitHardened() {
  std::ifstream file("/proc/sys/net/core/bpf_jit_harden");
  int level = 0;
  return file >> level && level >= 2;
}

// NotFound when there is no such pin.
absl::StatusOr<maps::BpfMap> PinnedMap(const PinFolder& pins, const std::string& name) {
  auto map = maps::BpfMap::OpenPinned(pins.File(name));
  if (map.ok() && name == CW_MAP_CTL && map->shape().value_size == sizeof(cw_ctl)) {
    const uint32_t index = 0;
    cw_ctl ctl;
    if (auto s = map->Lookup(&index, &ctl); !s.ok()) return s;
    if (ctl.abi_version != CW_ABI_VERSION) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "%s was made by a release of cwfabric with map layout %u, this one has layout %u. Start that release, or "
          "remove the instance's dataplane first (its flows' counters and steering are lost), then start again",
          pins.path(), ctl.abi_version, CW_ABI_VERSION));
    }
  }
  return map;
}

// The state that the programs need before they see a first packet. The agent sets the rest.
absl::Status InitControl(const maps::BpfMap& map) {
  cw_ctl ctl = {};
  ctl.abi_version = CW_ABI_VERSION;
  ctl.mode = CW_MODE_OBSERVE;
  ctl.sample_level_tx = kNeverSample;
  ctl.sample_level_rx = kNeverSample;
  ctl.miss_limit = 3;
  ctl.patience_ns = 15'000'000;
  ctl.revive_limit = 8;
  ctl.move_gap_ns = 1000000;
  const uint32_t index = 0;
  return map.Update(&index, &ctl);
}

absl::Status SetConstants(BpfObjectFile& file, const LoadSpec& spec) {
  if (auto s = file.SetConstant(kIcrcTable, IcrcTableBytes()); !s.ok()) return s;
  for (auto [wanted, knob] :
       {std::pair{!spec.lab_clock.empty(), kLabClockKnob}, std::pair{!spec.lab_nic.empty(), kLabNicKnob},
        std::pair{spec.nic_failover, kNicFailoverKnob}}) {
    if (!wanted) continue;
    if (auto s = file.SetConstant(knob, absl::string_view("\1", 1)); !s.ok()) return s;
  }
  return absl::OkStatus();
}

// The lab's maps are pinned by the lab: "" = none.
const std::string* LabPin(const LoadSpec& spec, absl::string_view name) {
  return name == CW_MAP_LAB_CLOCK ? &spec.lab_clock : name == CW_MAP_LAB_NIC ? &spec.lab_nic : nullptr;
}

// Maps and constants of one load. Returns the maps that were pinned already, by name.
absl::StatusOr<std::map<std::string, bool>> Prepare(BpfObjectFile& file, const LoadSpec& spec, const PinFolder& pins,
                                                    std::vector<std::string>& notes) {
  std::map<std::string, bool> reused;
  for (bpf_map* map : file.Maps()) {
    const std::string name = bpf_map__name(map);  // a copy: libbpf replaces it on reuse
    absl::StatusOr<maps::BpfMap> existing = absl::NotFoundError("");
    if (const std::string* pin = LabPin(spec, name); pin != nullptr) {
      if (pin->empty()) {
        if (auto s = file.LeaveOut(map); !s.ok()) return s;
        continue;
      }
      existing = maps::BpfMap::OpenPinned(*pin);
      if (!existing.ok()) return existing.status();
    } else {
      existing = PinnedMap(pins, name);
    }
    const auto wanted = spec.map_sizes.find(name);
    if (existing.ok()) {
      if (auto s = file.Reuse(map, *existing); !s.ok()) return s;
      reused[name] = true;
      if (wanted != spec.map_sizes.end() && wanted->second != existing->shape().max_entries) {
        notes.push_back(
            absl::StrFormat("%s keeps its size of %u entries (%u configured): remove the dataplane to resize", name,
                            existing->shape().max_entries, wanted->second));
      }
      continue;
    }
    if (!absl::IsNotFound(existing.status())) return existing.status();
    reused[name] = false;
    if (wanted == spec.map_sizes.end()) continue;
    if (auto s = file.SetMaxEntries(map, wanted->second); !s.ok()) return s;
  }
  if (auto s = SetConstants(file, spec); !s.ok()) return s;
  return reused;
}

}  // namespace

absl::StatusOr<ProgramSet> ProgramSet::Load(const LoadSpec& spec, const PinFolder& pins) {
  ProgramSet set(spec, pins);
  if (auto s = set.LoadObject(); !s.ok()) return s;
  if (auto s = set.PinEverything(); !s.ok()) return s;
  return set;
}

absl::Status ProgramSet::LoadObject() {
  auto file = BpfObjectFile::Open(spec_.elf);
  if (!file.ok()) return file.status();
  const auto reused = Prepare(*file, spec_, pins_, notes_);
  if (!reused.ok()) return reused.status();
  if (auto s = file->Load(); !s.ok()) return s;
  for (bpf_map* map : file->Maps()) {
    const auto known = reused->find(bpf_map__name(map));
    if (known == reused->end()) continue;  // left out
    auto copy = maps::BpfMap::Duplicate(bpf_map__fd(map));
    if (!copy.ok()) return copy.status();
    if (known->first == CW_MAP_CTL) {
      adopted_ = known->second;
      if (auto s = adopted_ ? absl::OkStatus() : InitControl(*copy); !s.ok()) return s;
    }
    maps_.emplace(known->first, *std::move(copy));
  }
  if (auto s = TakeConstants(*file); !s.ok()) return s;
  for (auto [name, fd, info] : {std::tuple{CW_PROG_XDP, &xdp_, &xdp_info_}, std::tuple{CW_PROG_TC, &tc_, &tc_info_},
                                std::tuple{CW_PROG_TC_IN, &tc_in_, &tc_in_info_}}) {
    auto loaded = file->ProgramFd(name);
    if (!loaded.ok()) return loaded.status();
    *fd = *std::move(loaded);
    auto got = GetProgramInfo(fd->get());
    if (!got.ok()) return got.status();
    *info = *std::move(got);
    if (auto s = TakePinnedProgram(name, *fd, *info); !s.ok()) return s;
  }
  return absl::OkStatus();
}

// Those of the object just loaded first.
absl::Status ProgramSet::TakeConstants(const BpfObjectFile& file) {
  if (bpf_map* map = file.ConstantsMap()) {
    auto copy = maps::BpfMap::Duplicate(bpf_map__fd(map));
    if (!copy.ok()) return copy.status();
    constants_.push_back(*std::move(copy));
  }
  auto before = maps::BpfMap::OpenPinned(pins_.File(CW_MAP_RODATA));
  if (before.ok()) constants_.push_back(*std::move(before));
  return absl::OkStatus();
}

// Goes on with the pinned program when it is the same code with the same constants on the same maps, so that nothing
// that is attached has to change.
absl::Status ProgramSet::TakePinnedProgram(const char* name, maps::UniqueFd& fd, ProgramInfo& info) {
  maps::UniqueFd pinned(bpf_obj_get(pins_.File(name).c_str()));
  if (!pinned.ok()) {
    if (errno == ENOENT) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, absl::StrFormat("open the pinned program %s", pins_.File(name)));
  }
  auto old = GetProgramInfo(pinned.get());
  if (!old.ok()) return old.status();
  earlier_.push_back(old->id);
  const auto same = SameProgram(*old, info, constants_);
  if (!same.ok()) return same.status();
  const auto ours = [&](uint32_t id) {
    return std::any_of(maps_.begin(), maps_.end(), [&](const auto& m) { return m.second.id() == id; });
  };
  const auto used = [&](const ProgramInfo& p) { return std::count_if(p.map_ids.begin(), p.map_ids.end(), ours); };
  if (*same && used(*old) == used(info)) {
    fd = std::move(pinned);
    info = *std::move(old);
    return absl::OkStatus();
  }
  replaced_ = true;
  notes_.push_back(
      absl::StrFormat("%s (id %u) is replaced by this release's (id %u); maps are kept", name, old->id, info.id));
  return absl::OkStatus();
}

// The control record last: where it is pinned, all maps are.
absl::Status ProgramSet::PinEverything() {
  if (auto s = pins_.Create(); !s.ok()) return s;
  const std::vector<std::string> before = pins_.Names();
  std::vector<std::string> fresh;
  auto undo = absl::MakeCleanup([&] {
    for (const std::string& name : fresh) pins_.Unpin(name).IgnoreError();
    if (before.empty()) pins_.RemoveAll().IgnoreError();
  });
  const auto pin = [&](int fd, const std::string& name) {
    auto s = pins_.Pin(fd, name);
    if (s.ok()) fresh.push_back(name);
    return s;
  };
  std::vector<std::string> order;
  for (const auto& [name, map] : maps_) {
    const bool there = std::find(before.begin(), before.end(), name) != before.end();
    if (!there && LabPin(spec_, name) == nullptr && name != CW_MAP_CTL) order.push_back(name);
  }
  if (!adopted_) order.push_back(CW_MAP_CTL);
  for (const std::string& name : order) {
    const auto map = maps_.find(name);
    if (map == maps_.end()) return absl::InternalError("the BPF object has no map " + name);
    if (auto s = pin(map->second.fd(), name); !s.ok()) return s;
  }
  for (const auto& [name, fd] :
       {std::pair{CW_PROG_XDP, xdp_.get()}, std::pair{CW_PROG_TC, tc_.get()}, std::pair{CW_PROG_TC_IN, tc_in_.get()}}) {
    if (auto s = pins_.Pin(fd, name); !s.ok()) return s;
  }
  // Those of programs that stay are pinned already.
  const bool pinned = std::find(before.begin(), before.end(), CW_MAP_RODATA) != before.end();
  if (!constants_.empty() && (replaced_ || !pinned)) {
    if (auto s = pins_.Pin(constants_.front().fd(), CW_MAP_RODATA); !s.ok()) return s;
  }
  std::move(undo).Cancel();
  return absl::OkStatus();
}

absl::StatusOr<maps::BpfMap> ProgramSet::Map(const std::string& name) const {
  const auto found = maps_.find(name);
  if (found == maps_.end()) return absl::NotFoundError(absl::StrFormat("the BPF object has no map %s", name));
  return maps::BpfMap::Duplicate(found->second.fd());
}

bool ProgramSet::Knows(uint32_t program_id) const {
  const auto is = [&](uint32_t id) { return id == program_id; };
  return is(xdp_info_.id) || is(tc_info_.id) || is(tc_in_info_.id) || std::any_of(earlier_.begin(), earlier_.end(), is);
}

bool ProgramSet::UsesOurMaps(const ProgramInfo& program) const {
  return std::any_of(maps_.begin(), maps_.end(), [&](const auto& m) {
    return LabPin(spec_, m.first) == nullptr &&
           std::binary_search(program.map_ids.begin(), program.map_ids.end(), m.second.id());
  });
}

absl::StatusOr<int> ProgramSet::PlainXdpFd() {
  if (plain_xdp_.ok()) return plain_xdp_.get();
  auto file = BpfObjectFile::Open(spec_.elf);
  if (!file.ok()) return file.status();
  if (auto s = ReuseMaps(*file); !s.ok()) return s;
  if (auto s = SetConstants(*file, spec_); !s.ok()) return s;
  if (auto s = file->DropFrags(CW_PROG_XDP); !s.ok()) return s;
  if (auto s = file->Load(); !s.ok()) return s;
  auto fd = file->ProgramFd(CW_PROG_XDP);
  if (!fd.ok()) return fd.status();
  plain_xdp_ = *std::move(fd);
  return plain_xdp_.get();
}

absl::Status ProgramSet::ReuseMaps(BpfObjectFile& file) const {
  for (bpf_map* map : file.Maps()) {
    const auto have = maps_.find(bpf_map__name(map));
    auto s = have == maps_.end() ? file.LeaveOut(map) : file.Reuse(map, have->second);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<ProgramSet::BoundXdp> ProgramSet::LoadBoundXdp(uint32_t ifindex) {
  if (JitHardened()) {
    return absl::FailedPreconditionError(
        "net.core.bpf_jit_harden is 2: such kernels may move a program that is bound to a NIC, and crash later");
  }
  auto with_frags = LoadBoundXdp(ifindex, true);
  if (with_frags.ok()) return BoundXdp{*std::move(with_frags), true};
  if (absl::IsFailedPrecondition(with_frags.status())) return with_frags.status();
  auto plain = LoadBoundXdp(ifindex, false);
  if (!plain.ok()) return plain.status();
  return BoundXdp{*std::move(plain), false};
}

absl::StatusOr<maps::UniqueFd> ProgramSet::LoadBoundXdp(uint32_t ifindex, bool frags) {
  auto file = BpfObjectFile::Open(spec_.bound_elf);
  if (!file.ok()) return file.status();
  if (auto s = ReuseMaps(*file); !s.ok()) return s;
  LoadSpec spec = spec_;
  spec.lab_nic.clear();  // it has no such knob
  if (auto s = SetConstants(*file, spec); !s.ok()) return s;
  if (auto s = file->BindOnly(CW_PROG_XDP, ifindex); !s.ok()) return s;
  if (auto s = frags ? absl::OkStatus() : file->DropFrags(CW_PROG_XDP); !s.ok()) return s;
  if (auto s = file->Load(); !s.ok()) return s;
  auto fd = file->ProgramFd(CW_PROG_XDP);
  if (!fd.ok()) return fd.status();
  const auto info = GetProgramInfo(fd->get());
  if (!info.ok()) return info.status();
  const size_t given = file->Instructions(CW_PROG_XDP);
  // It grew only into the room that it has when it is no longer than it was (bpf/cwfabric.bpf.c).
  if (info->translated_insns == 0 || info->translated_insns > given) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the program for this NIC has grown from %u to %u instructions in the kernel, which may have "
                        "moved it: it is not used",
                        given, info->translated_insns));
  }
  return *std::move(fd);
}

}  // namespace cw::dataplane
