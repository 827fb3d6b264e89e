// SPDX-License-Identifier: Apache-2.0
//
// A token bucket (tc-tbf(8)) behind an HTB class of a port, opened and shut by one netlink message that the kernel
// answers: a tc of one's own takes milliseconds to start, and one that reads commands does not say when it has obeyed.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cw::lab {

class TbfPort {
 public:
  struct Place {
    std::string netns_path;
    int ifindex = 0;
    uint32_t parent = 0;  // the class
    uint32_t handle = 0;  // of the bucket
    int mtu = 0;
  };
  static absl::StatusOr<std::unique_ptr<TbfPort>> Open(const Place& place);
  ~TbfPort();
  TbfPort(const TbfPort&) = delete;
  TbfPort& operator=(const TbfPort&) = delete;

  // Adds the bucket, open.
  absl::Status Add();
  // One packet, which may as well have been on the wire, still leaves. Nothing that is queued is lost, up to 64 MiB.
  absl::Status Shut();
  // Returns when what is queued goes on.
  absl::Status Let();

 private:
  explicit TbfPort(Place place) : place_(std::move(place)) {}
  absl::Status Send(bool shut, bool create);
  absl::Status Kick();

  const Place place_;
  int netlink_ = -1;
  int packet_ = -1;
  uint32_t sequence_ = 0;
};

}  // namespace cw::lab
