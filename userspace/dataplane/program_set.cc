// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/program_set.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "maps/names.h"
#include "maps/views.h"
#include "userspace/dataplane/bpf_object_file.h"
#include "userspace/dataplane/icrc_table.h"
#include "userspace/dataplane/migration.h"

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

// The first field of every release's control record.
absl::StatusOr<uint32_t> VersionOf(const maps::BpfMap& ctl) {
  const uint32_t index = 0;
  std::vector<uint8_t> record(std::max<size_t>(ctl.shape().value_size, sizeof(uint32_t)));
  if (auto s = ctl.Lookup(&index, record.data()); !s.ok()) return s;
  uint32_t version = 0;
  std::copy_n(record.data(), sizeof(version), reinterpret_cast<uint8_t*>(&version));
  return version;
}

absl::Status UnknownLayout(const PinFolder& pins, uint32_t version) {
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s was made by a release of cwfabric with map layout %u, which did not record it; this one has layout %u. Start "
      "that release, or remove the instance's dataplane first (its flows' counters and steering are lost), then start "
      "again",
      pins.path(), version, CW_ABI_VERSION));
}

// Numbers of the control record, whatever its layout is. NotFound: it has none of that name.
absl::StatusOr<RecordField> CtlField(const maps::BpfMap& ctl, const RecordLayout& layout, absl::string_view name) {
  for (const RecordField& field : layout.fields) {
    if (field.name != name || field.size > sizeof(uint64_t)) continue;
    if (field.offset + field.size <= ctl.shape().value_size) return field;
  }
  return absl::NotFoundError(absl::StrFormat("the control record has no %s", name));
}

std::optional<uint64_t> CtlNumber(const maps::BpfMap& ctl, const RecordLayout& layout, absl::string_view name) {
  const auto field = CtlField(ctl, layout, name);
  const uint32_t index = 0;
  std::vector<uint8_t> record(ctl.shape().value_size);
  if (!field.ok() || !ctl.Lookup(&index, record.data()).ok()) return std::nullopt;
  uint64_t value = 0;
  std::copy_n(record.data() + field->offset, field->size, reinterpret_cast<uint8_t*>(&value));
  return value;
}

absl::Status SetCtlNumber(const maps::BpfMap& ctl, const RecordLayout& layout, absl::string_view name, uint64_t value) {
  const auto field = CtlField(ctl, layout, name);
  if (!field.ok()) return field.status();
  const uint32_t index = 0;
  std::vector<uint8_t> record(ctl.shape().value_size);
  if (auto s = ctl.Lookup(&index, record.data()); !s.ok()) return s;
  std::copy_n(reinterpret_cast<const uint8_t*>(&value), field->size, record.data() + field->offset);
  return ctl.Update(&index, record.data());
}

