// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/dataplane.h"

#include <bpf/bpf.h>
#include <net/if.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "cwfabric.skel.h"
#include "cwfabric_nic.skel.h"
#include "userspace/dataplane/netdev.h"
#include "userspace/dataplane/offload.h"
#include "userspace/dataplane/pinned_link.h"
#include "userspace/dataplane/tc_filters.h"
#include "userspace/dataplane/tc_hook.h"

namespace cw::dataplane {
namespace {

absl::string_view BuiltInObject() {
  size_t size = 0;
  const void* bytes = cwfabric__elf_bytes(&size);
  return absl::string_view(static_cast<const char*>(bytes), size);
}

absl::string_view BoundObject() {
  size_t size = 0;
  const void* bytes = cwfabric_nic__elf_bytes(&size);
  return absl::string_view(static_cast<const char*>(bytes), size);
}

std::string Holder(const std::string& instance) {
  return absl::StrFormat("the agent of instance %s (process %d)", instance, getpid());
}

absl::StatusOr<FileLock> LockInstance(const Options& options) {
  return FileLock::Acquire(absl::StrFormat("%s/%s/lock", options.run_root, options.instance), Holder(options.instance));
}

absl::StatusOr<FileLock> LockNic(const Options& options, uint32_t ifindex) {
  const auto netns = NetnsInode();
  if (!netns.ok()) return netns.status();
  return FileLock::Acquire(absl::StrFormat("%s/nic-%d-%u.lock", options.run_root, *netns, ifindex),
                           Holder(options.instance));
}

LoadSpec SpecOf(const Options& options) {
  LoadSpec spec;
  spec.elf = options.elf.empty() ? BuiltInObject() : options.elf;
  spec.bound_elf = BoundObject();
  spec.lab_clock = options.lab_clock;
  spec.lab_nic = options.lab_nic;
  spec.nic_failover = options.nic_failover;
  spec.map_sizes = {{CW_MAP_FLOWS, options.max_flows},     {CW_MAP_TX_FLOWS, options.max_tx_flows},
                    {CW_MAP_PAIRS, options.max_pairs},     {CW_MAP_PROBE_TX, options.max_pairs},
                    {CW_MAP_KEYS, options.max_pairs},      {CW_MAP_PAIR_INDEX, 2 * options.max_pairs},
                    {CW_MAP_CARRY_OUT, options.max_pairs}, {CW_MAP_CARRY_IN, options.max_pairs}};
  return spec;
}

// That name's pin, and those of what it replaced.
std::vector<std::string> PinsOf(const PinFolder& pins, const char* name) {
  std::vector<std::string> all = pins.Former(name);
  all.emplace_back(name);
  return all;
}

// Does the program work on maps that are pinned in this folder?
bool UsesPinnedMaps(const ProgramInfo& program, const PinFolder& pins) {
  for (const char* name : {CW_MAP_COUNTERS, CW_MAP_CTL, CW_MAP_TX_FLOWS}) {
    for (const std::string& pin : PinsOf(pins, name)) {
      const auto map = maps::BpfMap::OpenPinned(pins.File(pin));
      if (map.ok() && std::binary_search(program.map_ids.begin(), program.map_ids.end(), map->id())) return true;
    }
  }
  return false;
}

// Is it pinned in this folder? Needs no right to open programs by their numbers.
bool IsPinnedProgram(uint32_t id, const PinFolder& pins) {
  for (const char* name : {CW_PROG_TC, CW_PROG_TC_IN}) {
    for (const std::string& pin : PinsOf(pins, name)) {
      const maps::UniqueFd fd(bpf_obj_get(pins.File(pin).c_str()));
      const auto info = GetProgramInfo(fd.get());
      if (fd.ok() && info.ok() && info->id == id) return true;
    }
  }
  return false;
}

absl::Status DetachInterface(const PinFolder& pins, uint32_t ifindex) {
  const auto ours = [&](const ProgramInfo& p) { return IsPinnedProgram(p.id, pins) || UsesPinnedMaps(p, pins); };
  absl::Status tc = DetachTc(pins, TcSide::kIngress, ifindex, ours);
  tc.Update(DetachTc(pins, TcSide::kEgress, ifindex, ours));
  const auto xdp = DetachXdp(pins, ifindex);
  return tc.ok() ? xdp : tc;
}

// Filters whose pins somebody removed: links went with them.
absl::Status DetachOrphans(const PinFolder& pins) {
  const auto orphan = [&](const ProgramInfo& program) { return pins.IsOrphan(program); };
  absl::Status first;
  struct if_nameindex* const all = if_nameindex();
  for (const struct if_nameindex* i = all; i != nullptr && i->if_index != 0; ++i) {
    for (const TcSide side : {TcSide::kIngress, TcSide::kEgress})
      first.Update(DetachFilter(side, i->if_index, orphan).status());
  }
  if (all != nullptr) if_freenameindex(all);
  return first;
}

absl::Status CheckSizes(const Options& options) {
  if (options.max_pairs == 0 || options.max_pairs >= CW_PAIR_NONE || options.max_flows == 0 ||
      options.max_tx_flows == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("max_pairs must be 1 to %d, max_flows and max_tx_flows at least 1", CW_PAIR_NONE - 1));
  }
  return CheckInstanceName(options.instance);
}

}  // namespace

