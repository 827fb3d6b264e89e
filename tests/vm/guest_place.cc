// SPDX-License-Identifier: Apache-2.0
// cw_vm_place LOCAL REMOTE QPN: asks the agent of its machine for a path of a queue pair (decimal number), whosever it
// is, and prints the agent's verdict (enum cw_inproc_verdict).
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "userspace/inproc/cw_inproc.h"

namespace {

void PutAddress(const char* text, uint8_t out[16]) {
  std::memset(out, 0, 10);
  out[10] = out[11] = 0xff;
  if (inet_pton(AF_INET, text, out + 12) != 1) std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  cw_inproc_place_qp question{};
  question.qp.magic = CW_INPROC_MAGIC;
  question.qp.version = CW_INPROC_VERSION;
  question.qp.type = CW_INPROC_PLACE_QP;
  question.qp.lqpn = static_cast<uint32_t>(std::strtoul(argv[3], nullptr, 10));
  question.qp.rqpn = 0x99;
  PutAddress(argv[1], question.qp.laddr);
  PutAddress(argv[2], question.qp.raddr);
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::snprintf(at.sun_path, sizeof(at.sun_path), CW_INPROC_SOCKET_FMT, "default");
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const timeval limit{.tv_sec = 20};
  cw_inproc_placement answer{};
  if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0 ||
      connect(fd, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0 ||
      send(fd, &question, sizeof(question), MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(question)) ||
      recv(fd, &answer, sizeof(answer), 0) != static_cast<ssize_t>(sizeof(answer))) {
    std::perror("cw_vm_place");
    return 1;
  }
  std::printf("%d\n", answer.verdict);
  close(fd);
  return 0;
}
