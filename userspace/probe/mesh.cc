// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/mesh.h"

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace cw::probe {
namespace {

bool SameKey(const cw_pair_key& k, const PairKey& key) {
  return std::equal(key.local.bytes.begin(), key.local.bytes.end(), k.local) &&
         std::equal(key.remote.bytes.begin(), key.remote.bytes.end(), k.remote);
}

absl::Status CheckSpecs(const std::vector<PairSpec>& specs, uint32_t capacity) {
  absl::flat_hash_set<PairKey> seen;
  for (const PairSpec& s : specs) {
    const std::string name = absl::StrFormat("%s to %s", s.local.ToString(), s.remote.ToString());
    if (!seen.insert(s.key()).second) return absl::InvalidArgumentError("the pair " + name + " is configured twice");
    if (s.local.is_v4() != s.remote.is_v4()) {
      return absl::InvalidArgumentError("the pair " + name + " is of IPv4 and IPv6; no packet goes that way");
    }
    if (s.dscp > 63) return absl::InvalidArgumentError("DSCP above 63 for the pair " + name);
  }
  if (specs.size() > capacity) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d pairs of NICs are configured, the maps hold %d; raise the number of pairs in the "
                        "configuration",
                        specs.size(), capacity));
  }
  return absl::OkStatus();
}

}  // namespace

Mesh::Mesh(PairStore* store, const KeyRing* keys, const MeshOptions& options)
    : store_(store), keys_(keys), options_(options) {}

// Pairs of the index map whose record agrees; an entry that disagrees (a crash in between) is taken out.
absl::flat_hash_map<PairKey, uint32_t> Mesh::IndexInMaps(absl::Status* status) {
  absl::flat_hash_map<PairKey, uint32_t> found;
  absl::flat_hash_set<uint32_t> taken;
  auto entries = store_->ReadIndex();
  if (!entries.ok()) {
    *status = entries.status();
    return found;
  }
  for (const auto& [key, index] : *entries) {
    if (index < store_->capacity() && SameKey(store_->At(index)->key, key) && taken.insert(index).second) {
      found.emplace(key, index);
    } else if (absl::Status s = store_->EraseIndex(key); !s.ok()) {
      *status = s;
    }
  }
  return found;
}

absl::StatusOr<ConfigureResult> Mesh::Configure(const std::vector<PairSpec>& specs) {
  if (absl::Status s = CheckSpecs(specs, store_->capacity()); !s.ok()) return s;
  absl::Status status = absl::OkStatus();
  const absl::flat_hash_map<PairKey, uint32_t> present = IndexInMaps(&status);
  if (!status.ok()) return status;

  absl::flat_hash_map<PairKey, const PairSpec*> wanted;
  for (const PairSpec& s : specs) wanted.emplace(s.key(), &s);
  ConfigureResult result;
  absl::flat_hash_set<uint32_t> taken;
  for (const auto& [key, index] : present) {
    if (wanted.contains(key)) {
      taken.insert(index);
      continue;
    }
    if (absl::Status s = Remove(index, key); !s.ok()) return s;
    result.removed.push_back(index);
  }
  uint32_t next = 0;
  for (const PairSpec& spec : specs) {
    const auto it = present.find(spec.key());
    const bool adopt = it != present.end();
    if (!adopt) {
      while (taken.contains(next)) ++next;
      taken.insert(next);
    }
    const uint32_t index = adopt ? it->second : next;
    if (adopt && entries_.contains(index)) {
      Entry& ours = entries_.at(index);
      if (ours.spec.dscp != spec.dscp) ours.dscp = spec.dscp;  // else the class that was learned stays
      ours.spec = spec;
      continue;
    }
    if (absl::Status s = Add(index, spec, adopt); !s.ok()) return s;
    (adopt ? result.adopted : result.added).push_back(index);
  }
  return result;
}

void Mesh::SetMissLimit(uint32_t limit) {
  options_.miss_limit = limit;
  for (const auto& [index, entry] : entries_) Store(store_->At(index)->half_dead_rounds, HalfDeadRounds());
}

void Mesh::SetPace(uint32_t half_dead_factor, uint32_t idle_interval_ns) {
  options_.half_dead_factor = half_dead_factor;
  options_.idle_interval_ns = idle_interval_ns;
  SetMissLimit(options_.miss_limit);
}

// The index goes last when adding and first when removing, so that the kernel never finds half a pair.
absl::Status Mesh::Add(uint32_t index, const PairSpec& spec, bool adopt) {
  cw_pair* pair = store_->At(index);
  if (!adopt) {
    std::memset(static_cast<void*>(pair), 0, sizeof(*pair));
    std::copy(spec.local.bytes.begin(), spec.local.bytes.end(), pair->key.local);
    std::copy(spec.remote.bytes.begin(), spec.remote.bytes.end(), pair->key.remote);
    Store(pair->interval_ns, __u32{options_.idle_interval_ns});
    // Its peer remembers the rounds of this session: earlier ones are replays to it.
    if (const auto last = last_rounds_.find(spec.key()); last != last_rounds_.end())
      Store(pair->cur_round, last->second);
  }
  Store(pair->half_dead_rounds, HalfDeadRounds());
  Entry& e = entries_[index];
  e.spec = spec;
  e.dscp = spec.dscp;
  e.keys = keys_->Derive(spec.local, spec.remote);
  e.slots = std::make_unique<SlotTable>(pair);
  index_[spec.key()] = index;
  if (absl::Status s = store_->PutKeys(index, e.keys); !s.ok()) return s;
  return store_->PutIndex(spec.key(), index);
}

