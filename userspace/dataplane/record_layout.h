// SPDX-License-Identifier: Apache-2.0
//
// How a release lays out the records of its maps, as the types in its BPF object say (BTF, kernel documentation
// bpf/btf.rst), and how records of one layout become records of another: field by field, by their names. So a field
// whose meaning changes gets another name. Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cw::dataplane {

struct RecordField {
  enum class Kind : uint8_t { kUnsigned, kSigned, kBytes };
  std::string name;  // "flow.req.next", "slot[3].port"; "" where the record is one number
  uint32_t offset = 0;
  uint32_t size = 0;  // bytes; of numbers 1, 2, 4 or 8
  Kind kind = Kind::kUnsigned;
  bool operator==(const RecordField&) const = default;
};

struct RecordLayout {
  uint32_t size = 0;  // bytes
  std::vector<RecordField> fields;
  bool operator==(const RecordLayout&) const = default;
};

struct MapLayout {
  RecordLayout key, value;  // no field: a map without records, as a ring is
  bool operator==(const MapLayout&) const = default;
};

// Of the maps that an object declares, by name, but for those with a field that cannot be carried (a bit field, a
// pointer, a union). btf: an object's types, as they lie in its section .BTF. InvalidArgument: it is none.
absl::StatusOr<std::map<std::string, MapLayout>> LayoutsOf(absl::string_view btf);

// Numbers may have another width: one that is too large becomes the largest. Bytes keep what fits. Fields that only the
// former had are dropped, those that only the new one has keep what they were.
class RecordCopy {
 public:
  RecordCopy(const RecordLayout& from, const RecordLayout& to);
  void Copy(const uint8_t* from, uint8_t* to) const;

 private:
  struct Step {
    uint32_t from, to, from_size, to_size;
    RecordField::Kind kind;  // kBytes also of numbers that stay as they are
  };
  std::vector<Step> steps_;
};

}  // namespace cw::dataplane
