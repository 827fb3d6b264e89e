// SPDX-License-Identifier: Apache-2.0
#include "userspace/rdma/nldev.h"

#include <arpa/inet.h>
#include <libmnl/libmnl.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "absl/strings/str_format.h"
#include "userspace/rdma/process_of.h"

namespace cw::rdma {
namespace {

using Attributes = const nlattr* [RDMA_NLDEV_ATTR_MAX];

int Store(const nlattr* attribute, void* data) {
  auto** table = static_cast<const nlattr**>(data);
  const uint16_t type = mnl_attr_get_type(attribute);
  if (type < RDMA_NLDEV_ATTR_MAX) table[type] = attribute;
  return MNL_CB_OK;
}

uint32_t U32(Attributes& table, int type) {
  return table[type] != nullptr && mnl_attr_validate(table[type], MNL_TYPE_U32) == 0 ? mnl_attr_get_u32(table[type])
                                                                                     : 0;
}

uint8_t U8(Attributes& table, int type) {
  return table[type] != nullptr && mnl_attr_validate(table[type], MNL_TYPE_U8) == 0 ? mnl_attr_get_u8(table[type]) : 0;
}

std::string String(Attributes& table, int type) {
  return table[type] != nullptr && mnl_attr_validate(table[type], MNL_TYPE_STRING) >= 0 ? mnl_attr_get_str(table[type])
                                                                                        : "";
}

int ParseLink(const nlmsghdr* message, void* data) {
  Attributes table = {};
  mnl_attr_parse(message, 0, Store, table);
  static_cast<std::vector<Link>*>(data)->push_back({.device = String(table, RDMA_NLDEV_ATTR_DEV_NAME),
                                                    .device_index = U32(table, RDMA_NLDEV_ATTR_DEV_INDEX),
                                                    .port = U32(table, RDMA_NLDEV_ATTR_PORT_INDEX),
                                                    .ifindex = U32(table, RDMA_NLDEV_ATTR_NDEV_INDEX),
                                                    .netdev = String(table, RDMA_NLDEV_ATTR_NDEV_NAME)});
  return MNL_CB_OK;
}

struct QpDump {
  std::string device;
  uint32_t device_index;
  std::vector<Qp>* out;
};

Qp ToQp(Attributes& qp, const std::string& device, uint32_t device_index) {
  return {.device = device,
          .device_index = device_index,
          .lqpn = U32(qp, RDMA_NLDEV_ATTR_RES_LQPN),
          .rqpn = U32(qp, RDMA_NLDEV_ATTR_RES_RQPN),
          .type = U8(qp, RDMA_NLDEV_ATTR_RES_TYPE),
          .state = U8(qp, RDMA_NLDEV_ATTR_RES_STATE),
          .thread = U32(qp, RDMA_NLDEV_ATTR_RES_PID),
          .comm = String(qp, RDMA_NLDEV_ATTR_RES_KERN_NAME)};
}

// A job's queue pairs are listed in a row: what was made by the same thread is of the same process.
void NameProcess(Qp& qp, const Qp* before) {
  if (qp.thread == 0) return;
  if (before != nullptr && before->thread == qp.thread) {
    qp.pid = before->pid;
    qp.comm = before->comm;
    return;
  }
  Process process = ProcessOf(qp.thread);
  qp.pid = process.pid;
  qp.comm = std::move(process.comm);
}

int ParseQpEntry(const nlattr* entry, void* data) {
  auto* dump = static_cast<QpDump*>(data);
  Attributes qp = {};
  mnl_attr_parse_nested(entry, Store, qp);
  Qp record = ToQp(qp, dump->device, dump->device_index);
  NameProcess(record, dump->out->empty() ? nullptr : &dump->out->back());
  dump->out->push_back(std::move(record));
  return MNL_CB_OK;
}

struct CmDump {
  uint32_t device_index;
  std::vector<CmId>* out;
};

// A sockaddr_storage as the kernel has it.
void ParseAddress(const nlattr* attribute, Addr& address, uint16_t& port, uint32_t* flowinfo) {
  if (attribute == nullptr) return;
  const auto size = std::min<size_t>(mnl_attr_get_payload_len(attribute), sizeof(sockaddr_storage));
  sockaddr_storage storage = {};
  std::memcpy(&storage, mnl_attr_get_payload(attribute), size);
  if (storage.ss_family == AF_INET) {
    sockaddr_in v4 = {};
    std::memcpy(&v4, &storage, sizeof(v4));
    address = Addr::FromV4(ntohl(v4.sin_addr.s_addr));
    port = ntohs(v4.sin_port);
  } else if (storage.ss_family == AF_INET6) {
    sockaddr_in6 v6 = {};
    std::memcpy(&v6, &storage, sizeof(v6));
    address = Addr::FromBytes(v6.sin6_addr.s6_addr);
    port = ntohs(v6.sin6_port);
    if (flowinfo != nullptr) *flowinfo = ntohl(v6.sin6_flowinfo);
  }
}

int ParseCmEntry(const nlattr* entry, void* data) {
  constexpr uint8_t kListen = 8;  // RDMA_CM_LISTEN of enum rdma_cm_state in drivers/infiniband/core/cma_priv.h
  auto* dump = static_cast<CmDump*>(data);
  Attributes table = {};
  mnl_attr_parse_nested(entry, Store, table);
  CmId id{.device_index = dump->device_index, .lqpn = U32(table, RDMA_NLDEV_ATTR_RES_LQPN)};
  ParseAddress(table[RDMA_NLDEV_ATTR_RES_SRC_ADDR], id.local, id.local_port, &id.flowinfo);
  ParseAddress(table[RDMA_NLDEV_ATTR_RES_DST_ADDR], id.remote, id.remote_port, nullptr);
  id.listens = U8(table, RDMA_NLDEV_ATTR_RES_STATE) == kListen;
  dump->out->push_back(id);
  return MNL_CB_OK;
}

int ParseCmIds(const nlmsghdr* message, void* data) {
  Attributes table = {};
  mnl_attr_parse(message, 0, Store, table);
  if (table[RDMA_NLDEV_ATTR_RES_CM_ID] == nullptr) return MNL_CB_OK;
  CmDump dump{U32(table, RDMA_NLDEV_ATTR_DEV_INDEX), static_cast<std::vector<CmId>*>(data)};
  return mnl_attr_parse_nested(table[RDMA_NLDEV_ATTR_RES_CM_ID], ParseCmEntry, &dump);
}

// An answer about one queue pair has its attributes at the top.
int ParseOneQp(const nlmsghdr* message, void* data) {
  Attributes table = {};
  mnl_attr_parse(message, 0, Store, table);
  *static_cast<Qp*>(data) = ToQp(table, String(table, RDMA_NLDEV_ATTR_DEV_NAME), U32(table, RDMA_NLDEV_ATTR_DEV_INDEX));
  return MNL_CB_OK;
}

int ParseQps(const nlmsghdr* message, void* data) {
  Attributes table = {};
  mnl_attr_parse(message, 0, Store, table);
  if (table[RDMA_NLDEV_ATTR_RES_QP] == nullptr) return MNL_CB_OK;
  QpDump dump{String(table, RDMA_NLDEV_ATTR_DEV_NAME), U32(table, RDMA_NLDEV_ATTR_DEV_INDEX),
              static_cast<std::vector<Qp>*>(data)};
  return mnl_attr_parse_nested(table[RDMA_NLDEV_ATTR_RES_QP], ParseQpEntry, &dump);
}

absl::Status NetlinkError(const char* what) {
  if (errno == EPROTONOSUPPORT || errno == EOPNOTSUPP || errno == ENOENT || errno == ECONNREFUSED) {
    return absl::UnavailableError("this kernel has no RDMA netlink (module ib_core is not loaded)");
  }
  return absl::InternalError(absl::StrFormat("RDMA netlink: %s: %s", what, std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<NldevClient>> NldevClient::Open() {
  mnl_socket* socket = mnl_socket_open(NETLINK_RDMA);
  if (socket == nullptr) return NetlinkError("open");
  if (mnl_socket_bind(socket, 0, MNL_SOCKET_AUTOPID) < 0) {
    absl::Status status = NetlinkError("bind");
    mnl_socket_close(socket);
    return status;
  }
  return std::unique_ptr<NldevClient>(new NldevClient(socket));
}

NldevClient::~NldevClient() { mnl_socket_close(socket_); }

absl::Status NldevClient::Request(uint16_t command, uint16_t flags, const uint32_t* device_index,
                                  int (*parse)(const nlmsghdr*, void*), void* data) {
  alignas(nlmsghdr) char buffer[32768];
  nlmsghdr* message = mnl_nlmsg_put_header(buffer);
  message->nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command);
  message->nlmsg_flags = NLM_F_REQUEST | flags;
  message->nlmsg_seq = ++sequence_;
  if (device_index != nullptr) mnl_attr_put_u32(message, RDMA_NLDEV_ATTR_DEV_INDEX, *device_index);
  if (mnl_socket_sendto(socket_, message, message->nlmsg_len) < 0) return NetlinkError("send");
  return Receive(parse, data);
}

absl::Status NldevClient::Receive(int (*parse)(const nlmsghdr*, void*), void* data) {
  alignas(nlmsghdr) char buffer[32768];
  const uint32_t port = mnl_socket_get_portid(socket_);
  while (true) {
    const ssize_t size = mnl_socket_recvfrom(socket_, buffer, sizeof(buffer));
    if (size < 0) return NetlinkError("receive");
    const int verdict = mnl_cb_run(buffer, size, sequence_, port, parse, data);
    if (verdict < 0) return NetlinkError("reply");
    if (verdict == MNL_CB_STOP) return absl::OkStatus();
  }
}

absl::StatusOr<std::vector<NldevClient::Device>> NldevClient::Devices() {
  std::vector<Device> devices;
  auto parse = [](const nlmsghdr* message, void* data) -> int {
    Attributes table = {};
    mnl_attr_parse(message, 0, Store, table);
    static_cast<std::vector<Device>*>(data)->push_back({U32(table, RDMA_NLDEV_ATTR_DEV_INDEX),
                                                        String(table, RDMA_NLDEV_ATTR_DEV_NAME),
                                                        U32(table, RDMA_NLDEV_ATTR_PORT_INDEX)});
    return MNL_CB_OK;
  };
  if (absl::Status status = Request(RDMA_NLDEV_CMD_GET, NLM_F_DUMP, nullptr, parse, &devices); !status.ok())
    return status;
  return devices;
}

absl::StatusOr<std::vector<Link>> NldevClient::Links() {
  absl::StatusOr<std::vector<Device>> devices = Devices();
  if (!devices.ok()) return devices.status();
  std::vector<Link> links;
  for (const Device& device : *devices) {
    if (absl::Status status = Request(RDMA_NLDEV_CMD_PORT_GET, NLM_F_DUMP, &device.index, ParseLink, &links);
        !status.ok()) {
      return status;
    }
  }
  return links;
}

absl::StatusOr<Qp> NldevClient::FindQp(const Link& link, uint32_t lqpn) {
  alignas(nlmsghdr) char buffer[256];
  nlmsghdr* message = mnl_nlmsg_put_header(buffer);
  message->nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_RES_QP_GET);
  message->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;  // the acknowledgement ends the answer
  message->nlmsg_seq = ++sequence_;
  mnl_attr_put_u32(message, RDMA_NLDEV_ATTR_DEV_INDEX, link.device_index);
  mnl_attr_put_u32(message, RDMA_NLDEV_ATTR_PORT_INDEX, link.port);
  mnl_attr_put_u32(message, RDMA_NLDEV_ATTR_RES_LQPN, lqpn);
  if (mnl_socket_sendto(socket_, message, message->nlmsg_len) < 0) return NetlinkError("send");
  Qp qp;
  errno = 0;
  const absl::Status status = Receive(ParseOneQp, &qp);
  if (status.ok() && qp.lqpn == lqpn) {
    NameProcess(qp, nullptr);
    return qp;
  }
  if (status.ok() || errno == ENOENT || errno == EINVAL || errno == EAGAIN) {
    return absl::NotFoundError(absl::StrFormat("%s has no queue pair 0x%x", link.device, lqpn));
  }
  return status;
}

absl::StatusOr<std::vector<CmId>> NldevClient::CmIds() {
  absl::StatusOr<std::vector<Device>> devices = Devices();
  if (!devices.ok()) return devices.status();
  std::vector<CmId> ids;
  for (const Device& device : *devices) {
    if (absl::Status status = Request(RDMA_NLDEV_CMD_RES_CM_ID_GET, NLM_F_DUMP, &device.index, ParseCmIds, &ids);
        !status.ok()) {
      return status;
    }
  }
  return ids;
}

absl::StatusOr<std::vector<Qp>> NldevClient::Qps() {
  absl::StatusOr<std::vector<Device>> devices = Devices();
  if (!devices.ok()) return devices.status();
  std::vector<Qp> qps;
  for (const Device& device : *devices) {
    if (absl::Status status = Request(RDMA_NLDEV_CMD_RES_QP_GET, NLM_F_DUMP, &device.index, ParseQps, &qps);
        !status.ok()) {
      return status;
    }
  }
  return qps;
}

}  // namespace cw::rdma
