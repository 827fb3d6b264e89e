// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/program_info.h"

#include <bpf/bpf.h>
#include <errno.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "maps/bpf_map.h"

namespace cw::dataplane {

absl::StatusOr<ProgramInfo> GetProgramInfo(int fd) {
  bpf_prog_info raw = {};
  uint32_t len = sizeof(raw);
  if (bpf_obj_get_info_by_fd(fd, &raw, &len) != 0) return absl::ErrnoToStatus(errno, "read a BPF program's info");
  ProgramInfo info;
  info.map_ids.resize(raw.nr_map_ids);
  raw = {};
  raw.nr_map_ids = static_cast<uint32_t>(info.map_ids.size());
  raw.map_ids = reinterpret_cast<uintptr_t>(info.map_ids.data());
  len = sizeof(raw);
  if (bpf_obj_get_info_by_fd(fd, &raw, &len) != 0) return absl::ErrnoToStatus(errno, "read a BPF program's maps");
  std::sort(info.map_ids.begin(), info.map_ids.end());
  info.id = raw.id;
  info.name = raw.name;
  info.tag = absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(raw.tag), sizeof(raw.tag)));
  info.verified_insns = raw.verified_insns;
  info.translated_insns = raw.xlated_prog_len / 8;
  info.run_time_ns = raw.run_time_ns;
  info.run_count = raw.run_cnt;
  return info;
}

absl::StatusOr<ProgramInfo> GetProgramInfoById(uint32_t id) {
  maps::UniqueFd fd(bpf_prog_get_fd_by_id(id));
  if (!fd.ok()) return absl::ErrnoToStatus(errno, absl::StrFormat("open the BPF program with id %u", id));
  return GetProgramInfo(fd.get());
}

namespace {

absl::StatusOr<std::string> Bytes(const maps::BpfMap& map) {
  std::string bytes(map.shape().value_size, '\0');
  const uint32_t index = 0;
  if (auto s = map.Lookup(&index, bytes.data()); !s.ok()) return s;
  return bytes;
}

}  // namespace

absl::StatusOr<std::string> ProgramConstants(const ProgramInfo& info, const std::vector<maps::BpfMap>& known) {
  for (const maps::BpfMap& map : known)
    if (std::binary_search(info.map_ids.begin(), info.map_ids.end(), map.id())) return Bytes(map);
  for (uint32_t id : info.map_ids) {
    maps::UniqueFd fd(bpf_map_get_fd_by_id(id));
    if (!fd.ok()) return absl::ErrnoToStatus(errno, absl::StrFormat("open the BPF map with id %u", id));
    auto map = maps::BpfMap::FromFd(std::move(fd));
    if (!map.ok()) return map.status();
    if (absl::EndsWith(map->name(), ".rodata")) return Bytes(*map);
  }
  return std::string();
}

absl::StatusOr<bool> SameProgram(const ProgramInfo& a, const ProgramInfo& b, const std::vector<maps::BpfMap>& known) {
  if (a.id == b.id) return true;
  if (a.tag != b.tag) return false;
  const auto constants_a = ProgramConstants(a, known);
  if (absl::IsPermissionDenied(constants_a.status())) return false;
  if (!constants_a.ok()) return constants_a.status();
  const auto constants_b = ProgramConstants(b, known);
  if (absl::IsPermissionDenied(constants_b.status())) return false;
  if (!constants_b.ok()) return constants_b.status();
  return *constants_a == *constants_b;
}

std::string DescribeProgram(uint32_t id) {
  const auto info = GetProgramInfoById(id);
  return absl::StrFormat("%s (id %u)", info.ok() && !info->name.empty() ? info->name : "a program", id);
}

}  // namespace cw::dataplane
