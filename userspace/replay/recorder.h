// SPDX-License-Identifier: Apache-2.0
//
// Writes what the contention rule saw and decided, one record per window. Writes go to the page cache in one call each;
// a process that is killed may leave a cut last record, which readers name. One thread per object.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/control/contention.h"
#include "userspace/replay/format.h"

namespace cw::replay {

struct RecordedBy {
  std::string host;
  std::string version;  // of the agent
};

class Recorder {
 public:
  // Begins a new file; one that is there becomes FILE.1. The state is what the next window is decided with.
  static absl::StatusOr<std::unique_ptr<Recorder>> Open(const std::string& file, uint64_t most_bytes, RecordedBy by,
                                                        const control::ContentionState& state);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // `after`: the state as the decision left it. At most_bytes the file becomes FILE.1, and the next window begins a new
  // one. After an error nothing more is written.
  absl::Status Add(const control::Observation& seen, const control::Decision& decided,
                   const control::ContentionState& after);
  uint64_t bytes() const { return bytes_; }                     // of the present file
  uint64_t windows() const { return windows_; }                 // in it; the next has this number
  int64_t started_unix_ns() const { return started_unix_ns_; }  // of the present file, as its head says

 private:
  Recorder(std::string file, uint64_t most_bytes, RecordedBy by)
      : file_(std::move(file)), most_bytes_(most_bytes), by_(std::move(by)) {}
  absl::Status Begin(const control::ContentionState& state);
  absl::Status Write(const std::string& bytes);

  const std::string file_;
  const uint64_t most_bytes_;
  const RecordedBy by_;
  int fd_ = -1;
  uint64_t bytes_ = 0, windows_ = 0;
  int64_t started_unix_ns_ = 0;
};

}  // namespace cw::replay
