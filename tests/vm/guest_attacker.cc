// SPDX-License-Identifier: Apache-2.0
//
// What an attacker on a host, or on its network, does with plain sockets. Prints what came of it, a line.
//   hold ADDRESS N MS WHAT [SOURCES]  N connections that send WHAT and stay; SOURCES: from 127.0.1.1 on, so many
//   churn ADDRESS N                   connects and leaves
//   slow ADDRESS N MS                 asks for /metrics and reads nothing
//   get ADDRESS                       /metrics, once, as Prometheus does
//   messages ADDRESS N BYTES          noise
//   fds ADDRESS N PATH                descriptors of PATH in messages
//   fuse ADDRESS MS                   a descriptor of a FUSE file whose server never answers, held so long
//   flood HOST PORT N BYTES           UDP noise
//   babble PORT MS                    a server that sends noise to whoever connects
// ADDRESS: unix:PATH or HOST:PORT. WHAT: nothing, byte, noise, http, header (8 MiB of one), tls (half a ClientHello).
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/fuse_that_never_answers.h"

namespace {

using Clock = std::chrono::steady_clock;

std::string Noise(size_t bytes) {
  static std::mt19937 random(7);
  std::string out(bytes, 0);
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

std::string What(const std::string& what) {
  if (what == "byte") return "G";
  if (what == "noise") return Noise(4096);
  if (what == "http") return "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  if (what == "header") return "GET /metrics HTTP/1.1\r\nX: " + std::string(8 << 20, 'a');
  if (what == "tls") return std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + Noise(40);
  return "";
}

int Unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
    const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
    if (fd >= 0) close(fd);
    if (errno != EPROTOTYPE) return -1;
  }
  return -1;
}

int Tcp(const std::string& host, int port, int from) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (from >= 0) {
    address.sin_addr.s_addr = htonl(0x7f000101 + static_cast<uint32_t>(from));
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) perror("bind");
  }
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  const int small = 4096;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 || errno == EINPROGRESS) {
    pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
    int error = 0;
    socklen_t size = sizeof(error);
    if (poll(&ready, 1, 1000) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) return fd;
  }
  close(fd);
  return -1;
}

int Open(const std::string& address, int from = -1) {
  if (address.rfind("unix:", 0) == 0) return Unix(address.substr(5));
  const size_t colon = address.rfind(':');
  return Tcp(address.substr(0, colon), atoi(address.c_str() + colon + 1), from);
}

int64_t Ms(Clock::time_point since) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since).count();
}

// How many of these their server has ended by then.
size_t Ended(std::vector<int>& open, int64_t until_ms, Clock::time_point since, bool read) {
  size_t ended = 0;
  while (Ms(since) < until_ms) {
    for (int& fd : open) {
      if (fd < 0) continue;
      char bytes[4096];
      pollfd look{.fd = fd, .events = static_cast<short>(read ? POLLIN : POLLRDHUP), .revents = 0};
      if (poll(&look, 1, 0) != 1) continue;
      const bool over = !read || recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) == 0 || (look.revents & POLLERR) != 0;
      if (!over) continue;
      close(fd);
      fd = -1;
      ++ended;
    }
    usleep(20'000);
  }
  return ended;
}

int Hold(const std::string& address, int n, int64_t ms, const std::string& what, int sources) {
  const std::string text = What(what);
  const Clock::time_point since = Clock::now();
  std::vector<int> open;
  int refused = 0;
  for (int i = 0; i < n; ++i) {
    const int fd = Open(address, sources > 0 ? i % sources : -1);
    if (fd < 0) {
      ++refused;
      continue;
    }
    for (size_t at = 0; at < text.size();) {
      const ssize_t sent = send(fd, text.data() + at, std::min<size_t>(text.size() - at, 65536), MSG_NOSIGNAL);
      pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
      if (sent <= 0 && (errno != EAGAIN || poll(&ready, 1, 200) != 1)) break;
      at += sent > 0 ? static_cast<size_t>(sent) : 0;
    }
    open.push_back(fd);
  }
  const size_t opened = open.size();
  const size_t ended = Ended(open, Ms(since) + ms, since, true);
  printf("%zu opened, %d refused, %zu ended in %lld ms\n", opened, refused, ended, static_cast<long long>(Ms(since)));
  return 0;
}

int Churn(const std::string& address, int n) {
  int opened = 0;
  for (int i = 0; i < n; ++i) {
    const int fd = Open(address);
    opened += fd >= 0;
    if (fd >= 0) close(fd);
  }
  printf("%d of %d opened\n", opened, n);
  return 0;
}

