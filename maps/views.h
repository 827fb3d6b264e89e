// SPDX-License-Identifier: Apache-2.0
//
// One typed view per map: what maps/names.h names and maps/abi.h lays out.
//
//   hash maps    HashView<Key, Value>     FlowsView, TxFlowsView, PairIndexView, NicLinesView, CarryInView
//   array maps   ArrayView<Value>         KeysView, ProbeTxView, CarryOutView, LabClockView
//   mmaped       MmapView<Value>          CtlView, PairsView, LocalClockView: no system call, and single fields
//                                         may be written
//   per CPU      CountersView             counters.h
//   rings        RingReader               ring_reader.h
//
// Writing a whole hash value replaces it and loses what the kernel counted in between; change single fields of live
// flows with dataplane::FlowEditor. Threads: all views may be used from several threads.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "maps/abi.h"
#include "maps/bpf_map.h"
#include "maps/local_clock.h"
#include "maps/nic_line.h"

namespace cw::maps {

template <typename Key, typename Value>
class HashView {
  static_assert(std::is_trivially_copyable_v<Key> && std::is_trivially_copyable_v<Value>);

 public:
  static absl::StatusOr<HashView> Create(BpfMap map) {
    if (auto s = map.ExpectSizes(sizeof(Key), sizeof(Value)); !s.ok()) return s;
    return HashView(std::move(map));
  }
  absl::StatusOr<Value> Lookup(const Key& key) const {
    Value value;
    if (auto s = map_.Lookup(&key, &value); !s.ok()) return s;
    return value;
  }
  absl::Status Insert(const Key& key, const Value& value) const { return map_.Update(&key, &value, BPF_NOEXIST); }
  absl::Status Replace(const Key& key, const Value& value) const { return map_.Update(&key, &value, BPF_EXIST); }
  absl::Status Put(const Key& key, const Value& value) const { return map_.Update(&key, &value, BPF_ANY); }
  absl::Status Delete(const Key& key) const { return map_.Delete(&key); }
  // See BpfMap::ForEach. The references are valid during the visit only.
  absl::Status ForEach(absl::FunctionRef<void(const Key&, const Value&)> visit) const {
    return map_.ForEach([&](const void* k, const void* v) {
      Key key;
      Value value;  // batches are packed: copy for alignment
      std::memcpy(&key, k, sizeof(key));
      std::memcpy(&value, v, sizeof(value));
      visit(key, value);
    });
  }
  uint32_t capacity() const { return map_.shape().max_entries; }
  const BpfMap& map() const { return map_; }

 private:
  explicit HashView(BpfMap map) : map_(std::move(map)) {}
  BpfMap map_;
};

template <typename Value>
class ArrayView {
  static_assert(std::is_trivially_copyable_v<Value>);

 public:
  static absl::StatusOr<ArrayView> Create(BpfMap map) {
    if (auto s = map.ExpectSizes(sizeof(uint32_t), sizeof(Value)); !s.ok()) return s;
    return ArrayView(std::move(map));
  }
  absl::StatusOr<Value> Lookup(uint32_t index) const {
    Value value;
    if (auto s = map_.Lookup(&index, &value); !s.ok()) return s;
    return value;
  }
  absl::Status Put(uint32_t index, const Value& value) const { return map_.Update(&index, &value); }
  uint32_t size() const { return map_.shape().max_entries; }
  const BpfMap& map() const { return map_; }

 private:
  explicit ArrayView(BpfMap map) : map_(std::move(map)) {}
  BpfMap map_;
};

// An ARRAY map in our address space. The kernel writes the same memory: read and write single fields through Load and
// Store (relaxed atomics: no torn field, no order between fields).
template <typename Value>
class MmapView {
  static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) % 8 == 0);

 public:
  static absl::StatusOr<MmapView> Create(BpfMap map) {
    if (auto s = map.ExpectSizes(sizeof(uint32_t), sizeof(Value)); !s.ok()) return s;
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = (sizeof(Value) * map.shape().max_entries + page - 1) / page * page;
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, map.fd(), 0);
    if (at == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrFormat("mmap the BPF map %s", map.name()));
    return MmapView(std::move(map), static_cast<Value*>(at), bytes);
  }
  MmapView(MmapView&& other) noexcept
      : map_(std::move(other.map_)), at_(std::exchange(other.at_, nullptr)), bytes_(other.bytes_) {}
  MmapView& operator=(MmapView&&) = delete;
  ~MmapView() {
    if (at_ != nullptr) munmap(at_, bytes_);
  }

  uint32_t size() const { return map_.shape().max_entries; }
  const BpfMap& map() const { return map_; }
  // The shared memory itself, size() records; for fields within arrays: Load(view[i].slot[s].state).
  Value& operator[](uint32_t index) const { return at_[index]; }

  template <typename Field>
  static Field Load(const Field& field) {
    return __atomic_load_n(&field, __ATOMIC_RELAXED);
  }
  template <typename Field>
  static void Store(Field& field, std::type_identity_t<Field> value) {
    __atomic_store_n(&field, value, __ATOMIC_RELAXED);
  }
  // For masks that the kernel changes as well.
  template <typename Field>
  static void SetBits(Field& field, std::type_identity_t<Field> bits) {
    __atomic_fetch_or(&field, bits, __ATOMIC_RELAXED);
  }
  template <typename Field>
  static void ClearBits(Field& field, std::type_identity_t<Field> bits) {
    __atomic_fetch_and(&field, static_cast<Field>(~bits), __ATOMIC_RELAXED);
  }
  // A copy, word by word: no field is torn, but two fields may be of different moments.
  Value Snapshot(uint32_t index) const {
    static_assert(alignof(Value) == 8);
    Value copy;
    const auto* from = reinterpret_cast<const uint64_t*>(&at_[index]);
    auto* to = reinterpret_cast<unsigned char*>(&copy);
    for (size_t i = 0; i < sizeof(Value) / 8; ++i) {
      const uint64_t word = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
      std::memcpy(to + 8 * i, &word, 8);
    }
    return copy;
  }
  // A whole record, word by word, for a record that the kernel does not use yet.
  void Write(uint32_t index, const Value& value) const {
    auto* to = reinterpret_cast<uint64_t*>(&at_[index]);
    const auto* from = reinterpret_cast<const unsigned char*>(&value);
    for (size_t i = 0; i < sizeof(Value) / 8; ++i) {
      uint64_t word;
      std::memcpy(&word, from + 8 * i, 8);
      __atomic_store_n(&to[i], word, __ATOMIC_RELAXED);
    }
  }

 private:
  MmapView(BpfMap map, Value* at, size_t bytes) : map_(std::move(map)), at_(at), bytes_(bytes) {}
  BpfMap map_;
  Value* at_;
  size_t bytes_;
};

using FlowsView = HashView<cw_flow_key, cw_flow>;
using TxFlowsView = HashView<cw_flow_key, cw_tx_flow>;
using PairIndexView = HashView<cw_pair_key, uint32_t>;
using NicLinesView = HashView<uint32_t, cw_nic_line>;
using KeysView = ArrayView<cw_pair_keys>;
using ProbeTxView = ArrayView<cw_probe_tx>;
using LabClockView = ArrayView<cw_lab_clock>;
using CtlView = MmapView<cw_ctl>;  // one record: ctl[0]
using PairsView = MmapView<cw_pair>;
using LocalClockView = MmapView<cw_local_clock>;  // one record, for agent::LineClock
using CarryOutView = ArrayView<cw_carry_out>;
using CarryInView = HashView<cw_carry_key, cw_carry_in>;

}  // namespace cw::maps
