// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/session_keeper.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace cw::agent {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kStepNs = 2 * kSecondNs;  // CLOCK_MONOTONIC is slewed with the wall clock, so the rest are steps

bool Later(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) > 0; }

uint32_t After(uint32_t session) { return session + 1 == 0 ? 1 : session + 1; }

// 0: there is none yet.
absl::StatusOr<uint32_t> Read(const std::string& file) {
  std::ifstream in(file);
  if (!in) return errno == ENOENT ? absl::StatusOr<uint32_t>(0) : absl::ErrnoToStatus(errno, "read " + file);
  std::string text;
  uint32_t session = 0;
  if (!std::getline(in, text) || !absl::SimpleAtoi(text, &session) || session == 0) {
    return absl::DataLossError(absl::StrCat(file, " holds no session; it is written anew"));
  }
  return session;
}

absl::Status WriteAll(int fd, const std::string& path, const std::string& text) {
  const ssize_t n = write(fd, text.data(), text.size());
  if (n == static_cast<ssize_t>(text.size()) && fsync(fd) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(n < 0 || errno != 0 ? errno : EIO, absl::StrCat("write ", path));
}

}  // namespace

absl::Status SessionKeeper::Begin(uint32_t pinned, int64_t wall_ns, int64_t monotonic_ns) {
  const absl::StatusOr<uint32_t> kept = Read(file_);
  session_ = static_cast<uint32_t>(wall_ns / kSecondNs);
  if (session_ == 0) session_ = 1;
  for (const uint32_t before : {pinned, kept.value_or(0)}) {
    if (before != 0 && !Later(session_, before)) session_ = After(before);
  }
  wall_less_monotonic_ns_ = wall_ns - monotonic_ns;
  const absl::Status written = Keep();
  return written.ok() ? kept.status() : written;
}

bool SessionKeeper::Due(int64_t wall_ns, int64_t monotonic_ns) const {
  return wall_ns - monotonic_ns - wall_less_monotonic_ns_ >= kStepNs;
}

// By a rename, so that a host that loses power has the old one or the new one.
absl::Status SessionKeeper::Keep() const {
  const std::filesystem::path folder = std::filesystem::path(file_).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrCat("make ", folder.string(), ": ", error.message()));
  const std::string fresh = file_ + ".new";
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("write ", fresh));
  const auto close_fd = absl::MakeCleanup([fd] { close(fd); });
  if (absl::Status status = WriteAll(fd, fresh, absl::StrCat(session_, "\n")); !status.ok()) return status;
  if (std::rename(fresh.c_str(), file_.c_str()) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("write ", file_));
  const int in = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (in < 0) return absl::OkStatus();  // the name may be lost with the power
  (void)fsync(in);
  close(in);
  return absl::OkStatus();
}

}  // namespace cw::agent
