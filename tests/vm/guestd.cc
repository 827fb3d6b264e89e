// SPDX-License-Identifier: Apache-2.0
// cw_vm_guestd PORT: the command server in a virtual machine, and its first process once init.sh is done. Runs many
// commands at once for the host at the other end of PORT (a virtio-serial device, or a descriptor's number in tests).
// When the host goes away, the machine is switched off.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/vm/channel_wire.h"

namespace cw::vm {
namespace {

struct Command {
  pid_t pid = -1;
  int in = -1;   // written without blocking: a command that does not read must not stop the others
  int out = -1;  // read without blocking
  std::string input;
  bool input_ended = false;
};

class Server {
 public:
  Server(int port, int signals) : port_(port), signals_(signals) {}
  void Run();

 private:
  void Send(uint32_t command, FrameKind kind, const void* data, uint32_t length);
  void Handle(const FrameHeader& header, const char* data);
  void Start(uint32_t id, const std::string& line);
  void FeedInput(Command* command);
  bool ForwardOutput(uint32_t id, const Command& command);
  void Reap();
  bool ReadPort();

  int port_;
  int signals_;
  std::string received_;
  std::map<uint32_t, Command> commands_;
};

void WriteAll(int fd, const char* data, size_t length) {
  while (length > 0) {
    ssize_t n = write(fd, data, length);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // The host is gone; the next read says so.
    data += n;
    length -= static_cast<size_t>(n);
  }
}

void CloseOnce(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

void Server::Send(uint32_t command, FrameKind kind, const void* data, uint32_t length) {
  FrameHeader header{command, kind, 0, length};
  std::string frame(reinterpret_cast<const char*>(&header), sizeof(header));
  frame.append(static_cast<const char*>(data), length);
  WriteAll(port_, frame.data(), frame.size());
}

[[noreturn]] void RunShell(const std::string& line, int in, int out) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // of no account in a machine; in a test the server may be killed
  dup2(in, 0);
  dup2(out, 1);
  dup2(out, 2);
  execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
  _exit(127);
}

void Server::Start(uint32_t id, const std::string& line) {
  int in[2], out[2];
  uint32_t code = 126;
  if (pipe2(in, O_CLOEXEC) != 0) {
    Send(id, FrameKind::kExit, &code, sizeof(code));
    return;
  }
  if (pipe2(out, O_CLOEXEC) != 0) {
    close(in[0]);
    close(in[1]);
    Send(id, FrameKind::kExit, &code, sizeof(code));
    return;
  }
  pid_t pid = fork();
  if (pid == 0) RunShell(line, in[0], out[1]);
  close(in[0]);
  close(out[1]);
  if (pid < 0) {
    close(in[1]);
    close(out[0]);
    Send(id, FrameKind::kExit, &code, sizeof(code));
    return;
  }
  fcntl(in[1], F_SETFL, O_NONBLOCK);
  fcntl(out[0], F_SETFL, O_NONBLOCK);
  commands_[id] = Command{pid, in[1], out[0], {}, false};
}

void Server::FeedInput(Command* command) {
  while (command->in >= 0 && !command->input.empty()) {
    ssize_t n = write(command->in, command->input.data(), command->input.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) CloseOnce(&command->in);  // The command closed its input: it wants no more.
    if (n > 0) command->input.erase(0, static_cast<size_t>(n));
  }
  if (command->input_ended) CloseOnce(&command->in);
}

// False at the end of the output, or when there is nothing more for now.
bool Server::ForwardOutput(uint32_t id, const Command& command) {
  char buffer[kMaxFrame / 2];
  ssize_t n = read(command.out, buffer, sizeof(buffer));
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) return false;
  Send(id, FrameKind::kOutput, buffer, static_cast<uint32_t>(n));
  return true;
}

void Server::Handle(const FrameHeader& header, const char* data) {
  if (header.kind == FrameKind::kRun) {
    Start(header.command, std::string(data, header.length));
    return;
  }
  auto it = commands_.find(header.command);
  if (it == commands_.end()) return;  // It has just ended; its exit frame is on the way.
  Command& command = it->second;
  switch (header.kind) {
    case FrameKind::kInput:
      command.input.append(data, header.length);
      FeedInput(&command);
      break;
    case FrameKind::kInputEnd:
      command.input_ended = true;
      FeedInput(&command);
      break;
    case FrameKind::kSignal:
      if (header.length == 1) kill(-command.pid, data[0]);
      break;
    default:
      break;
  }
}

// As first process we inherit every orphan, so wait for any child.
void Server::Reap() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof(info)) > 0) {
  }
  int status = 0;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    for (auto it = commands_.begin(); it != commands_.end(); ++it) {
      if (it->second.pid != pid) continue;
      // What it wrote comes before its exit. A process that it left behind may hold the pipe open and even go on
      // writing, so neither wait for its end nor read much more than a pipe holds.
      for (int reads = 0; reads < 64 && it->second.out >= 0 && ForwardOutput(it->first, it->second); reads++) {
      }
      uint32_t code = static_cast<uint32_t>(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
      Send(it->first, FrameKind::kExit, &code, sizeof(code));
      CloseOnce(&it->second.in);
      CloseOnce(&it->second.out);
      commands_.erase(it);
      break;
    }
  }
}

bool Server::ReadPort() {
  char buffer[kMaxFrame];
  ssize_t n = read(port_, buffer, sizeof(buffer));
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  if (n == 0) return false;
  received_.append(buffer, static_cast<size_t>(n));
  size_t used = 0;
  FrameHeader header;
  while (received_.size() - used >= sizeof(header)) {
    memcpy(&header, received_.data() + used, sizeof(header));
    if (header.length > kMaxFrame) return false;
    if (received_.size() - used < sizeof(header) + header.length) break;
    Handle(header, received_.data() + used + sizeof(header));
    used += sizeof(header) + header.length;
  }
  received_.erase(0, used);
  return true;
}

void Server::Run() {
  Send(0, FrameKind::kReady, "", 0);
  for (;;) {
    std::vector<pollfd> fds = {{port_, POLLIN, 0}, {signals_, POLLIN, 0}};
    std::vector<uint32_t> ids;
    for (auto& [id, command] : commands_) {
      fds.push_back({command.out, POLLIN, 0});  // poll leaves descriptors below 0 out
      fds.push_back({command.input.empty() ? -1 : command.in, POLLOUT, 0});
      ids.push_back(id);
    }
    if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return;
    for (size_t i = 0; i < ids.size(); i++) {
      Command& command = commands_[ids[i]];
      if (fds[2 + 2 * i].revents & POLLIN) {
        ForwardOutput(ids[i], command);
      } else if (fds[2 + 2 * i].revents) {
        CloseOnce(&command.out);
      }
      if (fds[3 + 2 * i].revents) FeedInput(&command);
    }
    if (fds[1].revents) Reap();
    if (fds[0].revents && !ReadPort()) return;
  }
}

int Main(const char* port_name) {
  int port = isdigit(port_name[0]) ? atoi(port_name) : open(port_name, O_RDWR | O_CLOEXEC);
  if (port < 0) {
    fprintf(stderr, "cw_vm_guestd: %s: %s\n", port_name, strerror(errno));
    return 1;
  }
  fcntl(port, F_SETFD, FD_CLOEXEC);
  signal(SIGPIPE, SIG_IGN);
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, nullptr);
  Server(port, signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC)).Run();
  if (getpid() == 1) reboot(RB_POWER_OFF);
  return 0;
}

}  // namespace
}  // namespace cw::vm

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: cw_vm_guestd PORT\n");
    return 2;
  }
  return cw::vm::Main(argv[1]);
}
