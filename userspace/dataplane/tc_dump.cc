// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/tc_dump.h"

#include <linux/netlink.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"

namespace cw::dataplane {
namespace {

// Attributes of BPF filters, from linux/pkt_cls.h.
void ParseOptions(rtattr* options, std::vector<TcProgram>& programs) {
  TcProgram program;
  auto left = static_cast<int>(RTA_PAYLOAD(options));
  for (auto* attribute = static_cast<rtattr*>(RTA_DATA(options)); RTA_OK(attribute, left);
       attribute = RTA_NEXT(attribute, left)) {
    const size_t size = RTA_PAYLOAD(attribute);
    if (attribute->rta_type == TCA_BPF_ID && size >= sizeof(program.id)) {
      std::memcpy(&program.id, RTA_DATA(attribute), sizeof(program.id));
    }
    if (attribute->rta_type == TCA_BPF_NAME && size > 0) {
      const auto* text = static_cast<const char*>(RTA_DATA(attribute));
      program.name.assign(text, strnlen(text, size));
    }
  }
  if (program.id != 0) programs.push_back(std::move(program));
}

void ParseFilter(nlmsghdr* message, std::vector<TcProgram>& programs) {
  if (message->nlmsg_len < NLMSG_LENGTH(sizeof(tcmsg))) return;
  auto* header = static_cast<tcmsg*>(NLMSG_DATA(message));
  bool is_bpf = false;
  rtattr* options = nullptr;
  auto left = static_cast<int>(message->nlmsg_len - NLMSG_LENGTH(sizeof(tcmsg)));
  for (auto* attribute = TCA_RTA(header); RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    if (attribute->rta_type == TCA_KIND) {
      const auto* kind = static_cast<const char*>(RTA_DATA(attribute));
      is_bpf = std::string(kind, strnlen(kind, RTA_PAYLOAD(attribute))) == "bpf";
    }
    if (attribute->rta_type == TCA_OPTIONS) options = attribute;
  }
  if (is_bpf && options != nullptr) ParseOptions(options, programs);
}

}  // namespace

absl::StatusOr<bool> ParseTcDump(const void* data, size_t length, std::vector<TcProgram>& programs) {
  auto* message = static_cast<nlmsghdr*>(const_cast<void*>(data));
  // As int: a last message whose length is no multiple of 4 leaves less than nothing.
  for (auto left = static_cast<int>(length); left > 0 && NLMSG_OK(message, static_cast<unsigned>(left));
       message = NLMSG_NEXT(message, left)) {
    if (message->nlmsg_type == NLMSG_DONE) return false;
    if (message->nlmsg_type == NLMSG_ERROR) {
      if (message->nlmsg_len < NLMSG_LENGTH(sizeof(nlmsgerr))) return absl::InternalError("netlink: short error");
      const int error = std::abs(std::max(static_cast<nlmsgerr*>(NLMSG_DATA(message))->error, -4095));
      // A device without clsact has no filters.
      if (error == 0 || error == EINVAL || error == ENOENT) return false;
      return absl::UnavailableError(absl::StrFormat("asking for tc filters: %s", strerror(error)));
    }
    if (message->nlmsg_type == RTM_NEWTFILTER) ParseFilter(message, programs);
  }
  return true;
}

absl::StatusOr<std::vector<TcProgram>> DumpTcPrograms(unsigned ifindex, bool egress) {
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) return absl::UnavailableError(absl::StrFormat("netlink socket: %s", strerror(errno)));
  absl::Cleanup close_fd = [fd] { close(fd); };
  const timeval timeout{2, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));

  struct {
    nlmsghdr header;
    tcmsg filter;
  } request{};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = RTM_GETTFILTER;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.filter.tcm_family = AF_UNSPEC;
  request.filter.tcm_ifindex = static_cast<int>(ifindex);
  request.filter.tcm_parent = TC_H_MAKE(TC_H_CLSACT, egress ? TC_H_MIN_EGRESS : TC_H_MIN_INGRESS);
  if (send(fd, &request, sizeof(request), 0) != static_cast<ssize_t>(sizeof(request))) {
    return absl::UnavailableError(absl::StrFormat("netlink: %s", strerror(errno)));
  }

  std::vector<TcProgram> programs;
  alignas(nlmsghdr) char buffer[32768];
  for (;;) {
    const ssize_t length = recv(fd, buffer, sizeof(buffer), 0);
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) return absl::UnavailableError(absl::StrFormat("netlink: %s", strerror(errno)));
    absl::StatusOr<bool> more = ParseTcDump(buffer, static_cast<size_t>(length), programs);
    if (!more.ok()) return more.status();
    if (!*more) return programs;
  }
}

}  // namespace cw::dataplane
