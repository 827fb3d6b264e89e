// SPDX-License-Identifier: Apache-2.0
//
// Frames put onto a switch port, past its queue, as often as asked or as the machine can, and a look at what goes over
// that port. Needs CAP_NET_RAW. Threads: one, besides the sender's own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "maps/unique_fd.h"

namespace cw::bench {

class FloodSender {
 public:
  // netns: a path, as in userspace/lab/netns.h; device: the port in it.
  static absl::StatusOr<std::unique_ptr<FloodSender>> Open(const std::string& netns, const std::string& device);
  ~FloodSender();

  // pps: frames a second, 0: as many as it can. After Stop, again.
  void Start(const std::string& frame, double pps);
  void Stop();
  uint64_t sent() const { return sent_.load(); }        // taken by the port since Open
  uint64_t refused() const { return refused_.load(); }  // of which there was no room for

 private:
  explicit FloodSender(maps::UniqueFd socket) : socket_(std::move(socket)) {}
  void Loop(const std::string& frame, double pps);

  maps::UniqueFd socket_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> sent_{0}, refused_{0};
  std::thread thread_;
};

// Shows each frame that crosses the port, and whether it leaves the switch by it, until `see` returns true.
// DeadlineExceeded: it did not within `limit`.
absl::Status WatchPort(const std::string& netns, const std::string& device, absl::Duration limit,
                       const std::function<bool(const std::string& frame, bool leaves)>& see);

}  // namespace cw::bench
