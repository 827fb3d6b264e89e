// SPDX-License-Identifier: Apache-2.0
//
// Queue pairs whose packets do not pass the kernel: known by what their owners tell, by RDMA netlink's lists and by
// rdma_cm. Their source port is told or computed, and a slot watches it, as it does for flows that are seen.
// Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "userspace/agent/flow_book.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/probe/mesh.h"
#include "userspace/rdma/qp_registry.h"

namespace cw::agent {

// Of RDMA devices, each asked once.
class Drivers {
 public:
  const std::string& Of(const std::string& device);

 private:
  std::map<std::string, std::string> drivers_;
};

class UnseenFlows {
 public:
  struct Asks {
    std::function<bool()> assigns;  // the kernel's program puts new flows on paths
    // The port of the path slot that this port is known to go with; nullopt: none.
    std::function<std::optional<uint16_t>(uint32_t pair, uint16_t port)> fold;
    std::function<uint8_t(uint32_t pair, uint16_t port)> watch;  // by which slot; CW_SLOT_NONE: none is free
    std::function<void(uint32_t pair, uint16_t port, const FlowKey& user)> release;
  };
  struct Watched {
    uint32_t pair = 0;
    uint16_t port = 0;
    uint8_t slot = CW_SLOT_NONE;  // that watches its port
  };
  struct OnPath {
    rdma::QpInfo qp;
    uint32_t pair = 0;
    uint8_t slot = CW_SLOT_NONE;  // NONE: its path is not known
  };

  // All of them outlive it.
  UnseenFlows(const PairTable& pairs, NicTable& nics, const FlowBook& flows, const rdma::QpRegistry& qps,
              const probe::Mesh& mesh, Asks asks)
      : pairs_(pairs), nics_(nics), flows_(flows), qps_(qps), mesh_(mesh), asks_(std::move(asks)) {}

  void Follow();  // once a second
  void OnNative(uint32_t pair, const probe::NativeChange& change);
  void Forget(uint32_t pair);

  // One owner of the port: where its packets are seen, or new flows are put on paths, that is the kernel's program.
  bool KernelHas(const rdma::QpInfo& qp) const;
  std::vector<OnPath> OnPaths() const;
  // The slot that stands for a queue pair's port, or for one that it has left: that which watches it, or that of the
  // path that it takes, as far as its hops are known.
  uint8_t SlotOf(const FlowKey& flow, uint16_t port) const;
  const std::map<FlowKey, Watched>& watched() const { return watched_; }  // that a slot was asked for

 private:
  bool IsUnseen(const rdma::QpInfo& qp, const NicState& nic) const;
  std::map<FlowKey, Watched> Wanted() const;
  void Release(const FlowKey& key);

  const PairTable& pairs_;
  NicTable& nics_;
  const FlowBook& flows_;
  const rdma::QpRegistry& qps_;
  const probe::Mesh& mesh_;
  const Asks asks_;

  std::map<FlowKey, Watched> watched_;
};

}  // namespace cw::agent
