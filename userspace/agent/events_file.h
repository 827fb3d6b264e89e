// SPDX-License-Identifier: Apache-2.0
//
// The file that events are written to, and whether it can be. Thread rule: the agent's loop.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "userspace/agent/journal.h"

namespace cw::agent {

class EventsFile {
 public:
  // file: "" for none. The journal outlives it.
  EventsFile(std::string file, Journal& journal) : file_(std::move(file)), journal_(journal) {}

  absl::Status Open() { return file_.empty() ? absl::OkStatus() : journal_.log().OpenFile(file_); }
  // Tells once that it cannot be written, and once that it can again: each event tries anew.
  void Look();

 private:
  const std::string file_;
  Journal& journal_;
  bool fails_ = false;
};

}  // namespace cw::agent
