// SPDX-License-Identifier: Apache-2.0
//
// An incident as one file: a mark with the version of the format, then records (IncidentRecord of incident.proto) in
// checksummed frames as the spool has them (spool_format.h). The first is the head, which says all that a list needs;
// the last says how many there were. A file that was cut off or tampered with gives what is whole, and says so.
//
// Errors are Status: InvalidArgument: no incident; FailedPrecondition: a newer release wrote it. Threads: one at a
// time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/api/incident.pb.h"
#include "userspace/api/ring.pb.h"

namespace cw::fleet {

inline constexpr absl::string_view kBundleMark = "CWINCID1";
inline constexpr size_t kMostBundleRecord = 1 << 20;

struct Bundle {
  cwfabric::v1::Incident head;
  std::map<std::string, std::vector<cwfabric::v1::RingSecond>> seconds;  // by host, in order of time
  std::vector<cwfabric::v1::FleetEventOf> events;                        // in order of time
  uint64_t damaged_bytes = 0;
  bool cut_off = false;
};

absl::StatusOr<Bundle> ReadBundle(absl::string_view bytes);
absl::StatusOr<Bundle> LoadBundle(const std::string& path);
// The head alone, from the start of the file.
absl::StatusOr<cwfabric::v1::Incident> ReadHead(const std::string& path);

// Collects records in `path`.part, since the head is known last; Finish makes the file: under another name, synced,
// then renamed. What is not finished is removed.
class BundleWriter {
 public:
  static absl::StatusOr<std::unique_ptr<BundleWriter>> Create(const std::string& path);
  ~BundleWriter();

  // ResourceExhausted: the disk is full. InvalidArgument: too large a record.
  absl::Status Add(const cwfabric::v1::IncidentRecord& record);
  absl::Status Finish(cwfabric::v1::Incident head);
  uint64_t bytes() const { return bytes_; }  // so far

 private:
  BundleWriter(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  absl::Status WriteTo(const std::string& to, const std::string& head, const std::string& end);

  const std::string path_;
  int fd_;
  uint64_t bytes_ = 0;
  uint32_t records_ = 0;
};

}  // namespace cw::fleet