Dataplane::Dataplane(Options options, FileLock lock, PinFolder pins, ProgramSet programs)
    : options_(std::move(options)), lock_(std::move(lock)), pins_(std::move(pins)), programs_(std::move(programs)) {}

absl::StatusOr<std::unique_ptr<Dataplane>> Dataplane::Open(const Options& options) {
  if (auto s = CheckSizes(options); !s.ok()) return s;
  if (auto s = EnsureBpffs(); !s.ok()) return s;
  auto lock = LockInstance(options);
  if (!lock.ok()) return lock.status();
  PinFolder pins(options.pin_root, options.instance);
  auto programs = ProgramSet::Load(SpecOf(options), pins);
  if (!programs.ok()) return programs.status();
  std::unique_ptr<Dataplane> dataplane(new Dataplane(options, *std::move(lock), std::move(pins), *std::move(programs)));
  if (auto s = dataplane->OpenViews(); !s.ok()) return s;
  dataplane->ExchangeAttached();
  return dataplane;
}

absl::Status Dataplane::OpenViews() {
  absl::Status error;
  const auto map = [&](const char* name) {
    auto m = programs_.Map(name);
    if (!m.ok()) error.Update(m.status());
    return m.ok() ? *std::move(m) : maps::BpfMap();
  };
  auto ctl = maps::CtlView::Create(map(CW_MAP_CTL));
  auto flows = maps::FlowsView::Create(map(CW_MAP_FLOWS));
  auto tx_flows = maps::TxFlowsView::Create(map(CW_MAP_TX_FLOWS));
  auto pair_index = maps::PairIndexView::Create(map(CW_MAP_PAIR_INDEX));
  auto pairs = maps::PairsView::Create(map(CW_MAP_PAIRS));
  auto probe_tx = maps::ProbeTxView::Create(map(CW_MAP_PROBE_TX));
  auto keys = maps::KeysView::Create(map(CW_MAP_KEYS));
  auto local_clock = maps::LocalClockView::Create(map(CW_MAP_LOCAL_CLOCK));
  auto nic_lines = maps::NicLinesView::Create(map(CW_MAP_NIC_LINES));
  auto carry_out = maps::CarryOutView::Create(map(CW_MAP_CARRY_OUT));
  auto carry_in = maps::CarryInView::Create(map(CW_MAP_CARRY_IN));
  auto counters = maps::CountersView::Create(map(CW_MAP_COUNTERS));
  for (const auto& s : {ctl.status(), flows.status(), tx_flows.status(), pair_index.status(), pairs.status(),
                        probe_tx.status(), keys.status(), local_clock.status(), nic_lines.status(), carry_out.status(),
                        carry_in.status(), counters.status()}) {
    error.Update(s);
  }
  if (!error.ok()) return error;
  auto editor = FlowEditor::Create(*flows, *tx_flows);
  if (!editor.ok()) return editor.status();
  views_ = std::make_unique<Views>(
      Views{*std::move(ctl), *std::move(flows), *std::move(tx_flows), *std::move(pair_index), *std::move(pairs),
            *std::move(probe_tx), *std::move(keys), *std::move(local_clock), *std::move(nic_lines),
            *std::move(carry_out), *std::move(carry_in), *std::move(counters), *std::move(editor),
            map(CW_MAP_PROBE_RING), map(CW_MAP_EVENT_RING), map(CW_MAP_MSG_RING)});
  return error;
}

