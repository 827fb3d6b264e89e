// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/migration.h"

#include <bpf/libbpf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "maps/abi.h"
#include "maps/names.h"

namespace cw::dataplane {
namespace {

// A PSN that is too old would be counted as lost packets.
constexpr std::array<const char*, 4> kBeginAnew = {"req.seen", "resp.seen", "acked_valid", "mark_round"};

bool IsNamed(const RecordField& field, const char* name) {
  return field.name == name || absl::EndsWith(field.name, absl::StrCat(".", name));
}

// Where a number lies in records of a layout.
class NumberIn {
 public:
  NumberIn(const RecordLayout& layout, const char* name) {
    for (const RecordField& field : layout.fields)
      if (field.name == name && field.size <= sizeof(uint64_t)) field_ = &field;
  }
  // nullopt: the layout has none of that name.
  std::optional<uint64_t> Of(const void* record) const {
    if (field_ == nullptr) return std::nullopt;
    uint64_t value = 0;
    std::memcpy(&value, static_cast<const uint8_t*>(record) + field_->offset, field_->size);
    return value;
  }

 private:
  const RecordField* field_ = nullptr;
};

class Converter {
 public:
  Converter(const maps::BpfMap& to, const MapLayout& of, const MapLayout& layout)
      : to_(to),
        key_(of.key, layout.key),
        value_(of.value, layout.value),
        pair_(of.value, "pair"),
        moves_before_(of.value, "moves"),
        moves_now_(layout.value, "moves"),
        new_key_(to.shape().key_size),
        new_value_(to.shape().value_size) {
    for (const RecordField& field : layout.value.fields) {
      if (std::any_of(kBeginAnew.begin(), kBeginAnew.end(), [&](const char* name) { return IsNamed(field, name); }))
        anew_.push_back(&field);
    }
  }

  // into: the value as it is without the former one.
  void Value(const uint8_t* from, uint8_t* into) const {
    value_.Copy(from, into);
    for (const RecordField* field : anew_) std::memset(into + field->offset, 0, field->size);
  }
  absl::Status Put(const void* key, const void* value, Fill what, Filled& filled) {
    if (pair_.Of(value) == CW_PAIR_NONE) return absl::OkStatus();  // the kernel is making it
    std::fill(new_key_.begin(), new_key_.end(), 0);
    key_.Copy(static_cast<const uint8_t*>(key), new_key_.data());
    const bool there = what == Fill::kNews && to_.Lookup(new_key_.data(), new_value_.data()).ok();
    if (there && !MovedSince(value)) return absl::OkStatus();
    std::fill(new_value_.begin(), new_value_.end(), 0);
    Value(static_cast<const uint8_t*>(value), new_value_.data());
    const bool over = there || what == Fill::kAll;
    const absl::Status put = to_.Update(new_key_.data(), new_value_.data(), over ? BPF_ANY : BPF_NOEXIST);
    if (absl::IsAlreadyExists(put)) return absl::OkStatus();
    if (absl::IsResourceExhausted(put)) {
      ++filled.no_room;
      return absl::OkStatus();
    }
    if (put.ok()) ++filled.records;
    return put;
  }

 private:
  // By the former programs, while the new ones did not move it: it is to stay where its last packets went.
  bool MovedSince(const void* former) const {
    return moves_before_.Of(former).value_or(0) > moves_now_.Of(new_value_.data()).value_or(0);
  }

  const maps::BpfMap& to_;
  const RecordCopy key_, value_;
  const NumberIn pair_, moves_before_, moves_now_;
  std::vector<const RecordField*> anew_;
  std::vector<uint8_t> new_key_, new_value_;  // of the record at hand
};

bool IsHash(const maps::BpfMap& map) {
  return map.shape().type == BPF_MAP_TYPE_HASH || map.shape().type == BPF_MAP_TYPE_LRU_HASH;
}

absl::Status CheckShapes(const std::string& name, const maps::BpfMap& from, const MapLayout& of, const maps::BpfMap& to,
                         const MapLayout& layout) {
  const auto fits = [](const maps::BpfMap& map, const MapLayout& said) {
    return map.shape().key_size == said.key.size && map.shape().value_size == said.value.size;
  };
  const bool alike = from.shape().type == to.shape().type || (IsHash(from) && IsHash(to));
  if (alike && fits(from, of) && fits(to, layout)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(name, " is not what its layout says, or of another kind"));
}

bool AllZero(const std::vector<uint8_t>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; });
}

absl::Status FillHash(const maps::BpfMap& from, Converter& convert, Fill what, Filled& filled) {
  absl::Status first;
  absl::Status visited =
      from.ForEach([&](const void* key, const void* value) { first.Update(convert.Put(key, value, what, filled)); });
  first.Update(visited);
  return first;
}

// `copies` of each value: one for each possible processor, or one.
absl::Status FillArray(const maps::BpfMap& from, const maps::BpfMap& to, const Converter& convert, uint32_t copies,
                       Filled& filled) {
  const auto stride = [copies](const maps::BpfMap& map) {
    return copies == 1 ? map.shape().value_size : (map.shape().value_size + 7) / 8 * 8;
  };
  std::vector<uint8_t> before(size_t{stride(from)} * copies), now(size_t{stride(to)} * copies);
  for (uint32_t i = 0; i < std::min(from.shape().max_entries, to.shape().max_entries); ++i) {
    if (absl::Status status = from.Lookup(&i, before.data()); !status.ok()) return status;
    if (AllZero(before)) continue;
    if (absl::Status status = to.Lookup(&i, now.data()); !status.ok()) return status;
    for (uint32_t c = 0; c < copies; ++c)
      convert.Value(before.data() + size_t{stride(from)} * c, now.data() + size_t{stride(to)} * c);
    if (absl::Status status = to.Update(&i, now.data()); !status.ok()) return status;
    ++filled.records;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Filled> FillMap(const std::string& name, const maps::BpfMap& from, const MapLayout& of,
                               const maps::BpfMap& to, const MapLayout& layout, Fill what) {
  Filled filled;
  // T1 of requests under way: their replies are for an agent that is gone.
  if (layout.value.fields.empty() || of.value.fields.empty() || name == CW_MAP_PROBE_TX) return filled;
  if (absl::Status fit = CheckShapes(name, from, of, to, layout); !fit.ok()) return fit;
  Converter convert(to, of, layout);
  absl::Status status;
  switch (to.shape().type) {
    case BPF_MAP_TYPE_HASH:
    case BPF_MAP_TYPE_LRU_HASH:
      status = FillHash(from, convert, what, filled);
      break;
    case BPF_MAP_TYPE_ARRAY:
      if (what == Fill::kAll) status = FillArray(from, to, convert, 1, filled);
      break;
    case BPF_MAP_TYPE_PERCPU_ARRAY:
      if (what == Fill::kAll)
        status = FillArray(from, to, convert, static_cast<uint32_t>(libbpf_num_possible_cpus()), filled);
      break;
    default:
      break;
  }
  if (!status.ok()) return status;
  return filled;
}

}  // namespace cw::dataplane
