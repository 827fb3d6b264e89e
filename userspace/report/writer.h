// SPDX-License-Identifier: Apache-2.0
//
// Appends items to a file that bounds itself: at half of most_bytes FILE becomes FILE.1, in place of the one before.
// What an earlier process left is gone on with; a line that it tore is ended, so that readers skip that one alone.
// One thread per object.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/report/item.h"

namespace cw::report {

class Writer {
 public:
  static absl::StatusOr<std::unique_ptr<Writer>> Open(const std::string& file, uint64_t most_bytes);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // After an error (a full disk) the next item is tried again.
  absl::Status Add(const Item& item);

 private:
  Writer(std::string file, uint64_t most_bytes) : file_(std::move(file)), most_bytes_(most_bytes) {}
  absl::Status OpenFile();

  const std::string file_;
  const uint64_t most_bytes_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
};

}  // namespace cw::report
