// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/record_layout.h"

#include <bpf/btf.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"

namespace cw::dataplane {
namespace {

using Kind = RecordField::Kind;

// Of a record; ours have some thousand. The types may be anybody's.
constexpr size_t kMostFields = 100'000;
constexpr uint32_t kMostBytes = 1 << 20;

struct FreeBtf {
  void operator()(btf* types) const { btf__free(types); }
};

class Reader {
 public:
  explicit Reader(const btf* types) : types_(types) {}

  absl::StatusOr<RecordLayout> Record(uint32_t type) const {
    RecordLayout out;
    const int64_t size = btf__resolve_size(types_, type);
    if (size < 0) return absl::InvalidArgumentError(absl::StrCat("type ", type, " has no size"));
    if (size > kMostBytes) return absl::InvalidArgumentError(absl::StrCat("type ", type, " is too large"));
    out.size = static_cast<uint32_t>(size);
    if (absl::Status status = Flatten(type, 0, "", out.fields); !status.ok()) return status;
    return out;
  }

  // What a map's declaration says with __type(key, ...): a member that points to it. 0: no such member.
  uint32_t Pointed(uint32_t declaration, absl::string_view member) const {
    const btf_type* type = Plain(declaration);
    if (!btf_is_struct(type)) return 0;
    const btf_member* members = btf_members(type);
    for (int i = 0; i < btf_vlen(type); ++i) {
      if (member != Name(members[i].name_off)) continue;
      const btf_type* pointer = btf__type_by_id(types_, members[i].type);
      return btf_is_ptr(pointer) ? pointer->type : 0;
    }
    return 0;
  }

  std::string Name(uint32_t offset) const {
    const char* name = btf__name_by_offset(types_, offset);
    return name == nullptr ? "" : name;
  }

 private:
  const btf_type* Plain(uint32_t type) const {
    const btf_type* t = btf__type_by_id(types_, type);
    while (t != nullptr && (btf_is_mod(t) || btf_is_typedef(t))) t = btf__type_by_id(types_, t->type);
    return t;
  }

  absl::Status Flatten(uint32_t type, uint32_t offset, const std::string& name, std::vector<RecordField>& out) const {
    if (out.size() > kMostFields || offset > kMostBytes)
      return absl::InvalidArgumentError(absl::StrCat("too large a record: ", name));
    const btf_type* t = Plain(type);
    if (t != nullptr && (btf_is_int(t) || btf_is_any_enum(t))) {
      const bool is_signed = btf_is_int(t) ? (btf_int_encoding(t) & BTF_INT_SIGNED) != 0 : btf_kflag(t);
      out.push_back({name, offset, t->size, is_signed ? Kind::kSigned : Kind::kUnsigned});
      return absl::OkStatus();
    }
    if (t != nullptr && btf_is_struct(t)) return FlattenStruct(t, offset, name, out);
    if (t != nullptr && btf_is_array(t)) return FlattenArray(t, offset, name, out);
    return absl::InvalidArgumentError(absl::StrCat("a field that cannot be carried: ", name));
  }

