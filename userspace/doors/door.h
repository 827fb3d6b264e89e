// SPDX-License-Identifier: Apache-2.0
//
// Accepts by itself what others serve: libraries' own listeners take whoever comes, and stop for good when descriptors
// run out. Who connects and says nothing waits here, at the price of a socket, and is sent away after a while. Who says
// something is handed on, guest by guest in turn, while there are few of whom nobody knows who they are (newcomers.h).
// Each guest, and all together, have so many places; where one is needed, the oldest goes of whom nothing is known.
// Thread rule: one owner; `screen` and `admit` are called on the door's thread.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "maps/unique_fd.h"
#include "userspace/doors/guests.h"
#include "userspace/doors/listener.h"
#include "userspace/doors/newcomers.h"

namespace cw::doors {

// Of TCP, without the port; "": not known.
std::string AddressOf(const sockaddr_storage& from);
// "10.0.0.1:5", "fd00::1:5"; "": not known.
std::string PeerOf(const sockaddr_storage& from);
std::string PeerOf(const std::string& address, uint16_t port);

struct DoorSpec {
  GuestLimits limits;
  NewcomerLimits newcomers;
  absl::Duration silent = absl::Seconds(5);  // a client speaks first, and soon
  // Who it is, among whom places are counted; nullopt sends it away. Without: its address.
  std::function<std::optional<std::string>(int fd, const sockaddr_storage& from)> screen;
  std::function<void(maps::UniqueFd fd, const sockaddr_storage& from)> admit;
};

struct DoorCounts {
  uint64_t admitted = 0;
  uint64_t screened = 0;        // sent away by `screen`
  uint64_t silent = 0;          // said nothing for too long, or had to go for others
  uint64_t too_many = 0;        // of one guest
  uint64_t full = 0;            // too many in all
  uint64_t no_descriptors = 0;  // accepted and closed
  uint64_t ended = 0;           // newcomers that had to go for others
  uint64_t crowding = 0;        // known ones with too many connections
};

class Door {
 public:
  static absl::StatusOr<std::unique_ptr<Door>> Open(std::vector<Listener> listeners, DoorSpec spec);
  void Start();  // once; until then those who come wait in the kernel
  ~Door();
  void Close();  // nobody comes any more, and no call is running when it returns
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // Any thread.
  DoorCounts counts() const;
  bool Answers(absl::Duration patience);  // its loop turns
  // Whoever serves a connection says with each call who it is. peer: PeerOf.
  void Known(const std::string& peer, const std::string& who);

 private:
  struct Loop;
  explicit Door(std::unique_ptr<Loop> loop);

  const std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace cw::doors
