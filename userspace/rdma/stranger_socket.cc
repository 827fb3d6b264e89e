// SPDX-License-Identifier: Apache-2.0
#include "userspace/rdma/stranger_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

namespace cw::rdma {
namespace {

constexpr int kMostTaken = 256;  // messages of a connection that is ended; what has more is discarded elsewhere

// The child's part: async-signal-safe calls only. `kept` is sorted; all else is let go before anything can wait.
[[noreturn]] void HoldUntilReleased(const std::vector<int>& kept, int release) {
  unsigned next = 0;
  for (const int fd : kept) {
    if (static_cast<unsigned>(fd) > next) (void)close_range(next, static_cast<unsigned>(fd) - 1, 0);
    next = static_cast<unsigned>(fd) + 1;
  }
  (void)close_range(next, UINT_MAX, 0);
  char byte;
  while (read(release, &byte, 1) < 0 && errno == EINTR) {
  }
  _exit(0);  // memory goes first, then descriptors
}

// Messages without descriptors are taken; true: nothing is left that could hold any.
bool Emptied(int fd) {
  for (int i = 0; i < kMostTaken; ++i) {
    char byte;
    switch (Peek(fd)) {
      case Next::kMessage:
        (void)recv(fd, &byte, 1, MSG_DONTWAIT);
        break;
      case Next::kNothing:
      case Next::kEnd:
        return true;
      case Next::kDescriptors:
      case Next::kBroken:
        return false;
    }
  }
  return false;
}

}  // namespace

bool RefuseDescriptors(int listener) {
  const int no = 0;
  return setsockopt(listener, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no)) == 0;
}

bool TellMessagesFromTheEnd(int fd) {
  const int yes = 1;
  return setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) == 0;
}

// The sender's credentials come first and fill the room, so that a descriptor finds none; the end has none.
Next Peek(int fd) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  char byte;
  iovec bytes{&byte, 1};
  msghdr message{};
  ssize_t size;
  do {
    message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    size = recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (size < 0 && (errno == ECONNRESET || errno == EINTR));  // told once; what was sent before is still there
  if (size < 0) return errno == EAGAIN ? Next::kNothing : Next::kBroken;
  if ((message.msg_flags & MSG_CTRUNC) != 0) return Next::kDescriptors;
  return CMSG_FIRSTHDR(&message) != nullptr ? Next::kMessage : Next::kEnd;
}

void Discards::End(int fd) {
  shutdown(fd, SHUT_RDWR);  // nothing more comes in
  if (Emptied(fd)) {
    close(fd);
  } else {
    waiting_.push_back(fd);
  }
}

void Discards::Start() {
  int release[2];
  if (waiting_.empty() || children_.size() >= kMostChildren || pipe2(release, O_CLOEXEC) != 0) return;
  std::vector<int> kept = waiting_;
  kept.push_back(release[0]);
  std::sort(kept.begin(), kept.end());
  const pid_t child = _Fork();  // no handlers of other libraries: the child calls none of them
  if (child == 0) HoldUntilReleased(kept, release[0]);
  close(release[0]);
  if (child > 0) {
    children_.push_back(child);
    for (const int fd : waiting_) close(fd);  // the child has it still: nothing ends here
    waiting_.clear();
  }
  close(release[1]);
}

void Discards::Work() {
  children_.erase(
      std::remove_if(children_.begin(), children_.end(), [](pid_t p) { return waitpid(p, nullptr, WNOHANG) != 0; }),
      children_.end());
  Start();
}

Discards::~Discards() {
  Work();
  // What no process could be made for is left to the end of this one.
}

}  // namespace cw::rdma
