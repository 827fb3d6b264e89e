// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/slots.h"

#include <algorithm>
#include <atomic>

#include "userspace/probe/pair_store.h"

namespace cw::probe {
namespace {

void ClearBit(__u32& mask, uint8_t bit) {
  std::atomic_ref<__u32>(mask).fetch_and(~(1u << bit), std::memory_order_acq_rel);
}

}  // namespace

SlotTable::SlotTable(cw_pair* pair) : pair_(pair) {
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    const cw_slot& k = pair_->slot[s];
    if (Load(k.state) == CW_SLOT_UNUSED || Load(k.port) == 0) continue;
    slots_[s].port = Load(k.port);
    slots_[s].path = (Load(k.flags) & CW_SLOT_ASSIGNABLE) != 0;
    slots_[s].native = (Load(k.flags) & CW_SLOT_NATIVE) != 0;
    if (slots_[s].native) natives_[slots_[s].port] = s;
    if (!slots_[s].path && !slots_[s].native) slots_[s].path = true;  // a crash in between: keep it until SetPaths
  }
  Publish();
}

SlotUpdate SlotTable::SetPaths(absl::Span<const uint16_t> ports, const FoldFn& fold, int64_t now_ns) {
  if (ports.size() > kMaxPathSlots) ports = ports.first(kMaxPathSlots);
  native_room_ = CW_MAX_SLOTS - ports.size();
  SlotUpdate update;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (slots_[s].port == 0 || std::find(ports.begin(), ports.end(), slots_[s].port) != ports.end()) continue;
    slots_[s].path = false;
    if (!slots_[s].native) Free(s, &update);
  }
  for (uint16_t port : ports) {
    std::optional<uint8_t> slot = SlotOfPort(port);
    if (!slot.has_value()) {
      slot = FreeSlot();
      if (!slot.has_value()) slot = EvictNative(&update);
      if (!slot.has_value()) break;  // cannot be: at most 12 of 16 are paths
      Take(*slot, port, now_ns, &update);
    }
    slots_[*slot].path = true;
  }
  PlaceNatives(fold, now_ns, &update);
  Publish();
  return update;
}

uint8_t SlotTable::EnsureNative(uint16_t port, const FoldFn& fold, int64_t now_ns, SlotUpdate* update) {
  if (auto it = natives_.find(port); it != natives_.end() && it->second != CW_SLOT_NONE) return it->second;
  natives_.try_emplace(port, CW_SLOT_NONE);
  PlaceNative(port, fold, now_ns, update);
  Publish();
  return natives_[port];
}

SlotUpdate SlotTable::ReleaseNative(uint16_t port, const FoldFn& fold, int64_t now_ns) {
  SlotUpdate update;
  if (natives_.erase(port) == 0) return update;
  if (std::optional<uint8_t> own = SlotOfPort(port); own.has_value()) {
    slots_[*own].native = false;
    if (!slots_[*own].path) Free(*own, &update);
  }
  PlaceWaiting(fold, now_ns, &update);
  Publish();
  return update;
}

SlotUpdate SlotTable::RefoldNative(uint16_t port, const FoldFn& fold, int64_t now_ns) {
  SlotUpdate update;
  if (natives_.contains(port)) PlaceNative(port, fold, now_ns, &update);
  PlaceWaiting(fold, now_ns, &update);
  Publish();
  return update;
}

SlotUpdate SlotTable::RefoldNatives(const FoldFn& fold, int64_t now_ns) {
  SlotUpdate update;
  PlaceNatives(fold, now_ns, &update);
  Publish();
  return update;
}

void SlotTable::PlaceNatives(const FoldFn& fold, int64_t now_ns, SlotUpdate* update) {
  for (const uint16_t port : NativePorts()) PlaceNative(port, fold, now_ns, update);
  PlaceWaiting(fold, now_ns, update);  // those after which another left its slot
}

// Best first: the slot of this very port if it is a path; the path with the same hops; a slot of its own; none.
void SlotTable::PlaceNative(uint16_t port, const FoldFn& fold, int64_t now_ns, SlotUpdate* update) {
  const uint8_t before = natives_[port];
  const std::optional<uint8_t> own = SlotOfPort(port);
  std::optional<uint8_t> target = own;
  if (!own.has_value() || !slots_[*own].path) {
    const std::optional<uint16_t> same = fold ? fold(port) : std::nullopt;
    if (std::optional<uint8_t> s = same ? SlotOfPort(*same) : std::nullopt; s.has_value() && slots_[*s].path) {
      target = s;
    }
  }
  if (!target.has_value() && NativeOnlySlots() < native_room_) {
    target = FreeSlot();
    if (target.has_value()) Take(*target, port, now_ns, update);
  }
  natives_[port] = target.value_or(CW_SLOT_NONE);
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (slots_[s].port != port) continue;
    slots_[s].native = target == s;
    if (!slots_[s].native && !slots_[s].path) Free(s, update);
  }
  if (natives_[port] != before) update->natives.push_back({port, natives_[port]});
}

