// SPDX-License-Identifier: Apache-2.0
// The agent's end of the in-process socket (userspace/inproc/cw_inproc.h): programs and libraries that own queue pairs
// announce them here, and ask for a path.
//
// Thread rule: one thread; drive it with Poll() when fd() is readable.
#ifndef CW_USERSPACE_RDMA_INPROC_SERVER_H
#define CW_USERSPACE_RDMA_INPROC_SERVER_H

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "userspace/inproc/cw_inproc.h"
#include "userspace/model/addr.h"
#include "userspace/rdma/process_quota.h"
#include "userspace/rdma/stranger_socket.h"

namespace cw::rdma {

// What the owner's library counted so far, and what became of its question for a path.
struct OwnerSums {
  std::optional<cw_inproc_verdict> asked;  // the answer it got; nullopt: it never asked
  uint64_t messages = 0;
  uint64_t bytes = 0;
  uint64_t errors = 0;
  uint64_t completion_samples = 0;
  uint64_t completion_p50_ns = 0;
  uint64_t completion_max_ns = 0;
  int64_t told_ns = 0;  // monotonic; 0: never
  uint32_t can = 0;     // enum cw_inproc_can; 0 also where the library is of a release that moves nothing
  bool told_can = false;
  int refused_errno = 0;                   // by which the device took back that it can move; 0: it did not
  uint8_t lag_active = 0, lag_wanted = 0;  // ports of the bond; 0: none, or not known
};

// A queue pair as its owner announced it, or as it was read from the kernel. Zero or empty = unknown.
struct QpInfo {
  uint32_t lqpn = 0;
  uint32_t rqpn = 0;
  Addr laddr;
  Addr raddr;
  uint32_t pid = 0;
  uint16_t udp_sport = 0;
  uint16_t path_mtu = 0;
  std::string comm;
  std::string label;
  std::string device;              // RDMA device, such as mlx5_0
  std::string source;              // "inproc", "nldev" (the kernel's list) or "hook" (the kernel, at that moment)
  std::optional<OwnerSums> owner;  // nullopt: the owner has no library that counts
  uint32_t flow_label = 0;         // of its address vector, as the kernel was told it
  bool label_known = false;        // false: flow_label says nothing
  uint8_t state = 0;               // enum ib_qp_state, as the kernel told last; 0: not known
  bool proven = false;             // of "inproc": the kernel told the same process and peer QPN; see qp_claim.h
  bool raddr_by_kernel = false;    // raddr is the kernel's word
};

// The answer to a queue pair that asks for a path.
struct Placement {
  cw_inproc_verdict verdict = CW_INPROC_NOT_ACTING;
  uint32_t flow_label = 0;  // of a placed one
  uint16_t udp_sport = 0;
  uint8_t slot = 0;
};

// To the library in the process that owns a connected queue pair. Zero: as it is.
struct MoveOrder {
  Addr laddr;
  uint32_t lqpn = 0;
  uint32_t pid = 0;  // the owner's
  uint32_t request = 0;
  uint16_t udp_sport = 0;
  uint8_t lag_port = 0;
};
struct MoveResult {
  uint32_t request = 0;
  int error = 0;  // errno; 0: done
};

// Who asks, by the kernel's credentials.
struct Requester {
  uint32_t pid = 0;
  uint32_t uid = 0;
};

class InprocServer {
 public:
  // The other end of a connection, as the kernel tells.
  struct Peer {
    uint64_t connection = 0;  // never used twice
    uint32_t pid = 0;
    uint32_t uid = 0;
  };
  struct Handler {
    std::function<void(const QpInfo&)> registered;    // or told anew: its sums, another port
    std::function<void(const QpInfo&)> unregistered;  // also for each queue pair of a connection that closed
    std::function<Placement(const QpInfo&, const Requester&)> place = nullptr;  // null: nothing is placed
    // Messages of profilers (types from CW_INPROC_PROFILER on). Null: such messages are malformed.
    std::function<void(const Peer&, absl::Span<const uint8_t> message)> profiler = nullptr;
    std::function<void(const Peer&)> closed = nullptr;  // a connection that sent such messages
    // One that sent a descriptor, or ended without a word, as who is refused one does: a plug-in of an earlier release,
    // or who means ill. Its connection is ended.
    std::function<void(const Peer&)> strange = nullptr;
    // The answer to a move; the queue pair is as it is after it.
    std::function<void(const QpInfo&, const MoveResult&)> moved = nullptr;
  };
  struct Counts {
    uint64_t malformed = 0;
    uint64_t over_quota = 0;   // messages, queue pairs and connections that were refused
    uint64_t descriptors = 0;  // messages that held one, and ended their connection
    uint64_t rests = 0;        // without taking connections, for want of descriptors
  };
  // Creates the socket (mode 0666: any process may announce its own queue pairs; the kernel's credentials replace the
  // pid that a message claims). A stale socket file is replaced. No descriptor of another process ever comes into this
  // one by it (stranger_socket.h).
  static absl::StatusOr<std::unique_ptr<InprocServer>> Listen(const std::string& path, Handler handler,
                                                              const QuotaLimits& limits = {});
  ~InprocServer();

