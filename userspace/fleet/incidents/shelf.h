// SPDX-License-Identifier: Apache-2.0
//
// The folder of incidents, one file each. Bounded in number and bytes: the oldest goes first. What was left half made
// by a service that ended is removed when it is opened.
//
// Errors are Status. Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/fleet/incidents/bundle.h"

namespace cw::fleet {

struct ShelfLimits {
  uint64_t bytes = uint64_t{4} << 30;
  size_t incidents = 200;
};

class Shelf {
 public:
  // `tell`: one sentence each time that an incident is removed for another one.
  static absl::StatusOr<std::unique_ptr<Shelf>> Open(const std::string& folder, const ShelfLimits& limits,
                                                     std::function<void(const std::string&)> tell);

  std::string PathOf(const std::string& id) const { return folder_ + "/" + id + kEnding; }
  // NotFound: there is none, or it is no id at all.
  absl::StatusOr<std::string> Find(const std::string& id) const;
  // A file was finished: it is on the shelf, and the oldest go where it is one too many.
  void Put(const cwfabric::v1::Incident& head);
  std::vector<cwfabric::v1::Incident> List() const;  // the newest first, in short
  uint64_t removed() const { return removed_; }

 private:
  static constexpr char kEnding[] = ".incident";
  struct Entry {
    cwfabric::v1::Incident head;
    uint64_t bytes = 0;
  };
  Shelf(std::string folder, const ShelfLimits& limits, std::function<void(const std::string&)> tell)
      : folder_(std::move(folder)), limits_(limits), tell_(std::move(tell)) {}
  absl::Status Load();
  void Keep(cwfabric::v1::Incident head);
  void MakeRoom();

  const std::string folder_;
  const ShelfLimits limits_;
  const std::function<void(const std::string&)> tell_;
  std::map<std::pair<int64_t, std::string>, Entry> entries_;  // by when it was taken, and id
  uint64_t removed_ = 0;
};

}  // namespace cw::fleet
