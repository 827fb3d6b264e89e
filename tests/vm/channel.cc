// SPDX-License-Identifier: Apache-2.0
#include "tests/vm/channel.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "tests/vm/channel_wire.h"

namespace cw::vm {

class ChannelState {
 public:
  explicit ChannelState(int fd) : fd_(fd), reader_([this] { Read(); }) {}

  ~ChannelState() { close(fd_); }

  void Close() {
    shutdown(fd_, SHUT_RDWR);
    reader_.join();
  }

  struct Entry {
    std::string output;
    bool ended = false;
    uint32_t exit_code = 0;
  };

  absl::Status Send(uint32_t command, FrameKind kind, const char* data, size_t length);
  absl::StatusOr<uint32_t> Start(const std::string& line, const std::string& input);
  void Forget(uint32_t id) {
    absl::MutexLock lock(&mutex_);
    entries_.erase(id);
  }

  // Waits until `done(entry)`, the end of the command, or that of the channel; `done` sees entry 0 for the channel
  // itself.
  template <typename Done>
  absl::StatusOr<Entry> Await(uint32_t id, absl::Duration timeout, Done done) {
    absl::MutexLock lock(&mutex_);
    auto condition = [&] { return closed_ || done(entries_[id]); };
    bool in_time = mutex_.AwaitWithTimeout(absl::Condition(&condition), timeout);
    if (!done(entries_[id])) {
      if (!in_time) return absl::DeadlineExceededError(absl::StrFormat("not done after %s", FormatDuration(timeout)));
      return absl::UnavailableError("the virtual machine closed its command channel");
    }
    return entries_[id];
  }

  Entry Look(uint32_t id) {
    absl::MutexLock lock(&mutex_);
    Entry entry = entries_[id];
    entry.ended = entry.ended || closed_;
    return entry;
  }

 private:
  void Read();
  void Handle(const FrameHeader& header, const char* data);

  const int fd_;
  absl::Mutex write_mutex_;  // one frame at a time; never held together with mutex_
  absl::Mutex mutex_;
  std::map<uint32_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // entry 0 "ends" when the server says that it is ready
  uint32_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread reader_;  // last: it uses the rest
};

absl::Status ChannelState::Send(uint32_t command, FrameKind kind, const char* data, size_t length) {
  absl::MutexLock lock(&write_mutex_);
  do {
    uint32_t part = static_cast<uint32_t>(std::min<size_t>(length, kMaxFrame));
    FrameHeader header{command, kind, 0, part};
    std::string frame(reinterpret_cast<const char*>(&header), sizeof(header));
    frame.append(data, part);
    for (size_t sent = 0; sent < frame.size();) {
      ssize_t n = send(fd_, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return absl::UnavailableError("the virtual machine closed its command channel");
      sent += static_cast<size_t>(n);
    }
    data += part;
    length -= part;
  } while (length > 0);
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> ChannelState::Start(const std::string& line, const std::string& input) {
  if (line.size() > kMaxFrame)
    return absl::InvalidArgumentError("the command line is longer than 64 KiB: Put a script");
  uint32_t id;
  {
    absl::MutexLock lock(&mutex_);
    id = next_++;
    entries_[id];
  }
  absl::Status status = Send(id, FrameKind::kRun, line.data(), line.size());
  if (status.ok() && !input.empty()) status = Send(id, FrameKind::kInput, input.data(), input.size());
  if (status.ok()) status = Send(id, FrameKind::kInputEnd, "", 0);
  if (!status.ok()) return status;
  return id;
}

void ChannelState::Handle(const FrameHeader& header, const char* data) {
  absl::MutexLock lock(&mutex_);
  if (header.kind == FrameKind::kReady) entries_[0].ended = true;
  auto it = entries_.find(header.command);
  if (it == entries_.end()) return;  // nobody waits for it any more
  if (header.kind == FrameKind::kOutput) it->second.output.append(data, header.length);
  if (header.kind == FrameKind::kExit && header.length == sizeof(uint32_t)) {
    memcpy(&it->second.exit_code, data, sizeof(uint32_t));
    it->second.ended = true;
  }
}

void ChannelState::Read() {
  std::string received;
  char buffer[kMaxFrame];
  for (;;) {
    ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    received.append(buffer, static_cast<size_t>(n));
    size_t used = 0;
    FrameHeader header;
    while (received.size() - used >= sizeof(header)) {
      memcpy(&header, received.data() + used, sizeof(header));
      if (received.size() - used < sizeof(header) + header.length) break;
      Handle(header, received.data() + used + sizeof(header));
      used += sizeof(header) + header.length;
    }
    received.erase(0, used);
  }
  absl::MutexLock lock(&mutex_);
  closed_ = true;
}

Command::Command(std::shared_ptr<ChannelState> state, uint32_t id, std::string line)
    : state_(std::move(state)), id_(id), line_(std::move(line)) {}

Command::~Command() {
  if (running()) Signal(SIGKILL);
  state_->Forget(id_);
}

absl::StatusOr<CommandResult> Command::Wait(absl::Duration timeout) {
  auto entry = state_->Await(id_, timeout, [](const ChannelState::Entry& e) { return e.ended; });
  if (!entry.ok()) {
    return absl::Status(entry.status().code(),
                        absl::StrFormat("`%s`: %s; output: %s", line_, entry.status().message(), output()));
  }
  return CommandResult{static_cast<int>(entry->exit_code), entry->output};
}

absl::Status Command::WaitForOutput(const std::string& text, absl::Duration timeout) {
  auto has_text = [&](const ChannelState::Entry& e) { return e.output.find(text) != std::string::npos; };
  auto entry = state_->Await(id_, timeout, [&](const ChannelState::Entry& e) { return e.ended || has_text(e); });
  if (entry.ok() && has_text(*entry)) return absl::OkStatus();
  std::string told = absl::StrFormat("`%s` did not print \"%s\"; output: %s", line_, text, output());
  return absl::Status(entry.ok() ? absl::StatusCode::kFailedPrecondition : entry.status().code(), told);
}

bool Command::running() const { return !state_->Look(id_).ended; }

std::string Command::output() const { return state_->Look(id_).output; }

void Command::Signal(int signal) {
  char byte = static_cast<char>(signal);
  state_->Send(id_, FrameKind::kSignal, &byte, 1).IgnoreError();  // a closed channel has no command left to signal
}

Channel::Channel(int fd) : state_(std::make_shared<ChannelState>(fd)) {}

Channel::~Channel() { state_->Close(); }

absl::Status Channel::WaitReady(absl::Duration timeout) {
  return state_->Await(0, timeout, [](const ChannelState::Entry& e) { return e.ended; }).status();
}

absl::StatusOr<std::unique_ptr<Command>> Channel::Start(const std::string& line, const std::string& input) {
  auto id = state_->Start(line, input);
  if (!id.ok()) return id.status();
  return std::make_unique<Command>(state_, *id, line);
}

absl::StatusOr<CommandResult> Channel::Exec(const std::string& line, absl::Duration timeout, const std::string& input) {
  auto command = Start(line, input);
  if (!command.ok()) return command.status();
  return (*command)->Wait(timeout);
}

}  // namespace cw::vm