  int fd() const { return sockets_.epoll; }
  // Takes what is waiting, at most a few hundred messages, without blocking.
  void Poll();
  // Sends the orders, many a message. The requests of those that could not be sent: their owner is gone, reads nothing,
  // or never said that it can.
  std::vector<uint32_t> Move(absl::Span<const MoveOrder> orders);
  // Sends a message with a descriptor of ours, which stays the caller's; -1: none. NotFound: the connection is gone.
  absl::Status Give(uint64_t connection, absl::Span<const uint8_t> message, int fd);
  const Counts& counts() const { return counts_; }

 private:
  using QpKey = std::pair<Addr, uint32_t>;  // local address and QPN
  struct Connection {
    int fd;
    Requester peer;
    absl::flat_hash_map<QpKey, QpInfo> qps;
    uint64_t id = 0;
    bool profiler = false;
    bool said = false;  // anything
    Peer AsPeer() const { return {id, peer.pid, peer.uid}; }
  };
  // reserve: given up for a moment where there is no other, to take and refuse who waits.
  struct Sockets {
    int listener = -1, epoll = -1, timer = -1, reserve = -1;
  };
  enum class After { kGoesOn, kEnds, kStrange };
  InprocServer(std::string path, const Sockets& sockets, Handler handler, const QuotaLimits& limits);
  void Accept();
  void Admit(int fd);
  void Refuse(int fd);
  void RefuseOne();
  void Rest();
  void Wake();  // OnTimer, in a while
  void OnTimer();
  After Receive(Connection& connection);
  void Message(Connection& connection, const char* data, size_t size);
  QpInfo* Remember(Connection& connection, QpInfo info);  // null: over quota
  void OnRegister(Connection& connection, const cw_inproc_register_qp& message);
  void OnUnregister(Connection& connection, const cw_inproc_register_qp& message);
  void OnPlace(Connection& connection, const cw_inproc_place_qp& message);
  void OnSums(Connection& connection, const cw_inproc_qp_sums& message);
  void OnCan(Connection& connection, const cw_inproc_qp_can& message);
  void OnMoved(Connection& connection, const cw_inproc_qp_moved& message);
  const Connection* OwnerOf(const MoveOrder& order) const;  // null: there is none that can
  static QpInfo* Known(Connection& connection, const uint8_t laddr[16], uint32_t lqpn);
  static void Answer(const Connection& connection, const cw_inproc_place_qp& asked, const Placement& placement);
  void Close(size_t index);

  std::string path_;
  Sockets sockets_;
  Handler handler_;
  std::vector<std::unique_ptr<Connection>> connections_;
  ProcessQuota quota_;
  Discards discards_;
  Counts counts_;
  uint64_t next_connection_ = 1;
};

}  // namespace cw::rdma

#endif  // CW_USERSPACE_RDMA_INPROC_SERVER_H
