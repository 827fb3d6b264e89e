// SPDX-License-Identifier: Apache-2.0
//
// What the agent knows of one of this host's NICs. Thread rule: the agent's loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "userspace/agent/nics/nic_nodes.h"
#include "userspace/config/config.h"
#include "userspace/dataplane/dataplane.h"
#include "userspace/model/addr.h"

namespace cw::agent {

struct NicState {
  config::NicConfig config;
  uint32_t ifindex = 0;
  Addr address;
  uint32_t mtu = 0;
  bool link_up = true;  // as the witnesses below say
  bool carrier = true;
  bool rdma_down = false;       // a port of an RDMA device on it
  bool carrier_known = false;   // it was read once
  bool removed = false;         // the device went away since the start
  uint64_t carrier_losses = 0;  // as the kernel counts them
  int64_t carrier_lost_ns = 0;  // monotonic; when the last one was noticed; 0: never
  dataplane::AttachInfo attach;
  std::string note;  // why nothing is attached
  bool attached = false;
  std::string hooks_trouble;  // why our programs do not see its packets now; "": they do, or are not wanted
  bool offloads_roce = false;
  double rate_bps = 0;                    // of its link, 0 = not known
  std::vector<std::string> rdma_devices;  // as RDMA netlink told last
  bool had_rdma = false;                  // it told of one since the start
  std::unique_ptr<NicNode> node;          // its own clock; null: it has none, or none is wanted
  std::string clock_note;                 // why
  bool has_line = false;                  // in the map cw_nic_lines
  bool by_verbs = false;                  // what its probes go by
  bool hears_verbs = false;               // the kernel serves it, and peers may have probes by verbs
  std::string no_probes;                  // why it has none, though it is to have them by verbs
  bool keeps_departures = false;          // its queues hold packets until they are to depart

  // Do our programs see its packets now?
  bool has_programs() const { return attached && hooks_trouble.empty(); }
  // What is wrong with it now, for people; "": nothing.
  std::string Trouble() const { return hooks_trouble; }
};

using NicTable = std::vector<NicState>;  // in the order of the configuration

// nullptr: none of ours.
inline NicState* NicOf(NicTable& nics, uint32_t ifindex) {
  const auto nic = std::find_if(nics.begin(), nics.end(), [&](const NicState& n) { return n.ifindex == ifindex; });
  return nic == nics.end() ? nullptr : &*nic;
}

}  // namespace cw::agent