// The state that the programs need before they see a first packet. The agent sets the rest. An object with other
// records than ours has it from those that are carried over.
absl::Status InitControl(const maps::BpfMap& map) {
  if (map.shape().value_size != sizeof(cw_ctl)) return absl::OkStatus();
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

// Maps and constants of one load, which goes on with the pinned ones. Returns of each map whether it was pinned, by
// name.
absl::StatusOr<std::map<std::string, bool>> Prepare(BpfObjectFile& file, const LoadSpec& spec,
                                                    const std::map<std::string, maps::BpfMap>& pinned,
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
    } else if (const auto have = pinned.find(name); have != pinned.end()) {
      existing = maps::BpfMap::Duplicate(have->second.fd());
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

// All that is pinned by the names of these maps, and those of them that belong together: where a start was cut short, a
// map of that start may have a name already.
absl::Status ProgramSet::FindMaps(const BpfObjectFile& file, const absl::StatusOr<MapRecord>& left) {
  for (bpf_map* declared : file.Maps()) {
    const std::string name = bpf_map__name(declared);
    if (LabPin(spec_, name) != nullptr) continue;
    std::vector<std::string> pins = pins_.Former(name);
    pins.push_back(name);
    for (const std::string& pin : pins) {
      auto map = maps::BpfMap::OpenPinned(pins_.File(pin));
      if (absl::IsNotFound(map.status())) continue;
      if (!map.ok()) return map.status();
      known_maps_.insert(map->id());
      if (pin == name) at_name_[name] = map->id();
      const bool belongs = left.ok() ? left->ids.contains(name) && left->ids.at(name) == map->id() : pin == name;
      if (belongs) pinned_.emplace(name, *std::move(map));
    }
  }
  for (const auto& [name, id] : left.ok() ? left->ids : std::map<std::string, uint32_t>())
    if (!layout_.contains(name)) gone_.push_back(name);
  return absl::OkStatus();
}

absl::Status ProgramSet::FindPinned(const BpfObjectFile& file) {
  absl::StatusOr<MapRecord> left = ReadMapRecord(pins_);
  absl::StatusOr<std::map<std::string, MapLayout>> layouts =
      left.ok() ? LayoutsOf(left->btf) : absl::StatusOr<std::map<std::string, MapLayout>>(left.status());
  if (!layouts.ok()) left = layouts.status();
  if (!left.ok() && !absl::IsNotFound(left.status()))
    notes_.push_back(absl::StrCat("what is pinned is taken for maps of this release's layout: ",
                                  std::string(left.status().message())));
  if (auto s = FindMaps(file, left); !s.ok()) return s;
  const auto ctl = pinned_.find(CW_MAP_CTL);
  if (ctl == pinned_.end()) return absl::OkStatus();
  const auto version = VersionOf(ctl->second);
  if (!version.ok()) return version.status();
  if (!left.ok()) return *version == CW_ABI_VERSION ? absl::OkStatus() : UnknownLayout(pins_, *version);
  former_layout_ = *std::move(layouts);
  migrated_ = *version != CW_ABI_VERSION || std::any_of(pinned_.begin(), pinned_.end(), [&](const auto& map) {
    return former_layout_[map.first] != layout_[map.first];
  });
  if (!migrated_) return absl::OkStatus();
  former_ = std::exchange(pinned_, {});
  notes_.push_back(absl::StrFormat("the maps of layout %u become those of layout %u: what they hold is carried over",
                                   *version, CW_ABI_VERSION));
  return absl::OkStatus();
}

absl::Status ProgramSet::FillFromFormer(Fill what) {
  for (const auto& [name, map] : former_) {
    const auto now = maps_.find(name);
    if (now == maps_.end()) continue;
    const auto filled = FillMap(name, map, former_layout_[name], now->second, layout_[name], what);
    if (absl::IsFailedPrecondition(filled.status())) {
      notes_.push_back(absl::StrCat("lost: ", std::string(filled.status().message())));
    } else if (!filled.ok()) {
      return filled.status();
    } else if (filled->no_room > 0) {
      notes_.push_back(
          absl::StrFormat("%s has no room for %u records of the one before; they are lost", name, filled->no_room));
    }
  }
  return absl::OkStatus();
}

// Flows that begin from now on stay where they are: the next programs do not know them yet.
absl::Status ProgramSet::Migrate() {
  auto s = SetCtlNumber(former_.at(CW_MAP_CTL), former_layout_[CW_MAP_CTL].value, "assign_jiffies", 0);
  if (!s.ok() && !absl::IsNotFound(s)) return s;
  if (s = FillFromFormer(Fill::kAll); !s.ok()) return s;
  return SetCtlNumber(maps_.at(CW_MAP_CTL), layout_[CW_MAP_CTL].value, "abi_version", CW_ABI_VERSION);
}

// Who switched everything off meanwhile found the former record. A program that is attached somewhere still passes
// packets untouched from now on.
absl::Status ProgramSet::RetireFormer() {
  const auto ctl = former_.find(CW_MAP_CTL);
  if (ctl == former_.end()) return absl::OkStatus();
  const RecordLayout& layout = former_layout_[CW_MAP_CTL].value;
  if (CtlNumber(ctl->second, layout, "mode").value_or(CW_MODE_OFF) == uint64_t{CW_MODE_OFF}) {
    auto s = SetCtlNumber(maps_.at(CW_MAP_CTL), layout_[CW_MAP_CTL].value, "mode", CW_MODE_OFF);
    if (!s.ok()) return s;
  }
  absl::Status first = SetCtlNumber(ctl->second, layout, "mode", CW_MODE_OFF);
  if (const auto carried = former_.find(CW_MAP_CARRY_IN); carried != former_.end()) {
    std::vector<std::string> keys;
    first.Update(carried->second.ForEach([&](const void* key, const void*) {
      keys.emplace_back(static_cast<const char*>(key), carried->second.shape().key_size);
    }));
    for (const std::string& key : keys) first.Update(carried->second.Delete(key.data()));
  }
  return first;
}

absl::Status ProgramSet::EndExchange(bool all) {
  absl::Status first = FillFromFormer(Fill::kNews);
  first.Update(RetireFormer());
  former_.clear();
  former_programs_.clear();
  if (!all) return first;
  for (const std::string& name : pins_.Names()) {
    if (absl::StartsWith(name, CW_PIN_FORMER)) first.Update(pins_.Unpin(name));
  }
  for (const std::string& name : gone_) first.Update(pins_.Unpin(name));
  return first;
}

absl::Status ProgramSet::LoadObject() {
  auto file = BpfObjectFile::Open(spec_.elf);
  if (!file.ok()) return file.status();
  record_.btf = file->Btf();
  auto layouts = LayoutsOf(record_.btf);
  if (!layouts.ok()) return layouts.status();
  layout_ = *std::move(layouts);
  if (auto s = FindPinned(*file); !s.ok()) return s;
  LoadSpec spec = spec_;
  for (const auto& [name, map] : former_) {  // no record is to be without room
    if (spec.map_sizes.contains(name)) spec.map_sizes[name] = std::max(spec.map_sizes[name], map.shape().max_entries);
  }
  const auto reused = Prepare(*file, spec, pinned_, notes_);
  if (!reused.ok()) return reused.status();
  if (auto s = file->Load(); !s.ok()) return s;
  for (bpf_map* map : file->Maps()) {
    const auto known = reused->find(bpf_map__name(map));
    if (known == reused->end()) continue;  // left out
    auto copy = maps::BpfMap::Duplicate(bpf_map__fd(map));
    if (!copy.ok()) return copy.status();
    if (known->first == CW_MAP_CTL) {
      adopted_ = known->second || migrated_;
      if (auto s = known->second ? absl::OkStatus() : InitControl(*copy); !s.ok()) return s;
    }
    if (LabPin(spec_, known->first) == nullptr) record_.ids[known->first] = copy->id();
    maps_.emplace(known->first, *std::move(copy));
  }
  if (auto s = migrated_ ? Migrate() : absl::OkStatus(); !s.ok()) return s;
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
  // What is attached may still be what a start replaced that was cut short.
  for (const std::string& pin : pins_.Former(name)) {
    const maps::UniqueFd former(bpf_obj_get(pins_.File(pin).c_str()));
    if (const auto known = GetProgramInfo(former.get()); former.ok() && known.ok()) earlier_.push_back(known->id);
  }
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
  former_programs_[name] = {old->id, std::move(pinned)};
  notes_.push_back(
      absl::StrFormat("%s (id %u) is replaced by this release's (id %u); maps are kept", name, old->id, info.id));
  return absl::OkStatus();
}

// The control record last: where it is pinned, all maps are. Those that are replaced keep a pin until their programs
// are exchanged. `fresh`: the names that were pinned.
absl::Status ProgramSet::PinMaps(std::vector<std::string>& fresh) {
  const auto pin = [&](const maps::BpfMap& map, const std::string& name) {
    auto s = pins_.Pin(map.fd(), name);
    if (s.ok()) fresh.push_back(name);
    return s;
  };
  if (!maps_.contains(CW_MAP_CTL)) return absl::InternalError("the BPF object has no map " CW_MAP_CTL);
  for (const auto& [name, map] : former_) {
    if (auto s = pin(map, PinFolder::FormerName(name, map.id())); !s.ok()) return s;
  }
  std::vector<std::string> order;
  for (const auto& [name, id] : record_.ids) {
    const auto at = at_name_.find(name);
    if (at != at_name_.end() && at->second == id) continue;
    order.insert(name == CW_MAP_CTL ? order.end() : order.begin(), name);
  }
  for (const std::string& name : order) {
    if (auto s = pin(maps_.at(name), name); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status ProgramSet::PinPrograms(std::vector<std::string>& fresh) {
  for (const auto& [name, program] : former_programs_) {
    const std::string former = PinFolder::FormerName(name, program.id);
    if (auto s = pins_.Pin(program.fd.get(), former); !s.ok()) return s;
    fresh.push_back(former);
  }
  for (const auto& [name, fd] :
       {std::pair{CW_PROG_XDP, xdp_.get()}, std::pair{CW_PROG_TC, tc_.get()}, std::pair{CW_PROG_TC_IN, tc_in_.get()}}) {
    if (auto s = pins_.Pin(fd, name); !s.ok()) return s;
    if (former_programs_.contains(name)) fresh.push_back(name);
  }
  return absl::OkStatus();
}

absl::Status ProgramSet::PinEverything() {
  if (auto s = pins_.Create(); !s.ok()) return s;
  const std::vector<std::string> before = pins_.Names();
  std::vector<std::string> fresh;
  auto undo = absl::MakeCleanup([&] {
    for (const std::string& name : fresh) {
      const auto map = former_.find(name);
      const auto program = former_programs_.find(name);
      const int fd = map != former_.end()                ? map->second.fd()
                     : program != former_programs_.end() ? program->second.fd.get()
                                                         : -1;
      (fd < 0 ? pins_.Unpin(name) : pins_.Pin(fd, name)).IgnoreError();
    }
    if (before.empty()) pins_.RemoveAll().IgnoreError();
  });
  if (auto s = PinMaps(fresh); !s.ok()) return s;
  if (auto s = PinPrograms(fresh); !s.ok()) return s;
  // Those of programs that stay are pinned already.
  const bool pinned = std::find(before.begin(), before.end(), CW_MAP_RODATA) != before.end();
  if (!constants_.empty() && (replaced_ || !pinned)) {
    if (auto s = pins_.Pin(constants_.front().fd(), CW_MAP_RODATA); !s.ok()) return s;
  }
  // From here on these maps are the instance's.
  const absl::StatusOr<MapRecord> recorded = ReadMapRecord(pins_);
  if (!recorded.ok() || *recorded != record_) {
    if (auto s = PinMapRecord(record_, pins_); !s.ok()) return s;
  }
  std::move(undo).Cancel();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ProgramSet::RestorePins() {
  std::vector<std::pair<std::string, int>> all;
  for (const auto& [name, id] : record_.ids) all.emplace_back(name, maps_.at(name).fd());
  for (const auto& [name, fd] :
       {std::pair{CW_PROG_XDP, xdp_.get()}, std::pair{CW_PROG_TC, tc_.get()}, std::pair{CW_PROG_TC_IN, tc_in_.get()}})
    all.emplace_back(name, fd);
  for (const maps::BpfMap& map : constants_) {  // those of the programs above, which may be an earlier load's
    if (std::binary_search(xdp_info_.map_ids.begin(), xdp_info_.map_ids.end(), map.id()))
      all.emplace_back(CW_MAP_RODATA, map.fd());
  }
  std::vector<std::string> restored;
  const auto is_gone = [&](const auto& pin) { return !pins_.Has(pin.first); };
  const bool recorded = pins_.Has(CW_MAP_RECORD);
  if (recorded && std::none_of(all.begin(), all.end(), is_gone)) return restored;
  if (auto s = pins_.Create(); !s.ok()) return s;
  for (const auto& [name, fd] : all) {
    if (pins_.Has(name)) continue;
    if (auto s = pins_.Pin(fd, name); !s.ok()) return s;
    restored.push_back(name);
  }
  if (recorded) return restored;
  if (auto s = PinMapRecord(record_, pins_); !s.ok()) return s;
  restored.emplace_back(CW_MAP_RECORD);
  return restored;
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

bool ProgramSet::WorksOnTheseMaps(const ProgramInfo& program) const {
  return std::all_of(record_.ids.begin(), record_.ids.end(), [&](const auto& map) {
    const auto uses = [&](const ProgramInfo& p) {
      return std::binary_search(p.map_ids.begin(), p.map_ids.end(), map.second);
    };
    return uses(program) == uses(xdp_info_);
  });
}

bool ProgramSet::UsesOurMaps(const ProgramInfo& program) const {
  const auto uses = [&](uint32_t id) { return std::binary_search(program.map_ids.begin(), program.map_ids.end(), id); };
  return std::any_of(record_.ids.begin(), record_.ids.end(), [&](const auto& map) { return uses(map.second); }) ||
         std::any_of(known_maps_.begin(), known_maps_.end(), uses);
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
