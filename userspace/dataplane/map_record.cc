// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/map_record.h"

#include <bpf/bpf.h>
#include <errno.h>

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "maps/bpf_map.h"
#include "maps/names.h"

namespace cw::dataplane {
namespace {

constexpr uint32_t kMostBytes = 1 << 20;

// A line for each map, an empty line, and the types.
std::string ToBytes(const MapRecord& record) {
  std::string bytes;
  for (const auto& [name, id] : record.ids) absl::StrAppend(&bytes, name, " ", id, "\n");
  return absl::StrCat(bytes, "\n", record.btf);
}

absl::StatusOr<MapRecord> FromBytes(const std::string& bytes) {
  const size_t end = bytes.find("\n\n");
  if (end == std::string::npos) return absl::InvalidArgumentError("no end of the maps");
  MapRecord record{.ids = {}, .btf = bytes.substr(end + 2)};
  for (absl::string_view line : absl::StrSplit(bytes.substr(0, end), '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    uint32_t id = 0;
    if (words.size() != 2 || !absl::SimpleAtoi(words[1], &id)) return absl::InvalidArgumentError("not a map's line");
    record.ids[words[0]] = id;
  }
  return record;
}

}  // namespace

absl::StatusOr<MapRecord> ReadMapRecord(const PinFolder& pins) {
  const absl::StatusOr<maps::BpfMap> map = maps::BpfMap::OpenPinned(pins.File(CW_MAP_RECORD));
  if (!map.ok()) return map.status();
  if (map->shape().type != BPF_MAP_TYPE_ARRAY || map->shape().value_size > kMostBytes)
    return absl::InvalidArgumentError(absl::StrCat(pins.File(CW_MAP_RECORD), " is another map"));
  std::string bytes(map->shape().value_size, '\0');
  const uint32_t index = 0;
  if (absl::Status status = map->Lookup(&index, bytes.data()); !status.ok()) return status;
  absl::StatusOr<MapRecord> record = FromBytes(bytes);
  if (record.ok()) return record;
  return absl::InvalidArgumentError(
      absl::StrCat(pins.File(CW_MAP_RECORD), " cannot be read: ", std::string(record.status().message())));
}

absl::Status PinMapRecord(const MapRecord& record, const PinFolder& pins) {
  const std::string bytes = ToBytes(record);
  const maps::UniqueFd fd(bpf_map_create(BPF_MAP_TYPE_ARRAY, CW_MAP_RECORD, sizeof(uint32_t),
                                         static_cast<uint32_t>(bytes.size()), 1, nullptr));
  if (!fd.ok()) return absl::ErrnoToStatus(errno, "make the map of the maps' layouts");
  const uint32_t index = 0;
  if (bpf_map_update_elem(fd.get(), &index, bytes.data(), BPF_ANY) != 0)
    return absl::ErrnoToStatus(errno, "write the maps' layouts");
  return pins.Pin(fd.get(), CW_MAP_RECORD);
}

}  // namespace cw::dataplane