absl::Status Mesh::Remove(uint32_t index, const PairKey& key) {
  if (absl::Status s = store_->EraseIndex(key); !s.ok()) return s;
  entries_.erase(index);
  index_.erase(key);
  const cw_pair_keys none{};
  if (absl::Status s = store_->PutKeys(index, none); !s.ok()) return s;
  cw_pair* pair = store_->At(index);
  Store(pair->assign_mask, __u32{0});
  if (last_rounds_.size() < store_->capacity()) last_rounds_[key] = Load(pair->cur_round);
  std::memset(static_cast<void*>(pair), 0, sizeof(*pair));
  return absl::OkStatus();
}

// The programs read a record while it is written. So what is new is there, unused, before it is sent with, and what
// goes is no longer sent with before it goes.
absl::Status Mesh::RewriteKeys() {
  for (auto& [index, e] : entries_) {
    cw_pair_keys to = keys_->Derive(e.spec.local, e.spec.remote);
    cw_pair_keys between = to;
    for (uint32_t id = 0; id < 2; ++id) {
      if ((to.valid >> id & 1) != 0) continue;
      std::copy(std::begin(e.keys.tx[id]), std::end(e.keys.tx[id]), between.tx[id]);
      std::copy(std::begin(e.keys.rx[id]), std::end(e.keys.rx[id]), between.rx[id]);
    }
    between.valid |= e.keys.valid;
    between.tx_id = e.keys.tx_id;
    absl::Status status = store_->PutKeys(index, between);
    between.tx_id = to.tx_id;
    if (status.ok()) status = store_->PutKeys(index, between);
    if (status.ok()) status = store_->PutKeys(index, to);
    WipeKeys(&between);
    if (status.ok()) e.keys = to;
    WipeKeys(&to);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

std::optional<uint32_t> Mesh::Find(const PairKey& key) const {
  const auto it = index_.find(key);
  if (it == index_.end()) return std::nullopt;
  return it->second;
}

std::vector<uint32_t> Mesh::Pairs() const {
  std::vector<uint32_t> out;
  out.reserve(entries_.size());
  for (const auto& [index, e] : entries_) out.push_back(index);
  return out;
}

PacketSpec Mesh::Packet(uint32_t index, uint8_t slot, uint16_t port) const {
  const Entry& e = entries_.at(index);
  PacketSpec p;
  p.local = e.spec.local;
  p.remote = e.spec.remote;
  p.port = port;
  p.label = LabelOf(e, port);
  p.slot = slot;
  p.dscp = e.dscp;
  p.session = options_.session;
  p.receiver_session = Load(store_->At(index)->responder_session);
  p.cookie = static_cast<uint16_t>(index);
  p.key_id = static_cast<uint8_t>(e.keys.tx_id);
  std::memcpy(p.key.k, e.keys.tx[e.keys.tx_id & 1], sizeof(p.key.k));
  return p;
}

// What the kernel puts on a path carries its port as the label (bpf/steer.h); what goes by itself carries its own.
uint32_t Mesh::LabelOf(const Entry& entry, uint16_t port) {
  const auto slot = entry.slots->SlotOfPort(port);
  if (slot.has_value() && entry.slots->is_path(*slot)) return port;
  const auto native = entry.native_labels.find(port);
  return native == entry.native_labels.end() ? port : native->second;
}

void Mesh::SetNativeLabel(uint32_t index, uint16_t port, uint32_t label) {
  entries_.at(index).native_labels[port] = label;
}

void Mesh::ForgetNativeLabel(uint32_t index, uint16_t port) { entries_.at(index).native_labels.erase(port); }

absl::StatusOr<std::vector<PlannedSlot>> Mesh::Plan(uint32_t index) const {
  std::vector<PlannedSlot> plan;
  const SlotTable& table = slots(index);
  uint16_t all = 0;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) all |= static_cast<uint16_t>((table.port(s) != 0 ? 1u : 0u) << s);
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (table.port(s) == 0) continue;
    PacketSpec spec = Packet(index, s, table.port(s));
    spec.slots = all;
    auto probe = ProbeTemplate::Make(CW_PROBE_REQUEST, spec);
    if (!probe.ok()) return probe.status();
    plan.push_back({s, *std::move(probe)});
  }
  return plan;
}

MacKey Mesh::ReceiveKey(uint32_t index, uint8_t key_id) const {
  MacKey key;
  std::memcpy(key.k, entries_.at(index).keys.rx[key_id & 1], sizeof(key.k));
  return key;
}

bool Mesh::ReceiveKeyValid(uint32_t index, uint8_t key_id) const {
  return key_id < 2 && (entries_.at(index).keys.valid >> key_id & 1) != 0;
}

}  // namespace cw::probe
