// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/http_receiver.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace cw {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int Listen(int* port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = Loopback(*port);
  socklen_t size = sizeof(address);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(fd, 16) != 0) return close(fd), -1;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  *port = ntohs(address.sin_port);
  return fd;
}

bool Readable(int fd) {
  pollfd wait{.fd = fd, .events = POLLIN};
  return poll(&wait, 1, 50) > 0;
}

}  // namespace

HttpReceiver::HttpReceiver(int port) : port_(port) {
  listener_ = Listen(&port_);
  thread_ = std::thread([this] { Serve(); });
}

HttpReceiver::~HttpReceiver() {
  end_ = true;
  thread_.join();
  close(listener_);
}

std::string HttpReceiver::url() const { return absl::StrCat("http://127.0.0.1:", port_, "/hook"); }

void HttpReceiver::Answer(int status, std::string text) {
  const std::lock_guard lock(mutex_);
  text_ = std::move(text);
  status_ = status;
}

std::vector<std::string> HttpReceiver::bodies() const {
  const std::lock_guard lock(mutex_);
  return bodies_;
}

void HttpReceiver::Serve() {
  while (!end_) {
    if (!Readable(listener_)) continue;
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    Talk(connection);
    close(connection);
  }
}

void HttpReceiver::Talk(int connection) {
  std::string got;
  size_t head = std::string::npos, body = 0;
  while (!end_ && (head == std::string::npos || got.size() < head + 4 + body)) {
    if (!Readable(connection)) continue;
    char part[4096];
    const ssize_t n = recv(connection, part, sizeof(part), 0);
    if (n <= 0) return;
    got.append(part, static_cast<size_t>(n));
    head = got.find("\r\n\r\n");
    const std::string lower = absl::AsciiStrToLower(got.substr(0, head));
    const size_t length = lower.find("content-length: ");
    if (head != std::string::npos && length != std::string::npos)
      body = static_cast<size_t>(std::atoll(lower.c_str() + length + 16));
  }
  ++requests_;
  while (status_ == 0 && !end_) Readable(connection);
  std::string answer;
  {
    const std::lock_guard lock(mutex_);
    const int status = status_;
    if (status >= 200 && status < 300) bodies_.push_back(got.substr(head + 4));
    answer = absl::StrCat("HTTP/1.1 ", status, " Said\r\nContent-Length: ", text_.size(),
                          "\r\nConnection: close\r\n\r\n", text_);
  }
  (void)send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
}

int FreePort() {
  int port = 0;
  close(Listen(&port));
  return port;
}

std::string HttpGet(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(port);
  std::string got;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string ask = absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: localhost\r\n\r\n");
    (void)send(fd, ask.data(), ask.size(), MSG_NOSIGNAL);
    char part[4096];
    for (ssize_t n = 0; (n = recv(fd, part, sizeof(part), 0)) > 0;) got.append(part, static_cast<size_t>(n));
  }
  close(fd);
  const size_t head = got.find("\r\n\r\n");
  return head == std::string::npos ? "" : got.substr(head + 4);
}

}  // namespace cw
