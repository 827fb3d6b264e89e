// SPDX-License-Identifier: Apache-2.0
#include "userspace/model/boot_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cw {

using nlohmann::json;

BootFile::BootFile(std::string path, std::string boot, int version)
    : path_(std::move(path)), boot_(std::move(boot)), version_(version) {}

absl::Status BootFile::Load(absl::FunctionRef<void(const json&)> take) const {
  std::ifstream file(path_);
  if (!file) return absl::NotFoundError(absl::StrCat("there is no ", path_));
  try {
    const json state = json::parse(file);
    if (boot_.empty() || state.at("boot").get<std::string>() != boot_)
      return absl::NotFoundError(absl::StrCat(path_, " is of an earlier boot"));
    if (state.value("version", version_) != version_)
      return absl::InvalidArgumentError(absl::StrCat(path_, " is of another version"));
    take(state);
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", error.what()));
  }
  return absl::OkStatus();
}

absl::Status BootFile::Save(json state) const {
  state["boot"] = boot_;
  state["version"] = version_;
  const std::string fresh = path_ + ".new";
  std::ofstream out(fresh, std::ios::trunc);
  out << state.dump(2, ' ', false, json::error_handler_t::replace) << '\n';
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", fresh));
  if (std::rename(fresh.c_str(), path_.c_str()) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("write ", path_));
  return absl::OkStatus();
}

absl::Status BootFile::Remove() const {
  if (unlink(path_.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("remove ", path_));
}

}  // namespace cw