  absl::Status FlattenStruct(const btf_type* t, uint32_t offset, const std::string& name,
                             std::vector<RecordField>& out) const {
    for (uint32_t i = 0; i < btf_vlen(t); ++i) {
      const btf_member& member = btf_members(t)[i];
      const std::string own = Name(member.name_off);
      const std::string full = name.empty() || own.empty() ? name + own : absl::StrCat(name, ".", own);
      if (btf_member_bitfield_size(t, i) != 0)
        return absl::InvalidArgumentError(absl::StrCat("a bit field cannot be carried: ", full));
      const uint32_t at = offset + btf_member_bit_offset(t, i) / 8;
      if (absl::Status status = Flatten(member.type, at, full, out); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status FlattenArray(const btf_type* t, uint32_t offset, const std::string& name,
                            std::vector<RecordField>& out) const {
    const struct btf_array& array = *btf_array(t);
    const int64_t size = btf__resolve_size(types_, array.type);
    if (size <= 0) return absl::InvalidArgumentError(absl::StrCat("an array without a size: ", name));
    if (size == 1) {
      out.push_back({name, offset, array.nelems, Kind::kBytes});
      return absl::OkStatus();
    }
    for (uint32_t i = 0; i < array.nelems; ++i) {
      const uint32_t at = offset + i * static_cast<uint32_t>(size);
      if (absl::Status status = Flatten(array.type, at, absl::StrCat(name, "[", i, "]"), out); !status.ok())
        return status;
    }
    return absl::OkStatus();
  }

  const btf* types_;
};

uint64_t Largest(uint32_t bytes) { return bytes >= 8 ? UINT64_MAX : (uint64_t{1} << (8 * bytes)) - 1; }

// Little-endian, as every host that the programs are built for.
uint64_t Load(const uint8_t* at, uint32_t bytes, bool is_signed) {
  uint64_t value = 0;
  std::memcpy(&value, at, std::min<uint32_t>(bytes, 8));
  if (is_signed && bytes < 8 && (value >> (8 * bytes - 1) & 1) != 0) value |= ~Largest(bytes);
  return value;
}

uint64_t Fit(uint64_t value, uint32_t bytes, bool is_signed) {
  if (!is_signed) return std::min(value, Largest(bytes));
  const auto most = static_cast<int64_t>(Largest(bytes) >> 1);
  return static_cast<uint64_t>(std::clamp(static_cast<int64_t>(value), -most - 1, most));
}

}  // namespace

absl::StatusOr<std::map<std::string, MapLayout>> LayoutsOf(absl::string_view bytes) {
  const std::unique_ptr<btf, FreeBtf> types(btf__new(bytes.data(), static_cast<uint32_t>(bytes.size())));
  if (types == nullptr) return absl::InvalidArgumentError("no types of a BPF object");
  const int32_t section = btf__find_by_name_kind(types.get(), ".maps", BTF_KIND_DATASEC);
  if (section < 0) return absl::InvalidArgumentError("the types name no maps");
  const Reader reader(types.get());
  const btf_type* maps = btf__type_by_id(types.get(), static_cast<uint32_t>(section));
  std::map<std::string, MapLayout> out;
  std::vector<std::string> strange;
  for (int i = 0; i < btf_vlen(maps); ++i) {
    const btf_type* variable = btf__type_by_id(types.get(), btf_var_secinfos(maps)[i].type);
    MapLayout& layout = out[reader.Name(variable->name_off)];
    for (const auto& [member, record] : {std::pair{"key", &layout.key}, std::pair{"value", &layout.value}}) {
      const uint32_t type = reader.Pointed(variable->type, member);
      if (type == 0) continue;
      absl::StatusOr<RecordLayout> read = reader.Record(type);
      if (!read.ok()) strange.push_back(reader.Name(variable->name_off));
      *record = read.ok() ? *std::move(read) : RecordLayout();
    }
  }
  for (const std::string& name : strange) out.erase(name);
  return out;
}

RecordCopy::RecordCopy(const RecordLayout& from, const RecordLayout& to) {
  std::map<absl::string_view, const RecordField*> had;
  for (const RecordField& field : from.fields) had[field.name] = &field;
  for (const RecordField& field : to.fields) {
    const auto found = had.find(field.name);
    if (found == had.end()) continue;
    const RecordField& before = *found->second;
    if ((before.kind == Kind::kBytes) != (field.kind == Kind::kBytes)) continue;
    Step step{before.offset, field.offset, before.size, field.size, field.kind};
    if (field.kind == Kind::kBytes || before.size == field.size) {
      step.kind = Kind::kBytes;
      step.from_size = step.to_size = std::min(before.size, field.size);
      Step* last = steps_.empty() ? nullptr : &steps_.back();
      if (last != nullptr && last->kind == Kind::kBytes && last->from + last->from_size == step.from &&
          last->to + last->to_size == step.to) {
        last->from_size = last->to_size += step.to_size;
        continue;
      }
    }
    steps_.push_back(step);
  }
}

void RecordCopy::Copy(const uint8_t* from, uint8_t* to) const {
  for (const Step& step : steps_) {
    if (step.kind == Kind::kBytes) {
      std::memcpy(to + step.to, from + step.from, step.to_size);
      continue;
    }
    const bool is_signed = step.kind == Kind::kSigned;
    const uint64_t value = Fit(Load(from + step.from, step.from_size, is_signed), step.to_size, is_signed);
    std::memcpy(to + step.to, &value, std::min<uint32_t>(step.to_size, 8));
  }
}

}  // namespace cw::dataplane
