// SPDX-License-Identifier: Apache-2.0
// The host's end of the command channel of a virtual machine: runs shell lines in it, many at once, each with output,
// input and exit code of its own.
//
// Thread rule: every call may come from any thread. A Command may outlive its Channel; it then reports that it is gone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cw::vm {

struct CommandResult {
  int exit_code = 0;   // 128 + signal when killed, 127 when the shell was not found
  std::string output;  // standard output and error, as written
};

class ChannelState;

// A command in the machine. Destruction kills it (with its process group) if it still runs.
class Command {
 public:
  Command(std::shared_ptr<ChannelState> state, uint32_t id, std::string line);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  // The result, once it has ended. DeadlineExceeded leaves it running and tells the output so far.
  absl::StatusOr<CommandResult> Wait(absl::Duration timeout);
  // Waits until the output contains `text`; FailedPrecondition when the command ends without it.
  absl::Status WaitForOutput(const std::string& text, absl::Duration timeout);
  bool running() const;
  std::string output() const;
  void Signal(int signal);

 private:
  std::shared_ptr<ChannelState> state_;
  uint32_t id_;
  std::string line_;
};

class Channel {
 public:
  // Takes the connected stream socket.
  explicit Channel(int fd);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Until the command server answers. Unavailable when the other end closed first.
  absl::Status WaitReady(absl::Duration timeout);
  // `input` is what the command reads from standard input, then end of file.
  absl::StatusOr<std::unique_ptr<Command>> Start(const std::string& line, const std::string& input = "");
  // Runs to the end; at the deadline the command is killed.
  absl::StatusOr<CommandResult> Exec(const std::string& line, absl::Duration timeout, const std::string& input = "");

 private:
  std::shared_ptr<ChannelState> state_;
};

}  // namespace cw::vm
