// SPDX-License-Identifier: Apache-2.0
//
// A file of zeros beside the database, for the day when the disk is full: deleting from a database writes to it first.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <string>

namespace cw::fleet {

class Reserve {
 public:
  Reserve(std::string file, uint64_t bytes);  // makes it if there is room
  void Release();
  void Restore();  // as far as there is room, which is tried again each time

 private:
  std::string file_;
  uint64_t bytes_ = 0;
  bool held_ = false;
};

}  // namespace cw::fleet
