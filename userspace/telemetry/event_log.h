// SPDX-License-Identifier: Apache-2.0
//
// What happened and why: verdicts, moves, changes of mode, with the evidence they rest on. The newest `capacity` are
// kept; each has a number, so a reader sees when some were lost. Optionally appended to a file as one JSON object a
// line. Thread rule: any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/model/evidence.h"

namespace cw::telemetry {

enum class Severity : uint8_t { kInfo = 1, kNotice = 2, kAlert = 3 };

struct Event {
  uint64_t seq = 0;          // set by the log; from 1
  uint64_t run = 0;          // set by the log: which run of the agent seq counts in
  int64_t time_unix_ns = 0;  // set by the log when 0
  // userspace/model/event_types.h
  std::string type;
  Severity severity = Severity::kInfo;
  std::string text;  // one sentence
  std::string flow;  // id, "" = none
  std::string peer;  // name, "" = none
  int slot = -1;     // path concerned or left, −1 = none
  int to_slot = -1;  // path taken, −1 = none
  bool dry = false;  // observe mode: it would have been done
  Evidence evidence;
};

// One JSON object, with the newline; what is not set is left out.
std::string ToJsonLine(const Event& event);

class EventLog {
 public:
  explicit EventLog(size_t capacity = 16384);
  // Random, not 0: another one with each start of the agent. {run, seq} names an event for ever.
  uint64_t run() const { return run_; }
  // Appends to the file from now on. A file that cannot be written later is an error in `file_error`, never a loss
  // here.
  absl::Status OpenFile(const std::string& path);
  ~EventLog();

  uint64_t Add(Event event);  // its seq
  // Events with seq > after, oldest first, at most `limit`.
  std::vector<Event> After(uint64_t after, size_t limit = SIZE_MAX) const;
  // The same, waiting up to `wait` for one.
  std::vector<Event> WaitAfter(uint64_t after, absl::Duration wait) const;
  uint64_t newest() const;
  uint64_t oldest() const;  // seq of the oldest kept; 0 when empty
  std::string file_error() const;

 private:
  void WriteLine(const std::string& line);  // mutex_ is held

  const size_t capacity_;
  const uint64_t run_;
  mutable std::mutex mutex_;
  mutable std::condition_variable added_;
  std::deque<Event> events_;
  uint64_t next_seq_ = 1;
  int file_ = -1;
  bool torn_ = false;  // the file ends within a line
  std::string file_error_;
};

}  // namespace cw::telemetry
