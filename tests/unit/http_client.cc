// SPDX-License-Identifier: Apache-2.0
#include "http_client.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

namespace cw::http {

int ConnectUnix(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

std::string Talk(int fd, const std::string& request) {
  if (fd < 0) return "";
  const timeval limit{.tv_sec = 30, .tv_usec = 0};  // a bound for a broken test
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  std::string all;
  if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
    char part[4096];
    for (ssize_t n = 0; (n = read(fd, part, sizeof(part))) > 0;) all.append(part, static_cast<size_t>(n));
  }
  close(fd);
  return all;
}

std::string Ask(const std::string& path, const std::string& line, const std::string& headers) {
  return Talk(ConnectUnix(path), line + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n" + headers + "\r\n");
}

std::string Body(const std::string& answer) {
  const size_t head = answer.find("\r\n\r\n");
  return head == std::string::npos ? "" : answer.substr(head + 4);
}

}  // namespace cw::http
