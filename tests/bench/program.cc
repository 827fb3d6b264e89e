// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/program.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cw::bench {

absl::StatusOr<std::string> FindProgram(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (absl::string_view folder : absl::StrSplit(absl::StrCat(path ? path : "", ":/usr/sbin:/usr/bin:/sbin"), ':')) {
    const std::string file = absl::StrCat(folder, "/", name);
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return absl::NotFoundError(absl::StrCat(name, " is not installed; packaging/deps/install.sh bench installs it"));
}

}  // namespace cw::bench