void SlotTable::PlaceWaiting(const FoldFn& fold, int64_t now_ns, SlotUpdate* update) {
  for (const uint16_t port : NativePorts()) {
    if (natives_[port] == CW_SLOT_NONE) PlaceNative(port, fold, now_ns, update);
  }
}

std::optional<uint8_t> SlotTable::EvictNative(SlotUpdate* update) {
  for (uint8_t s = CW_MAX_SLOTS; s-- > 0;) {
    if (slots_[s].path || slots_[s].port == 0) continue;
    const uint16_t port = slots_[s].port;
    natives_[port] = CW_SLOT_NONE;
    update->natives.push_back({port, CW_SLOT_NONE});
    Free(s, update);
    return s;
  }
  return std::nullopt;
}

std::optional<uint8_t> SlotTable::FreeSlot() const {
  std::optional<uint8_t> best;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (slots_[s].port == 0 && (!best.has_value() || slots_[s].freed < slots_[*best].freed)) best = s;
  }
  return best;
}

// The kernel sees the slot as unused while its port changes, and as NEW, not live, afterwards.
void SlotTable::Take(uint8_t slot, uint16_t port, int64_t now_ns, SlotUpdate* update) {
  cw_slot& k = pair_->slot[slot];
  ClearBit(pair_->live_mask, slot);
  // Rounds are serial numbers: "nothing yet" is the present round, 0 would be the future half of the time.
  Store(k.progress_round, Load(pair_->cur_round));
  Store(k.acked_round, Load(pair_->cur_round));
  Store(k.revive, __u32{0});
  Store(k.raw_ns, __u64{0});
  Store(k.heard_ns, __u64{0});
  Store(k.acked_ns, __u64{0});
  Store(k.jump_ns, __u32{0});
  Store(k.changed_ns, static_cast<__u64>(now_ns));
  Store(k.deaths, __u32{0});
  Store(k.misses, __u32{0});
  Store(pair_->patience_ns[slot], __u32{0});
  Store(k.port, __u16{port});
  Store(k.state, __u8{CW_SLOT_NEW});
  update->slots.push_back({slot, 0, port});
  slots_[slot].port = port;
}

void SlotTable::Free(uint8_t slot, SlotUpdate* update) {
  ClearBit(pair_->assign_mask, slot);
  ClearBit(pair_->live_mask, slot);
  cw_slot& k = pair_->slot[slot];
  Store(k.flags, __u8{0});
  Store(k.state, __u8{CW_SLOT_UNUSED});
  Store(k.port, __u16{0});
  update->slots.push_back({slot, slots_[slot].port, 0});
  slots_[slot] = Slot{};
  slots_[slot].freed = ++releases_;
}

void SlotTable::Publish() {
  uint32_t mask = 0;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (slots_[s].port == 0) continue;
    const int flags = (slots_[s].path ? CW_SLOT_ASSIGNABLE : 0) | (slots_[s].native ? CW_SLOT_NATIVE : 0);
    Store(pair_->slot[s].flags, static_cast<__u8>(flags));
    if (slots_[s].path && (blocked_ >> s & 1) == 0) mask |= 1u << s;
  }
  Store(pair_->assign_mask, mask);
}

void SlotTable::SetBlocked(uint16_t mask) {
  blocked_ = mask;
  Publish();
}

std::optional<uint8_t> SlotTable::SlotOfPort(uint16_t port) const {
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (port != 0 && slots_[s].port == port) return s;
  }
  return std::nullopt;
}

std::optional<uint8_t> SlotTable::NativeSlot(uint16_t port) const {
  const auto it = natives_.find(port);
  if (it == natives_.end()) return std::nullopt;
  return it->second;
}

std::vector<uint16_t> SlotTable::NativePorts() const {
  std::vector<uint16_t> ports;
  for (const auto& [port, slot] : natives_) ports.push_back(port);
  return ports;
}

size_t SlotTable::NativeOnlySlots() const {
  return std::count_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.port != 0 && !s.path; });
}

uint16_t SlotTable::used_mask() const {
  uint16_t mask = 0;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (slots_[s].port != 0) mask |= 1u << s;
  }
  return mask;
}

}  // namespace cw::probe
