// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/host_net.h"

#include <arpa/inet.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include "absl/strings/str_cat.h"
#include "maps/unique_fd.h"

namespace cw::agent {
namespace {

constexpr int kTries = 5;  // a list that changes while it is read is read again
constexpr size_t kBuffer = 65536;

using OnMessage = std::function<void(const nlmsghdr& message)>;
using OnAttribute = std::function<void(int type, const rtattr& attribute)>;

absl::Status NotKnown(int error) {
  return absl::UnavailableError(absl::StrCat("the kernel does not list network devices: ", strerror(error)));
}

void ForEach(const rtattr* first, size_t bytes, const OnAttribute& visit) {
  auto left = static_cast<int>(bytes);
  for (const rtattr* a = first; RTA_OK(a, left); a = RTA_NEXT(a, left)) visit(a->rta_type & NLA_TYPE_MASK, *a);
}

std::string TextOf(const rtattr& attribute) {
  const auto* text = static_cast<const char*>(RTA_DATA(&attribute));
  return {text, strnlen(text, RTA_PAYLOAD(&attribute))};
}

uint32_t NumberOf(const rtattr& attribute) {
  uint32_t number = 0;
  if (RTA_PAYLOAD(&attribute) >= sizeof(number)) memcpy(&number, RTA_DATA(&attribute), sizeof(number));
  return number;
}

void ForEachIn(const rtattr& nest, const OnAttribute& visit) {
  ForEach(static_cast<const rtattr*>(RTA_DATA(&nest)), RTA_PAYLOAD(&nest), visit);
}

HostLink LinkIn(const nlmsghdr& message) {
  const auto* info = static_cast<const ifinfomsg*>(NLMSG_DATA(&message));
  HostLink link{.ifindex = static_cast<uint32_t>(info->ifi_index), .loopback = (info->ifi_flags & IFF_LOOPBACK) != 0};
  bool elsewhere = false;
  ForEach(IFLA_RTA(info), IFLA_PAYLOAD(&message), [&](int type, const rtattr& a) {
    if (type == IFLA_IFNAME) link.name = TextOf(a);
    if (type == IFLA_MASTER) link.master = NumberOf(a);
    if (type == IFLA_LINK) link.lower = NumberOf(a);
    elsewhere |= type == IFLA_LINK_NETNSID;
    if (type == IFLA_PROP_LIST)
      ForEachIn(a, [&](int kind, const rtattr& name) {
        if (kind == IFLA_ALT_IFNAME) link.altnames.push_back(TextOf(name));
      });
    if (type == IFLA_LINKINFO)
      ForEachIn(a, [&](int kind, const rtattr& name) {
        if (kind == IFLA_INFO_KIND) link.kind = TextOf(name);
      });
  });
  if (elsewhere) link.lower = 0;
  return link;
}

// One datagram of a dump. Aborted: the list changed meanwhile.
absl::Status TakeDatagram(const char* buffer, size_t bytes, const OnMessage& visit, bool& done) {
  auto left = static_cast<int>(bytes);
  for (auto* m = reinterpret_cast<const nlmsghdr*>(buffer); left > 0 && NLMSG_OK(m, static_cast<unsigned>(left));
       m = NLMSG_NEXT(m, left)) {
    if ((m->nlmsg_flags & NLM_F_DUMP_INTR) != 0) return absl::AbortedError("it changed");
    if (m->nlmsg_type == NLMSG_ERROR) return NotKnown(-static_cast<const nlmsgerr*>(NLMSG_DATA(m))->error);
    if (m->nlmsg_type == NLMSG_DONE) done = true;
    if (m->nlmsg_type == RTM_NEWLINK || m->nlmsg_type == RTM_NEWADDR) visit(*m);
  }
  return absl::OkStatus();
}

absl::Status DumpOnce(uint16_t type, const OnMessage& visit) {
  const maps::UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd.ok()) return NotKnown(errno);
  struct {
    nlmsghdr header;
    ifinfomsg info;  // of addresses: ifaddrmsg, which is smaller; no field of either is set
    rtattr filter;
    uint32_t without;
  } request = {};
  request.header.nlmsg_len = type == RTM_GETLINK ? sizeof(request) : NLMSG_LENGTH(sizeof(ifaddrmsg));
  request.header.nlmsg_type = type;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.filter = {.rta_len = RTA_LENGTH(sizeof(request.without)), .rta_type = IFLA_EXT_MASK};
  request.without = RTEXT_FILTER_SKIP_STATS;
  if (send(fd.get(), &request, request.header.nlmsg_len, 0) < 0) return NotKnown(errno);
  std::vector<char> buffer(kBuffer);
  for (bool done = false; !done;) {
    const ssize_t n = recv(fd.get(), buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return NotKnown(n == 0 ? EPIPE : errno);
    if (absl::Status status = TakeDatagram(buffer.data(), static_cast<size_t>(n), visit, done); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<std::vector<T>> Dump(uint16_t type, T (*parse)(const nlmsghdr&)) {
  for (int i = 0; i < kTries; ++i) {
    std::vector<T> list;
    const absl::Status status = DumpOnce(type, [&](const nlmsghdr& message) { list.push_back(parse(message)); });
    if (status.ok()) return list;
    if (!absl::IsAborted(status)) return status;
  }
  return absl::UnavailableError("the list of network devices does not stop changing");
}

}  // namespace

// Where it is a point-to-point link's, IFA_LOCAL is ours and IFA_ADDRESS the other end's. IPv6 has no IFA_LOCAL then.
HostAddress AddressIn(const nlmsghdr& message) {
  const auto* info = static_cast<const ifaddrmsg*>(NLMSG_DATA(&message));
  HostAddress out{.ifindex = info->ifa_index};
  bool local = false;
  ForEach(IFA_RTA(info), IFA_PAYLOAD(&message), [&](int type, const rtattr& a) {
    if (type == IFA_LABEL) out.label = TextOf(a);
    if (type != IFA_LOCAL && (type != IFA_ADDRESS || local)) return;
    local |= type == IFA_LOCAL;
    if (info->ifa_family == AF_INET && RTA_PAYLOAD(&a) >= 4) out.address = Addr::FromV4(ntohl(NumberOf(a)));
    if (info->ifa_family == AF_INET6 && RTA_PAYLOAD(&a) >= 16)
      out.address = Addr::FromBytes(static_cast<const uint8_t*>(RTA_DATA(&a)));
  });
  return out;
}

const HostLink* HostNet::LinkAt(uint32_t ifindex) const {
  const auto at =
      std::find_if(links.begin(), links.end(), [&](const HostLink& link) { return link.ifindex == ifindex; });
  return at == links.end() ? nullptr : &*at;
}

const HostLink* HostNet::LinkCalled(const std::string& name) const {
  const auto at = std::find_if(links.begin(), links.end(), [&](const HostLink& link) { return link.name == name; });
  return at == links.end() ? nullptr : &*at;
}

bool HostNet::HasAddressOn(uint32_t ifindex, const Addr& address) const {
  return std::any_of(addresses.begin(), addresses.end(),
                     [&](const HostAddress& a) { return a.ifindex == ifindex && a.address == address; });
}

absl::StatusOr<std::vector<HostLink>> ReadHostLinks() { return Dump(RTM_GETLINK, LinkIn); }

absl::StatusOr<std::vector<HostAddress>> ReadHostAddresses() { return Dump(RTM_GETADDR, AddressIn); }

absl::StatusOr<HostNet> ReadHostNet() {
  absl::StatusOr<std::vector<HostLink>> links = ReadHostLinks();
  if (!links.ok()) return links.status();
  absl::StatusOr<std::vector<HostAddress>> addresses = ReadHostAddresses();
  if (!addresses.ok()) return addresses.status();
  return HostNet{.links = *std::move(links), .addresses = *std::move(addresses)};
}

}  // namespace cw::agent
