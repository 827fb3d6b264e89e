// SPDX-License-Identifier: Apache-2.0
#include "userspace/off/tc.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include "maps/names.h"

namespace cw::off {

// A request, and the messages that answer it.
class Exchange {
 public:
  template <typename Body>
  Exchange(uint16_t type, uint16_t flags, const Body& body) {
    buffer_.resize(NLMSG_LENGTH(sizeof(body)));
    nlmsghdr header = {};
    header.nlmsg_type = type;
    header.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
    memcpy(buffer_.data(), &header, sizeof(header));
    memcpy(buffer_.data() + NLMSG_HDRLEN, &body, sizeof(body));
  }
  void AddText(uint16_t type, const char* text) {
    const size_t size = strlen(text) + 1, at = NLMSG_ALIGN(buffer_.size());
    buffer_.resize(at + RTA_SPACE(size));
    rtattr attribute = {};
    attribute.rta_type = type;
    attribute.rta_len = static_cast<unsigned short>(RTA_LENGTH(size));
    memcpy(buffer_.data() + at, &attribute, sizeof(attribute));
    memcpy(buffer_.data() + at + RTA_LENGTH(0), text, size);
  }
  // Until the acknowledgement or the end of the dump.
  int Run(Route& route, const std::function<void(const nlmsghdr*)>& each = {}) {
    if (!route.socket_.ok()) return route.error_;
    auto* header = reinterpret_cast<nlmsghdr*>(buffer_.data());
    header->nlmsg_len = static_cast<__u32>(buffer_.size());
    header->nlmsg_seq = ++route.sequence_;
    if (send(route.socket_.get(), buffer_.data(), buffer_.size(), 0) < 0) return errno;
    std::vector<char> answer(64 << 10);
    for (;;) {
      const ssize_t n = recv(route.socket_.get(), answer.data(), answer.size(), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return n < 0 ? errno : EPIPE;
      auto left = static_cast<int>(n);
      for (const auto* m = reinterpret_cast<nlmsghdr*>(answer.data());
           left > 0 && NLMSG_OK(m, static_cast<unsigned>(left)); m = NLMSG_NEXT(m, left)) {
        if (m->nlmsg_seq != route.sequence_) continue;
        if (m->nlmsg_type == NLMSG_DONE) return 0;
        if (m->nlmsg_type == NLMSG_ERROR) return -static_cast<const nlmsgerr*>(NLMSG_DATA(m))->error;
        if (each) each(m);
      }
    }
  }

 private:
  std::string buffer_;
};

namespace {

using Attributes = std::function<void(uint16_t type, const void* data, size_t size)>;

void ForEachAttribute(const void* from, size_t size, const Attributes& each) {
  const auto* attribute = static_cast<const rtattr*>(from);
  for (auto left = static_cast<int>(size); RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    each(attribute->rta_type & NLA_TYPE_MASK, RTA_DATA(attribute), RTA_PAYLOAD(attribute));
  }
}

template <typename Body>
void ForEachAttribute(const nlmsghdr* message, const Attributes& each) {
  const size_t head = NLMSG_LENGTH(NLMSG_ALIGN(sizeof(Body)));
  if (message->nlmsg_len < head) return;
  ForEachAttribute(reinterpret_cast<const char*>(message) + head, message->nlmsg_len - head, each);
}

uint32_t Word(const void* data, size_t size) {
  uint32_t word = 0;
  if (size >= sizeof(word)) memcpy(&word, data, sizeof(word));
  return word;
}

uint32_t Parent(bool egress) { return TC_H_MAKE(TC_H_CLSACT, egress ? TC_H_MIN_EGRESS : TC_H_MIN_INGRESS); }

Exchange OurFilter(uint16_t type, uint16_t flags, uint32_t ifindex, bool egress) {
  tcmsg place = {};
  place.tcm_family = AF_UNSPEC;
  place.tcm_ifindex = static_cast<int>(ifindex);
  place.tcm_parent = Parent(egress);
  place.tcm_handle = CW_TC_HANDLE;
  place.tcm_info = TC_H_MAKE(static_cast<uint32_t>(CW_TC_PRIORITY) << 16, htons(ETH_P_ALL));
  Exchange exchange(type, flags, place);
  exchange.AddText(TCA_KIND, "bpf");
  return exchange;
}

}  // namespace

Route::Route() : socket_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)) {
  if (!socket_.ok()) error_ = errno;
  const timeval patience = {.tv_sec = 5, .tv_usec = 0};  // the kernel always answers; a way out must not hang
  (void)setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
}

std::vector<Interface> Route::Interfaces() {
  std::vector<Interface> out;
  ifinfomsg all = {};
  Exchange(RTM_GETLINK, NLM_F_DUMP, all).Run(*this, [&](const nlmsghdr* message) {
    Interface one;
    one.ifindex = static_cast<uint32_t>(static_cast<const ifinfomsg*>(NLMSG_DATA(message))->ifi_index);
    ForEachAttribute<ifinfomsg>(message, [&](uint16_t type, const void* data, size_t size) {
      if (type == IFLA_IFNAME)
        one.name.assign(static_cast<const char*>(data), strnlen(static_cast<const char*>(data), size));
    });
    out.push_back(one);
  });
  std::sort(out.begin(), out.end(), [](const Interface& a, const Interface& b) { return a.ifindex < b.ifindex; });
  return out;
}

int Route::XdpPrograms(uint32_t ifindex, std::set<uint32_t>* out) {
  ifinfomsg one = {};
  one.ifi_index = static_cast<int>(ifindex);
  return Exchange(RTM_GETLINK, NLM_F_ACK, one).Run(*this, [&](const nlmsghdr* message) {
    ForEachAttribute<ifinfomsg>(message, [&](uint16_t type, const void* data, size_t size) {
      if (type != IFLA_XDP) return;
      ForEachAttribute(data, size, [&](uint16_t inner, const void* id, size_t bytes) {
        const bool program = inner == IFLA_XDP_PROG_ID || inner == IFLA_XDP_DRV_PROG_ID ||
                             inner == IFLA_XDP_SKB_PROG_ID || inner == IFLA_XDP_HW_PROG_ID;
        if (program && Word(id, bytes) != 0) out->insert(Word(id, bytes));
      });
    });
  });
}

int Route::FilterInOurPlace(uint32_t ifindex, bool egress, uint32_t* program) {
  *program = 0;
  const int e = OurFilter(RTM_GETTFILTER, NLM_F_ACK, ifindex, egress).Run(*this, [&](const nlmsghdr* message) {
    ForEachAttribute<tcmsg>(message, [&](uint16_t type, const void* data, size_t size) {
      if (type != TCA_OPTIONS) return;
      ForEachAttribute(data, size, [&](uint16_t inner, const void* id, size_t bytes) {
        if (inner == TCA_BPF_ID) *program = Word(id, bytes);
      });
    });
  });
  // Without a clsact qdisc, or with a filter of another kind, it is EINVAL.
  return e == ENOENT || e == EINVAL || e == ENODEV ? 0 : e;
}

int Route::RemoveFilterInOurPlace(uint32_t ifindex, bool egress) {
  return OurFilter(RTM_DELTFILTER, NLM_F_ACK, ifindex, egress).Run(*this);
}

}  // namespace cw::off
