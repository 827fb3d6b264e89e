// SPDX-License-Identifier: Apache-2.0
// RDMA devices and queue pairs as the kernel lists them over RDMA netlink (include/uapi/rdma/rdma_netlink.h, the
// interface behind `rdma link` and `rdma resource show qp`).
//
// Each listed queue pair costs the driver a query (a firmware command on mlx5): poll Qps() every few seconds at most.
// Thread rule: one thread per client.
#ifndef CW_USERSPACE_RDMA_NLDEV_H
#define CW_USERSPACE_RDMA_NLDEV_H

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/model/addr.h"

struct mnl_socket;
struct nlmsghdr;

namespace cw::rdma {

// One port of an RDMA device and the network interface under it (RoCE).
struct Link {
  std::string device;  // "mlx5_0"
  uint32_t device_index = 0;
  uint32_t port = 0;
  uint32_t ifindex = 0;  // 0: no network interface (InfiniBand)
  std::string netdev;
};

struct Qp {
  std::string device;
  uint32_t device_index = 0;
  uint32_t lqpn = 0;
  uint32_t rqpn = 0;    // 0: not connected
  uint8_t type = 0;     // enum ib_qp_type: 2 RC, 3 UC, 4 UD
  uint8_t state = 0;    // enum ib_qp_state: 0 RESET, 1 INIT, 2 RTR, 3 RTS, 4 SQD, 5 SQE, 6 ERR
  uint32_t thread = 0;  // that made it; 0: the kernel did (`comm` says which part), or that thread has ended
  uint32_t pid = 0;     // its process
  std::string comm;
};

// A connection that rdma_cm made (`rdma resource show cm_id`): it alone knows both ends' addresses.
struct CmId {
  uint32_t device_index = 0;
  uint32_t lqpn = 0;  // 0: it has none (yet)
  Addr local, remote;
  uint16_t local_port = 0, remote_port = 0;  // of rdma_cm, not of UDP
  uint32_t flowinfo = 0;                     // of IPv6, as the application set it
  bool listens = false;
};

constexpr uint8_t kQpTypeRc = 2;
constexpr uint8_t kQpTypeUc = 3;
constexpr uint8_t kQpTypeUd = 4;
constexpr uint8_t kQpStateRtr = 2;
constexpr uint8_t kQpStateRts = 3;

// To one other queue pair, and packets may pass between them.
inline bool IsConnected(const Qp& qp) {
  const bool has_peer = (qp.type == kQpTypeRc || qp.type == kQpTypeUc) && qp.rqpn != 0;
  return has_peer && (qp.state == kQpStateRtr || qp.state == kQpStateRts);
}

// What this host's kernel lists of queue pairs. After an error ask another one: what is left of a broken answer would
// be taken for the next.
class QpLists {
 public:
  virtual ~QpLists() = default;
  virtual absl::StatusOr<std::vector<Link>> Links() = 0;
  // Every queue pair of every device; processes and their names from /proc.
  virtual absl::StatusOr<std::vector<Qp>> Qps() = 0;
  virtual absl::StatusOr<std::vector<CmId>> CmIds() = 0;
  // One of them, asked for by its number; kNotFound: the device has no such queue pair.
  virtual absl::StatusOr<Qp> FindQp(const Link& link, uint32_t lqpn) = 0;
};

class NldevClient final : public QpLists {
 public:
  // kUnavailable when this kernel has no RDMA subsystem.
  static absl::StatusOr<std::unique_ptr<NldevClient>> Open();
  ~NldevClient() override;

  absl::StatusOr<std::vector<Link>> Links() override;
  absl::StatusOr<std::vector<Qp>> Qps() override;
  absl::StatusOr<std::vector<CmId>> CmIds() override;
  absl::StatusOr<Qp> FindQp(const Link& link, uint32_t lqpn) override;

 private:
  explicit NldevClient(mnl_socket* socket) : socket_(socket) {}
  struct Device {
    uint32_t index;
    std::string name;
    uint32_t ports;
  };
  absl::StatusOr<std::vector<Device>> Devices();
  absl::Status Request(uint16_t command, uint16_t flags, const uint32_t* device_index,
                       int (*parse)(const nlmsghdr*, void*), void* data);
  absl::Status Receive(int (*parse)(const nlmsghdr*, void*), void* data);

  mnl_socket* socket_;
  uint32_t sequence_ = 0;
};

}  // namespace cw::rdma

#endif  // CW_USERSPACE_RDMA_NLDEV_H