// What an earlier agent attached. An interface that cannot be adopted is left as it is and named: measuring the others
// is worth more than refusing to start.
bool Dataplane::AdoptInterfaces() {
  bool all = true;
  for (uint32_t ifindex : pins_.LinkIfindexes()) {
    if (absl::IsNotFound(IfnameOf(ifindex).status())) {
      DetachInterface(pins_, ifindex).IgnoreError();  // the interface is gone, and with it the attachment
      continue;
    }
    if (const auto info = Attach(ifindex); !info.ok()) {
      spdlog::warn("not adopted: {}", std::string(info.status().message()));
      all = false;
    }
  }
  return all;
}

// The maps are this release's by now, whatever becomes of the former ones.
void Dataplane::ExchangeAttached() {
  absl::Status status = programs_.CatchUp();
  const bool all = AdoptInterfaces();
  status.Update(programs_.EndExchange(all));
  if (!status.ok()) spdlog::warn("what was pinned before is not let go of in full: {}", std::string(status.message()));
}

absl::StatusOr<AttachInfo> Dataplane::Attach(const std::string& ifname) {
  const auto ifindex = IfindexOf(ifname);
  if (!ifindex.ok()) return ifindex.status();
  return Attach(*ifindex);
}

absl::StatusOr<AttachInfo> Dataplane::Attach(uint32_t ifindex, bool nic_stamps) {
  auto nic = AttachNic(ifindex, nic_stamps);
  if (!nic.ok()) return nic.status();
  const AttachInfo info = nic->info;
  nics_[ifindex] = *std::move(nic);
  return info;
}

absl::StatusOr<Dataplane::Nic> Dataplane::AttachNic(uint32_t ifindex, bool nic_stamps) {
  const auto ifname = IfnameOf(ifindex);
  if (!ifname.ok()) return ifname.status();
  Nic nic;
  if (const auto have = nics_.find(ifindex); have != nics_.end()) {
    nic.lock = std::move(have->second.lock);
    nics_.erase(have);
  }
  const std::string offload = RoceOffloadDevice(options_.sysfs_root, *ifname);
  if (!offload.empty() && !options_.attach_offloaded) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s offloads RoCE (RDMA device %s): programs in the kernel would see none of it, nothing is attached", *ifname,
        offload));
  }
  if (!nic.lock.held()) {
    auto lock = LockNic(options_, ifindex);
    if (!lock.ok()) return lock.status();
    nic.lock = *std::move(lock);
  }
  const bool simulated = !options_.lab_nic.empty();  // then the usual program has stamps
  auto xdp = AttachXdp(programs_, pins_, ifindex, nic_stamps && !simulated);
  if (!xdp.ok()) return absl::Status(xdp.status().code(), absl::StrFormat("%s: %s", *ifname, xdp.status().message()));
  if (auto s = AttachBothTc(ifindex, nic); !s.ok()) {
    xdp->link.reset();
    DetachXdp(pins_, ifindex).IgnoreError();
    return absl::Status(s.code(), absl::StrFormat("%s: %s", *ifname, s.message()));
  }
  nic.info = {ifindex,
              *ifname,
              xdp->mode,
              xdp->frags,
              xdp->adopted,
              xdp->warning,
              xdp->nic_stamps || (nic_stamps && simulated),
              xdp->stamps_note};
  nic.xdp_link = std::move(xdp->link);
  return nic;
}

