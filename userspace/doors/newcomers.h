// SPDX-License-Identifier: Apache-2.0
//
// Connections that were handed on: newcomers until whoever serves them says who they are, known from then on. A
// newcomer may be in the middle of a handshake, which costs memory, so there are so many at once. Where others wait one
// ends that has taken far longer than those who became known lately do: on a slow machine all take long. Of each guest
// (an address) it is counted how many are not known, since before they were handed on. A known guest (a certificate)
// has so many connections; the one used longest ago ends. Others own the descriptors: a connection is ended by
// shutdown(2), after a look at its inode. (Its number may be another's between these two calls; that one has to connect
// again.) Thread rule: any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace cw::doors {

struct NewcomerLimits {
  size_t most = 0;                             // at once; 0: any number, and nobody is ended for others
  absl::Duration patience = absl::Seconds(1);  // at least, where others wait
  size_t of_one = 32;                          // connections of one who is known
};

class Newcomers {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit Newcomers(const NewcomerLimits& limits) : limits_(limits) {}

  // Of somebody who is not known, when he comes and, where he was not handed on, when he goes.
  void Came(const std::string& guest);
  void Went(const std::string& guest);
  // The guest with the most of those, and how many.
  std::pair<std::string, size_t> Largest();

  // One more may be handed on. Ends one that has had its time.
  bool HasSpace(Time now);
  // peer: address and port; "": not known, so it is no newcomer. guest: among whom its places are counted.
  void Add(int fd, const std::string& peer, const std::string& guest, Time now);
  // The number is another connection's from now on.
  void Forget(int fd);
  // Ended, if it is a newcomer.
  bool End(int fd);
  std::optional<std::pair<int, std::string>> EndOldest();  // its descriptor and guest
  // With each call. True: it was a newcomer until now.
  bool Known(const std::string& peer, const std::string& who, Time now = std::chrono::steady_clock::now());

  uint64_t ended() const { return ended_; }        // newcomers, for others
  uint64_t crowding() const { return crowding_; }  // of one who has too many

 private:
  struct Connection {
    int fd;
    ino_t inode;
    std::string peer, guest;
    Time since;
    std::string who;
  };
  using Place = std::list<Connection>::iterator;

  static bool Lives(const Connection& connection);
  static void Shut(const Connection& connection);
  void Erase(Place newcomer);
  void Count(const std::string& guest, int change);
  void EraseDead(Time now);
  void Leave(const std::string& peer);
  void KeepFew(std::list<Connection>& its);
  void LookAtKnown();

  const NewcomerLimits limits_;
  std::mutex mutex_;                 // of all below
  std::list<Connection> newcomers_;  // the oldest first
  std::map<std::string, Place> by_peer_;
  std::map<int, Place> by_fd_;
  std::map<std::string, std::list<Connection>> known_;  // by who; the one used longest ago first
  std::map<std::string, Place> known_by_peer_;
  size_t look_at_ = 1024;                             // known ones
  std::map<std::string, size_t> counts_;              // of those who are not known, by guest
  std::set<std::pair<size_t, std::string>> by_size_;  // the same
  absl::Duration typical_ = absl::ZeroDuration();     // from being handed on to being known
  Time looked_{};
  std::atomic<uint64_t> ended_ = 0, crowding_ = 0;
};

}  // namespace cw::doors
