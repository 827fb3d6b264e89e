// SPDX-License-Identifier: Apache-2.0
//
// Makes packets overtake each other on a port of the lab, without losing any: one of `every` that leave by `device`
// takes a way around through this process, which keeps it for a while. For tests; this kernel need not have netem.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cw::lab {

class LatePackets {
 public:
  // In the network namespace of that path. The port keeps the program after this object; end the lab afterwards.
  static absl::StatusOr<std::unique_ptr<LatePackets>> On(const std::string& netns, const std::string& device,
                                                         uint32_t every, absl::Duration late);
  ~LatePackets();

 private:
  LatePackets() = default;
  absl::Status Open(const std::string& device, uint32_t every);
  void Carry(absl::Duration late);

  int tap_ = -1, out_ = -1;
  std::atomic<bool> end_ = false;
  std::thread carrier_;
};

}  // namespace cw::lab
