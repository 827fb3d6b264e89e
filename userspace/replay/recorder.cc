// SPDX-License-Identifier: Apache-2.0
#include "userspace/replay/recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "userspace/control/contention_rules.h"
#include "userspace/model/regular_file.h"

namespace cw::replay {

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Open(const std::string& file, uint64_t most_bytes, RecordedBy by,
                                                         const control::ContentionState& state) {
  std::unique_ptr<Recorder> recorder(new Recorder(file, most_bytes, std::move(by)));
  if (absl::Status status = recorder->Begin(state); !status.ok()) return status;
  return recorder;
}

Recorder::~Recorder() {
  if (fd_ >= 0) close(fd_);
}

absl::Status Recorder::Begin(const control::ContentionState& state) {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  if (absl::Status place = CheckPlaceOfFile(file_); !place.ok()) return place;
  const std::string before = file_ + ".1";
  if (std::rename(file_.c_str(), before.c_str()) != 0 && errno != ENOENT)
    return absl::ErrnoToStatus(errno, absl::StrCat("rename ", file_));
  fd_ = open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
  if (fd_ < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", file_));
  bytes_ = windows_ = 0;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  started_unix_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  const Head head{.host = by_.host,
                  .version = by_.version,
                  .started_unix_ns = started_unix_ns_,
                  .memory = control::Snapshot(state)};
  return Write(FileHead() + Record(kHead, Encode(head)));
}

absl::Status Recorder::Write(const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t wrote = write(fd_, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return absl::ErrnoToStatus(wrote < 0 ? errno : EIO, absl::StrCat("write ", file_));
    done += static_cast<size_t>(wrote);
  }
  bytes_ += bytes.size();
  return absl::OkStatus();
}

absl::Status Recorder::Add(const control::Observation& seen, const control::Decision& decided,
                           const control::ContentionState& after) {
  if (fd_ < 0) return absl::FailedPreconditionError(absl::StrCat(file_, " is not written any more"));
  absl::Status status = Write(Record(kWindow, Encode(seen, decided)));
  ++windows_;
  if (status.ok() && bytes_ >= most_bytes_) status = Begin(after);
  if (!status.ok() && fd_ >= 0) {
    close(fd_);
    fd_ = -1;
  }
  return status;
}

}  // namespace cw::replay
