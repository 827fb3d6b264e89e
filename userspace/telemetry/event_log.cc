// SPDX-License-Identifier: Apache-2.0
#include "userspace/telemetry/event_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "userspace/model/regular_file.h"
#include "userspace/model/run_id.h"

namespace cw::telemetry {
namespace {

const char* SeverityName(Severity s) {
  switch (s) {
    case Severity::kInfo:
      return "info";
    case Severity::kNotice:
      return "notice";
    case Severity::kAlert:
      return "alert";
  }
  return "info";
}

}  // namespace

std::string ToJsonLine(const Event& e) {
  nlohmann::ordered_json j;
  if (e.seq != 0) j["seq"] = e.seq;
  if (e.run != 0) j["run"] = absl::StrCat(absl::Hex(e.run, absl::kZeroPad16));  // no number: JSON's have 53 bits
  j["time"] = absl::FormatTime(absl::RFC3339_full, absl::FromUnixNanos(e.time_unix_ns), absl::UTCTimeZone());
  if (!e.type.empty()) j["type"] = e.type;
  j["severity"] = SeverityName(e.severity);
  j["text"] = e.text;
  if (!e.flow.empty()) j["flow"] = e.flow;
  if (!e.peer.empty()) j["peer"] = e.peer;
  if (e.slot >= 0) j["path"] = e.slot;
  if (e.to_slot >= 0) j["to_path"] = e.to_slot;
  if (e.dry) j["dry"] = true;
  if (!e.evidence.empty()) {
    auto& evidence = j["evidence"] = nlohmann::ordered_json::object();
    for (const auto& [name, value] : e.evidence) evidence[name] = value;
  }
  // Text that is not UTF-8 (a name from a peer) is replaced, not refused.
  return j.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

EventLog::EventLog(size_t capacity) : capacity_(capacity), run_(NewRun()) {}

absl::Status EventLog::OpenFile(const std::string& path) {
  if (absl::Status place = CheckPlaceOfFile(path); !place.ok()) return place;  // a FIFO takes 64 KiB, and then hangs us
  const int file = open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("cannot append events to ", path, ": check the path and its folder"));
  }
  const std::lock_guard lock(mutex_);
  if (file_ >= 0) close(file_);
  file_ = file;
  char last = '\n';
  const off_t end = lseek(file, 0, SEEK_END);
  torn_ = end > 0 && pread(file, &last, 1, end - 1) == 1 && last != '\n';
  file_error_.clear();
  return absl::OkStatus();
}

EventLog::~EventLog() {
  if (file_ >= 0) close(file_);
}

// Where a disk is full a part of a line may have been written: the next begins on a line of its own.
void EventLog::WriteLine(const std::string& line) {
  const std::string text = torn_ ? "\n" + line : line;
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = write(file_, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) break;
    done += static_cast<size_t>(wrote);
  }
  if (done > 0) torn_ = done < text.size();
  file_error_ = done < text.size() ? std::strerror(errno) : "";
}

uint64_t EventLog::Add(Event event) {
  if (event.time_unix_ns == 0) event.time_unix_ns = absl::GetCurrentTimeNanos();
  uint64_t seq = 0;
  {
    const std::lock_guard lock(mutex_);
    seq = event.seq = next_seq_++;
    event.run = run_;
    if (file_ >= 0) WriteLine(ToJsonLine(event));
    events_.push_back(std::move(event));
    if (events_.size() > capacity_) events_.pop_front();
  }
  added_.notify_all();
  return seq;
}

std::vector<Event> EventLog::After(uint64_t after, size_t limit) const {
  const std::lock_guard lock(mutex_);
  if (events_.empty() || after >= events_.back().seq) return {};
  const uint64_t skip = after < events_.front().seq ? 0 : after - events_.front().seq + 1;
  const size_t count = std::min(limit, events_.size() - static_cast<size_t>(skip));
  const auto first = events_.begin() + static_cast<std::ptrdiff_t>(skip);
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

std::vector<Event> EventLog::WaitAfter(uint64_t after, absl::Duration wait) const {
  {
    std::unique_lock lock(mutex_);
    added_.wait_for(lock, absl::ToChronoNanoseconds(wait), [&] { return next_seq_ > after + 1; });
  }
  return After(after);
}

uint64_t EventLog::newest() const {
  const std::lock_guard lock(mutex_);
  return next_seq_ - 1;
}

uint64_t EventLog::oldest() const {
  const std::lock_guard lock(mutex_);
  return events_.empty() ? 0 : events_.front().seq;
}

std::string EventLog::file_error() const {
  const std::lock_guard lock(mutex_);
  return file_error_;
}

}  // namespace cw::telemetry
