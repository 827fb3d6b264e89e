// SPDX-License-Identifier: Apache-2.0
#include "userspace/report/writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "userspace/model/regular_file.h"

namespace cw::report {

absl::StatusOr<std::unique_ptr<Writer>> Writer::Open(const std::string& file, uint64_t most_bytes) {
  std::unique_ptr<Writer> writer(new Writer(file, most_bytes));
  if (absl::Status status = writer->OpenFile(); !status.ok()) return status;
  return writer;
}

Writer::~Writer() {
  if (fd_ >= 0) close(fd_);
}

absl::Status Writer::OpenFile() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  if (absl::Status place = CheckPlaceOfFile(file_); !place.ok()) return place;
  fd_ = open(file_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  struct stat info {};
  if (fd_ < 0 || fstat(fd_, &info) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot append to ", file_, ": check the path and its folder"));
  bytes_ = static_cast<uint64_t>(info.st_size);
  char last = '\n';
  if (bytes_ > 0 && pread(fd_, &last, 1, info.st_size - 1) == 1 && last != '\n' && write(fd_, "\n", 1) == 1) ++bytes_;
  return absl::OkStatus();
}

absl::Status Writer::Add(const Item& item) {
  const std::string line = ToLine(item);
  if (fd_ < 0 || (bytes_ > 0 && bytes_ + line.size() > most_bytes_ / 2)) {
    const std::string before = file_ + ".1";
    if (fd_ >= 0 && std::rename(file_.c_str(), before.c_str()) != 0 && errno != ENOENT)
      return absl::ErrnoToStatus(errno, absl::StrCat("rename ", file_));
    if (absl::Status status = OpenFile(); !status.ok()) return status;
  }
  const ssize_t wrote = write(fd_, line.data(), line.size());
  if (wrote > 0) bytes_ += static_cast<uint64_t>(wrote);
  if (wrote == static_cast<ssize_t>(line.size())) return absl::OkStatus();
  const int error = wrote < 0 ? errno : ENOSPC;
  if (wrote > 0) (void)OpenFile();  // ends the torn line, where there is room for that
  return absl::ErrnoToStatus(error, absl::StrCat("write ", file_));
}

}  // namespace cw::report