absl::Status Dataplane::AttachBothTc(uint32_t ifindex, Nic& nic) {
  auto egress = AttachTc(programs_, pins_, TcSide::kEgress, ifindex);
  if (!egress.ok()) return egress.status();
  nic.tc_egress = *std::move(egress);
  const auto ours = [&](const ProgramInfo& p) { return programs_.Knows(p.id) || programs_.UsesOurMaps(p); };
  if (!options_.nic_failover) return DetachTc(pins_, TcSide::kIngress, ifindex, ours);  // an earlier agent's
  auto ingress = AttachTc(programs_, pins_, TcSide::kIngress, ifindex);
  if (!ingress.ok()) {
    DetachTc(pins_, TcSide::kEgress, ifindex, ours).IgnoreError();
    return ingress.status();
  }
  nic.tc_ingress = *std::move(ingress);
  return absl::OkStatus();
}

absl::StatusOr<HookLook> Dataplane::Look(uint32_t ifindex) const {
  const auto nic = nics_.find(ifindex);
  if (nic == nics_.end())
    return absl::FailedPreconditionError(absl::StrFormat("interface %u is not attached", ifindex));
  const auto link = ReadLink(nic->second.xdp_link.get());
  if (!link.ok()) return link.status();
  const auto xdp = XdpOf(ifindex);
  if (!xdp.ok()) return xdp.status();
  const auto egress = IsTcAttached(programs_, TcSide::kEgress, ifindex);
  if (!egress.ok()) return egress.status();
  const auto ingress = options_.nic_failover ? IsTcAttached(programs_, TcSide::kIngress, ifindex) : true;
  if (!ingress.ok()) return ingress.status();
  HookLook look{.xdp = link->ifindex == ifindex && *xdp == link->program, .tc_egress = *egress, .tc_ingress = *ingress};
  if (!look.xdp) look.other_xdp = *xdp;
  return look;
}

// Links first: their pins are what keeps programs attached when we end.
absl::StatusOr<std::vector<std::string>> Dataplane::RestorePins() {
  std::vector<std::string> restored;
  for (const auto& [ifindex, nic] : nics_) {
    const std::pair<std::string, int> links[] = {
        {absl::StrFormat(CW_PIN_XDP_LINK_FMT, ifindex), nic.xdp_link.get()},
        {PinFolder::TcxLinkName(TcSide::kEgress, ifindex), nic.tc_egress.get()},
        {PinFolder::TcxLinkName(TcSide::kIngress, ifindex), nic.tc_ingress.get()}};
    for (const auto& [name, fd] : links) {
      if (fd < 0 || pins_.Has(name)) continue;
      if (auto s = pins_.Create(); !s.ok()) return s;
      if (auto s = pins_.Pin(fd, name); !s.ok()) return s;
      restored.push_back(name);
    }
  }
  const auto others = programs_.RestorePins();
  if (!others.ok()) return others.status();
  restored.insert(restored.end(), others->begin(), others->end());
  return restored;
}

absl::Status Dataplane::Detach(uint32_t ifindex) {
  if (auto s = DetachInterface(pins_, ifindex); !s.ok()) return s;
  nics_.erase(ifindex);
  return absl::OkStatus();
}

std::vector<AttachInfo> Dataplane::Attached() const {
  std::vector<AttachInfo> out;
  for (const auto& [ifindex, nic] : nics_) out.push_back(nic.info);
  return out;
}

absl::Status Dataplane::DetachAllAndUnpin() {
  absl::Status first;
  for (uint32_t ifindex : pins_.LinkIfindexes()) first.Update(DetachInterface(pins_, ifindex));
  nics_.clear();
  first.Update(pins_.RemoveAll());
  return first;
}

absl::Status Dataplane::Remove(const Options& options) {
  if (auto s = CheckInstanceName(options.instance); !s.ok()) return s;
  const auto lock = LockInstance(options);
  if (!lock.ok()) return lock.status();
  PinFolder pins(options.pin_root, options.instance);
  absl::Status first = pins.CheckOwn();
  if (!first.ok()) return first;
  for (uint32_t ifindex : pins.LinkIfindexes()) first.Update(DetachInterface(pins, ifindex));
  first.Update(pins.RemoveAll());
  first.Update(DetachOrphans(pins));
  return first;
}

}  // namespace cw::dataplane
