// SPDX-License-Identifier: Apache-2.0
//
// The pairs of NICs that this host probes: their indexes, keys and path slots in the maps, and what the prober needs to
// send. After a restart of the agent the mesh adopts what is in the maps: same pair, same index, slots and states.
// Thread rule: one thread (the agent's loop).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "userspace/model/flow.h"
#include "userspace/probe/keys.h"
#include "userspace/probe/packet.h"
#include "userspace/probe/pair_store.h"
#include "userspace/probe/slots.h"

namespace cw::probe {

struct PairSpec {
  Addr local;
  int local_ifindex = 0;
  Addr remote;
  std::string peer;  // its name, for people
  uint8_t dscp = 0;  // of probes and messages until SetDscp
  PairKey key() const { return {local, remote}; }
  bool operator==(const PairSpec&) const = default;
};

struct MeshOptions {
  uint32_t session = 0;     // as in cw_ctl
  uint32_t miss_limit = 3;  // rounds without an answer that make a slot dead (bpf/liveness.h)
  uint32_t half_dead_factor = 5;
  uint32_t idle_interval_ns = 100'000'000;
};

struct ConfigureResult {
  std::vector<uint32_t> added;    // indexes
  std::vector<uint32_t> adopted;  // found in the maps, with their slots
  std::vector<uint32_t> removed;  // of earlier Configure calls or of an earlier agent
};

// A slot as the prober sends on it.
struct PlannedSlot {
  uint8_t slot = 0;
  ProbeTemplate probe;
};

class Mesh {
 public:
  Mesh(PairStore* store, const KeyRing* keys, const MeshOptions& options);

  // The whole wanted set; what is not in it is removed. InvalidArgument: a pair twice. ResourceExhausted: more pairs
  // than the maps hold (then nothing was changed).
  absl::StatusOr<ConfigureResult> Configure(const std::vector<PairSpec>& specs);
  // Writes every pair's keys anew, after a change of the key ring.
  absl::Status RewriteKeys();

  std::optional<uint32_t> Find(const PairKey& key) const;
  bool Has(uint32_t index) const { return entries_.contains(index); }
  std::vector<uint32_t> Pairs() const;  // ascending
  // index must be one of Pairs().
  const PairSpec& spec(uint32_t index) const { return entries_.at(index).spec; }
  SlotTable& slots(uint32_t index) { return *entries_.at(index).slots; }
  const SlotTable& slots(uint32_t index) const { return *entries_.at(index).slots; }
  cw_pair* shared(uint32_t index) const { return store_->At(index); }
  uint32_t session() const { return options_.session; }
  void SetSession(uint32_t session) { options_.session = session; }  // packets made from now on

  void SetMissLimit(uint32_t limit);                                   // cw_ctl has it already
  void SetPace(uint32_t half_dead_factor, uint32_t idle_interval_ns);  // see MeshOptions

  // The packet of a slot or, with an explicit port, of a trace or message.
  PacketSpec Packet(uint32_t index, uint8_t slot, uint16_t port) const;
  // The class that the pair's packets ride in from now on, 0–63.
  void SetDscp(uint32_t index, uint8_t dscp) { entries_.at(index).dscp = dscp; }
  uint8_t dscp(uint32_t index) const { return entries_.at(index).dscp; }
  // IPv6: the flow label that native packets with this port have. The next packet of the port has it.
  void SetNativeLabel(uint32_t index, uint16_t port, uint32_t label);
  void ForgetNativeLabel(uint32_t index, uint16_t port);
  absl::StatusOr<std::vector<PlannedSlot>> Plan(uint32_t index) const;
  MacKey ReceiveKey(uint32_t index, uint8_t key_id) const;  // key_id 0 or 1
  bool ReceiveKeyValid(uint32_t index, uint8_t key_id) const;

 private:
  struct Entry {
    Entry() = default;
    ~Entry() { WipeKeys(&keys); }
    PairSpec spec;
    cw_pair_keys keys{};
    std::unique_ptr<SlotTable> slots;
    uint8_t dscp = 0;
    std::map<uint16_t, uint32_t> native_labels;  // by port
  };

  __u32 HalfDeadRounds() const { return options_.miss_limit * options_.half_dead_factor; }
  static uint32_t LabelOf(const Entry& entry, uint16_t port);
  absl::Status Remove(uint32_t index, const PairKey& key);
  absl::Status Add(uint32_t index, const PairSpec& spec, bool adopt);
  absl::flat_hash_map<PairKey, uint32_t> IndexInMaps(absl::Status* status);

  PairStore* store_;
  const KeyRing* keys_;
  MeshOptions options_;
  std::map<PairKey, uint32_t> last_rounds_;  // of pairs that were removed: their newest
  std::map<uint32_t, Entry> entries_;
  absl::flat_hash_map<PairKey, uint32_t> index_;
};

}  // namespace cw::probe
