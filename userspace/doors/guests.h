// SPDX-License-Identifier: Apache-2.0
//
// How many connections one guest, and all together, may have. Whoever owns a descriptor afterwards closes it without a
// word to this table: it looks at the sockets' inodes again when a limit is reached.
// Thread rule: one owner.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace cw::doors {

struct GuestLimits {
  size_t each = 32;  // connections of one guest (an address, a user)
  size_t all = 256;
};

class Guests {
 public:
  explicit Guests(GuestLimits limits) : limits_(limits) {}

  enum class Answer { kIn, kTooManyOfIts, kTooManyInAll };
  // kIn: fd, an open socket, counts as the guest's until it is closed.
  Answer Admit(int fd, const std::string& guest);
  // The guest's, the oldest first; some may be closed by now.
  std::vector<int> Of(const std::string& guest) const;
  // It is being closed, and counts no more.
  void Leave(int fd, const std::string& guest);
  // Of all guests, as far as is known: without a new look.
  size_t count() const { return count_; }

 private:
  struct Place {
    int fd;
    ino_t inode;
  };
  void LookAgain(std::vector<Place>& places);
  void LookAtAll();

  const GuestLimits limits_;
  std::map<std::string, std::vector<Place>> places_;
  size_t count_ = 0;
};

// Of the socket behind a descriptor; 0: there is none. Inodes of sockets are numbers of their own: a descriptor that is
// used again has another one.
ino_t InodeOf(int fd);

// Share of the limit on open files that a door may take where it is less than `wanted`: what has to be written keeps
// its descriptors.
size_t ShareOfDescriptors(size_t wanted, size_t part);

// The soft limit on open files up to the hard one.
void RaiseDescriptors();
// FailedPrecondition: the limit leaves too few for what a program always has open, and for a few who come.
absl::Status EnoughDescriptors();

}  // namespace cw::doors
