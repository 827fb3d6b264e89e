// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/calm_records.h"

#include <utility>
#include <vector>

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

void PackCalmRecords(wire::Batch& batch) {
  std::vector<CalmPath> calm;
  google::protobuf::RepeatedPtrField<wire::PathRecord> rest;
  size_t bytes = 0;
  for (wire::PathRecord& record : *batch.mutable_paths()) {
    if (IsCalm(record) && (calm.empty() || record.path() > calm.back().path)) {
      calm.push_back({record.path(), record.base_ns(), record.queue()});
      bytes += record.ByteSizeLong();
    } else {
      *rest.Add() = record;
    }
  }
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
