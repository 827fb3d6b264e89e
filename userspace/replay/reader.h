// SPDX-License-Identifier: Apache-2.0
//
// Reads a file of observations record by record. What stands before a fault is given out; the fault is told with its
// offset. One thread per object.
#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/replay/format.h"

namespace cw::replay {

class Reader {
 public:
  // NotFound or PermissionDenied: the file cannot be opened. InvalidArgument: it is no file of observations, or its
  // head is cut or damaged. Unimplemented: of a newer release.
  static absl::StatusOr<std::unique_ptr<Reader>> Open(const std::string& file);
  // `name` stands in errors.
  static absl::StatusOr<std::unique_ptr<Reader>> Read(std::unique_ptr<std::istream> in, const std::string& name);

  const Head& head() const { return head_; }
  // nullopt: the file ends, as it should. DataLoss: it ends within a record, or a record is damaged; Unimplemented: a
  // record of a newer release. After an error there is nothing more.
  absl::StatusOr<std::optional<Window>> Next();
  uint64_t offset() const { return offset_; }  // of the next record

 private:
  struct RawRecord {
    uint32_t kind = 0;
    std::string payload;
  };
  Reader(std::unique_ptr<std::istream> in, std::string name) : in_(std::move(in)), name_(std::move(name)) {}
  absl::Status ReadHead();
  absl::StatusOr<std::optional<RawRecord>> NextRecord();
  std::string At(uint64_t offset) const;

  std::unique_ptr<std::istream> in_;
  std::string name_;
  Head head_;
  uint64_t offset_ = 0;
};

}  // namespace cw::replay
