// SPDX-License-Identifier: Apache-2.0
//
// The path slots of one pair of NICs: which UDP source ports are probed, and which slot stands for the port that a flow
// chose itself. Works on the record that the BPF programs read (maps/abi.h, cw_pair), and adopts what it finds there.
// A slot whose port stays wanted keeps its number and its state, so a rebuilt path table does not disturb flows.
// Thread rule: one thread; the record is shared with the kernel.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "maps/abi.h"

namespace cw::probe {

inline constexpr size_t kMaxPathSlots = 12;  // of CW_MAX_SLOTS; the rest is kept for native ports

// A native port is represented by another slot than before (CW_SLOT_NONE: by none).
struct NativeChange {
  uint16_t port = 0;
  uint8_t slot = CW_SLOT_NONE;
  bool operator==(const NativeChange&) const = default;
};

// A slot number now means another port. Flows that were put on it have to be placed anew.
struct SlotChange {
  uint8_t slot = 0;
  uint16_t old_port = 0;  // 0: was free
  uint16_t new_port = 0;  // 0: is free
  bool operator==(const SlotChange&) const = default;
};

struct SlotUpdate {
  std::vector<NativeChange> natives;
  std::vector<SlotChange> slots;
  bool empty() const { return natives.empty() && slots.empty(); }
};

// The port of the path slot that has the same hops as this port; nullopt: its hops are not known to equal any.
using FoldFn = std::function<std::optional<uint16_t>(uint16_t port)>;

class SlotTable {
 public:
  explicit SlotTable(cw_pair* pair);

  // One port per distinct path, best first; those beyond kMaxPathSlots are ignored. Natives are folded anew.
  SlotUpdate SetPaths(absl::Span<const uint16_t> ports, const FoldFn& fold, int64_t now_ns);

  // The slot that stands for a native port; CW_SLOT_NONE when all are taken. Adds it when new.
  uint8_t EnsureNative(uint16_t port, const FoldFn& fold, int64_t now_ns, SlotUpdate* update);
  // No flow uses the port any more. A slot that becomes free is given to a native port that waits for one.
  SlotUpdate ReleaseNative(uint16_t port, const FoldFn& fold, int64_t now_ns);
  // The hops of a native port became known; likewise.
  SlotUpdate RefoldNative(uint16_t port, const FoldFn& fold, int64_t now_ns);
  // What is known of all native ports has changed, or is no longer believed.
  SlotUpdate RefoldNatives(const FoldFn& fold, int64_t now_ns);

  // Slots that flows may be put on = path slots that are not blocked. Bit s: slot s.
  void SetBlocked(uint16_t mask);

  uint16_t port(uint8_t slot) const { return slots_[slot].port; }  // 0: free
  bool is_path(uint8_t slot) const { return slots_[slot].path; }
  std::optional<uint8_t> SlotOfPort(uint16_t port) const;
  std::optional<uint8_t> NativeSlot(uint16_t port) const;  // nullopt: never asked for
  std::vector<uint16_t> NativePorts() const;
  uint16_t used_mask() const;

 private:
  struct Slot {
    uint16_t port = 0;
    bool path = false;    // a distinct path of the table
    bool native = false;  // some native port is this very port
    uint64_t freed = 0;   // order of release: the slot that is free for longest is taken first
  };

  std::optional<uint8_t> FreeSlot() const;
  void Take(uint8_t slot, uint16_t port, int64_t now_ns, SlotUpdate* update);
  void Free(uint8_t slot, SlotUpdate* update);
  std::optional<uint8_t> EvictNative(SlotUpdate* update);
  void PlaceNative(uint16_t port, const FoldFn& fold, int64_t now_ns, SlotUpdate* update);
  void PlaceNatives(const FoldFn& fold, int64_t now_ns, SlotUpdate* update);
  void PlaceWaiting(const FoldFn& fold, int64_t now_ns, SlotUpdate* update);
  size_t NativeOnlySlots() const;
  void Publish();  // flags and assign_mask

  cw_pair* pair_;
  std::array<Slot, CW_MAX_SLOTS> slots_{};
  std::map<uint16_t, uint8_t> natives_;
  size_t native_room_ = CW_MAX_SLOTS - kMaxPathSlots;
  uint16_t blocked_ = 0;
  uint64_t releases_ = 0;
};

}  // namespace cw::probe
