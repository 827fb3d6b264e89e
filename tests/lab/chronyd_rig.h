// SPDX-License-Identifier: Apache-2.0
//
// A real chronyd with one reference clock. It runs with -x: it never touches this machine's clock. It has a
// configuration, folder and sockets of its own, opens no port, and runs as the user that the distribution gives it.
// Ends with the object, or after 100 s. Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cw::lab {

class ChronydRig {
 public:
  static absl::StatusOr<std::unique_ptr<ChronydRig>> Create();
  ~ChronydRig();
  ChronydRig(const ChronydRig&) = delete;
  ChronydRig& operator=(const ChronydRig&) = delete;

  // Where a SOCK reference clock belongs; chronyd makes it.
  std::string SockPath() const { return run_ + "/cwfabric.sock"; }
  const std::string& folder() const { return folder_; }

  // refclock: "SOCK path" or "SHM unit".
  absl::Status Start(const std::string& refclock);

  // The reference clock is selected, and chronyd says that this machine's clock is behind it by offset_s. what:
  // chronyc's own words, for messages.
  bool Follows(double offset_s, double tolerance_s, std::string* what) const;
  std::string Log() const;

 private:
  ChronydRig() = default;
  std::string Chronyc(const std::string& command) const;

  std::string folder_, run_, user_;
  pid_t process_ = -1;
};

}  // namespace cw::lab