int Slow(const std::string& address, int n, int64_t ms) {
  const Clock::time_point since = Clock::now();
  std::vector<int> open;
  for (int i = 0; i < n; ++i) {
    const int fd = Open(address);
    if (fd < 0) continue;
    const std::string ask = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    send(fd, ask.data(), ask.size(), MSG_NOSIGNAL);
    open.push_back(fd);
  }
  const size_t opened = open.size();
  printf("%zu of %d opened, %zu ended\n", opened, n, Ended(open, ms, since, false));
  return 0;
}

int Get(const std::string& address) {
  const int fd = Open(address);
  const std::string ask = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  send(fd, ask.data(), ask.size(), MSG_NOSIGNAL);
  std::string answer(1 << 16, 0);
  pollfd wait{fd, POLLIN, 0};
  const ssize_t got = poll(&wait, 1, 5000) == 1 ? recv(fd, answer.data(), answer.size(), 0) : -1;
  printf("%s\n", answer.substr(0, got < 0 ? 0 : std::min<size_t>(static_cast<size_t>(got), 15)).c_str());
  return 0;
}

int Messages(const std::string& address, int n, size_t bytes) {
  int sent = 0, fd = -1;
  for (int i = 0; i < n; ++i) {
    if (fd < 0) fd = Open(address);
    const std::string noise = Noise(bytes);
    if (fd >= 0 && send(fd, noise.data(), noise.size(), MSG_NOSIGNAL) > 0) {
      ++sent;
    } else if (fd >= 0) {
      close(fd);
      fd = -1;
    }
  }
  printf("%d of %d sent\n", sent, n);
  return 0;
}

bool SendDescriptor(int fd, int file) {
  char control[CMSG_SPACE(sizeof(int))] = {}, byte = 'x';
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(head), &file, sizeof(file));
  return sendmsg(fd, &message, MSG_NOSIGNAL) > 0;
}

int Descriptors(const std::string& address, int n, const std::string& path) {
  int sent = 0;
  for (int i = 0; i < n; ++i) {
    const int fd = Open(address), file = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || file < 0) continue;
    sent += SendDescriptor(fd, file);
    close(file);
    close(fd);
  }
  printf("%d of %d sent\n", sent, n);
  return 0;
}

int Fuse(const std::string& address, int ms) {
  char folder[] = "/tmp/fuse-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  cw::FuseThatNeverAnswers fuse;
  const std::string wrong = fuse.Start(folder, [&](int file) { return SendDescriptor(Open(address), file); });
  printf("%s\n", wrong.empty() ? "sent" : wrong.c_str());
  fflush(stdout);
  (void)poll(nullptr, 0, ms);
  return 0;
}

int Flood(const std::string& host, int port, int n, size_t bytes) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, host.c_str(), &to.sin_addr);
  int sent = 0;
  for (int i = 0; i < n; ++i) {
    const std::string noise = Noise(bytes);
    sent += sendto(fd, noise.data(), noise.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof(to)) > 0;
  }
  printf("%d of %d sent\n", sent, n);
  return 0;
}

int Babble(int port, int64_t ms) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_port = htons(static_cast<uint16_t>(port));
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener, reinterpret_cast<sockaddr*>(&here), sizeof(here)) != 0 || listen(listener, 16) != 0) return 1;
  const Clock::time_point since = Clock::now();
  uint64_t came = 0, sent = 0;
  const std::string noise = Noise(65536);
  while (Ms(since) < ms) {
    pollfd look{.fd = listener, .events = POLLIN, .revents = 0};
    if (poll(&look, 1, 100) != 1) continue;
    const int fd = accept(listener, nullptr, nullptr);
    ++came;
    for (ssize_t n = 1; n > 0 && Ms(since) < ms; sent += n > 0 ? static_cast<uint64_t>(n) : 0)
      n = send(fd, noise.data(), noise.size(), MSG_NOSIGNAL);
    close(fd);
  }
  printf("%llu came, %llu bytes sent\n", static_cast<unsigned long long>(came), static_cast<unsigned long long>(sent));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  std::vector<std::string> a(argv + 1, argv + argc);
  a.resize(7);
  const auto number = [&](size_t i) { return atoi(a[i].c_str()); };
  if (a[0] == "hold") return Hold(a[1], number(2), number(3), a[4], number(5));
  if (a[0] == "churn") return Churn(a[1], number(2));
  if (a[0] == "slow") return Slow(a[1], number(2), number(3));
  if (a[0] == "get") return Get(a[1]);
  if (a[0] == "messages") return Messages(a[1], number(2), static_cast<size_t>(number(3)));
  if (a[0] == "fds") return Descriptors(a[1], number(2), a[3]);
  if (a[0] == "fuse") return Fuse(a[1], number(2));
  if (a[0] == "flood") return Flood(a[1], number(2), number(3), static_cast<size_t>(number(4)));
  if (a[0] == "babble") return Babble(number(1), number(2));
  fprintf(stderr, "usage: see the source\n");
  return 2;
}
