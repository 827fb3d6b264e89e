// SPDX-License-Identifier: Apache-2.0
//
// A JSON object in a file that outlives a process, not the boot: its times are CLOCK_MONOTONIC's, its flows this
// kernel's. Thread rule: one writer.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace cw {

class BootFile {
 public:
  // boot: names this boot of the kernel (BootId), "": it is not known, and nothing is read. version: of what the object
  // means.
  BootFile(std::string path, std::string boot, int version);

  // take may throw what nlohmann::json throws. NotFound: no file, or of an earlier boot. InvalidArgument: not to be
  // read, of another version, or take threw.
  absl::Status Load(absl::FunctionRef<void(const nlohmann::json&)> take) const;
  // A process that is killed leaves the old file or the new one. The disk need not have it: a file that the power took
  // is of an earlier boot.
  absl::Status Save(nlohmann::json state) const;
  absl::Status Remove() const;  // OK, too, where there is none

 private:
  const std::string path_, boot_;
  const int version_;
};

}  // namespace cw
