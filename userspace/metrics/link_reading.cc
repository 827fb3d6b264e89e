// SPDX-License-Identifier: Apache-2.0
// A link's carrier and how often it was lost, by rtnetlink.
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "userspace/metrics/link_flaps.h"

namespace cw::metrics {
namespace {

template <typename T>
std::optional<T> ValueOf(const rtattr* attribute) {
  T value{};
  if (RTA_PAYLOAD(attribute) < sizeof(value)) return std::nullopt;
  std::memcpy(&value, RTA_DATA(attribute), sizeof(value));
  return value;
}

absl::StatusOr<LinkReading> Parse(const nlmsghdr* message, const std::string& nic) {
  std::optional<uint8_t> carrier;
  std::optional<uint32_t> downs;
  std::string name;
  auto* info = static_cast<const ifinfomsg*>(NLMSG_DATA(message));
  auto left = static_cast<int>(IFLA_PAYLOAD(message));
  for (auto* a = IFLA_RTA(info); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
    if (a->rta_type == IFLA_CARRIER) carrier = ValueOf<uint8_t>(a);
    if (a->rta_type == IFLA_CARRIER_DOWN_COUNT) downs = ValueOf<uint32_t>(a);
    if (a->rta_type == IFLA_IFNAME) {
      const auto* text = static_cast<const char*>(RTA_DATA(a));
      name.assign(text, strnlen(text, RTA_PAYLOAD(a)));
    }
  }
  if (!carrier || !downs)
    return absl::UnimplementedError(absl::StrCat("this kernel does not count how often ", nic, " lost its carrier"));
  return LinkReading{.up = *carrier != 0 && (info->ifi_flags & IFF_UP) != 0, .downs = *downs, .name = name};
}

// Only ENODEV says that the device is gone; without a descriptor or memory nothing is known of it.
absl::Status NotTold(int error, const std::string& nic) {
  if (error == ENODEV) return absl::NotFoundError(absl::StrCat("there is no network device ", nic));
  return absl::UnavailableError(absl::StrCat("the kernel does not tell of ", nic, ": ", strerror(error)));
}

absl::StatusOr<LinkReading> ReadAt(uint32_t ifindex, const std::string& nic) {
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) return NotTold(errno, nic);
  const auto closed = absl::MakeCleanup([fd] { close(fd); });
  struct {
    nlmsghdr header;
    ifinfomsg info;
  } request = {};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = RTM_GETLINK;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.info.ifi_index = static_cast<int>(ifindex);
  if (send(fd, &request, sizeof(request), 0) < 0) return absl::ErrnoToStatus(errno, absl::StrCat("ask for ", nic));
  alignas(nlmsghdr) char buffer[32768];
  const ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
  auto* message = reinterpret_cast<const nlmsghdr*>(buffer);
  if (n < 0) return NotTold(errno, nic);
  if (!NLMSG_OK(message, static_cast<size_t>(n))) return NotTold(EBADMSG, nic);
  if (message->nlmsg_type == NLMSG_ERROR && message->nlmsg_len >= NLMSG_LENGTH(sizeof(nlmsgerr)))
    return NotTold(-static_cast<const nlmsgerr*>(NLMSG_DATA(message))->error, nic);
  if (message->nlmsg_type != RTM_NEWLINK) return NotTold(EBADMSG, nic);
  return Parse(message, nic);
}

}  // namespace

absl::StatusOr<LinkReading> ReadLink(const std::string& nic) {
  const uint32_t ifindex = if_nametoindex(nic.c_str());
  return ifindex == 0 ? NotTold(errno, nic) : ReadAt(ifindex, nic);
}

absl::StatusOr<LinkReading> ReadLink(uint32_t ifindex) { return ReadAt(ifindex, absl::StrCat("with index ", ifindex)); }

}  // namespace cw::metrics
