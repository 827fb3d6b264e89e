// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/calm_records.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "userspace/model/calm_paths.h"

namespace cw::api {
namespace {

namespace wire = ::cwfabric::v1;

bool IsCalm(const wire::PathRecord& record) {
  wire::PathRecord more = record;
  more.clear_path();
  more.clear_queue();
  more.clear_base_ns();
  return more.ByteSizeLong() == 0;  // whatever later releases may add to a record
}

}  // namespace

// A number that stands twice keeps its order: none of it is packed.
void PackCalmRecords(wire::Batch& batch) {
  absl::flat_hash_map<uint32_t, int> times;
  for (const wire::PathRecord& record : batch.paths()) ++times[record.path()];
  std::vector<CalmPath> calm;
  google::protobuf::RepeatedPtrField<wire::PathRecord> rest;
  size_t bytes = 0;
  for (const wire::PathRecord& record : batch.paths()) {
    if (IsCalm(record) && times[record.path()] == 1) {
      calm.push_back({record.path(), record.base_ns(), record.queue()});
      bytes += record.ByteSizeLong();
    } else {
      *rest.Add() = record;
    }
  }
  std::sort(calm.begin(), calm.end(), [](const CalmPath& a, const CalmPath& b) { return a.path < b.path; });
  std::string packed = PackCalmPaths(calm);
  if (packed.empty() || packed.size() >= bytes) return;
  batch.set_calm_paths(std::move(packed));
  batch.mutable_paths()->Swap(&rest);
}

absl::Status UnpackCalmRecords(size_t most_records, wire::Batch& batch) {
  if (batch.calm_paths().empty()) return absl::OkStatus();
  const auto told = static_cast<size_t>(batch.paths_size());
  if (told > most_records) return absl::InvalidArgumentError(absl::StrCat("more than ", most_records, " paths"));
  absl::StatusOr<std::vector<CalmPath>> calm = UnpackCalmPaths(batch.calm_paths(), most_records - told);
  if (!calm.ok()) return calm.status();
  batch.mutable_paths()->Reserve(batch.paths_size() + static_cast<int>(calm->size()));
  for (CalmPath& path : *calm) {
    wire::PathRecord& record = *batch.add_paths();
    record.set_path(path.path);
    record.set_base_ns(path.base_ns);
    record.set_queue(std::move(path.queue));
  }
  batch.clear_calm_paths();
  return absl::OkStatus();
}

}  // namespace cw::api
