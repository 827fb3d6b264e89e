// SPDX-License-Identifier: Apache-2.0
//
// What the agent knows of one of this host's NICs. Thread rule: the agent's loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "userspace/agent/nics/nic_nodes.h"
#include "userspace/config/config.h"
#include "userspace/dataplane/dataplane.h"
#include "userspace/model/addr.h"

namespace cw::agent {

struct NicState {
  config::NicConfig config;  // its name there is what it is shown as
  std::string device;        // what the device with this ifindex is called now: the kernel is asked by it
  uint32_t ifindex = 0;
  Addr address;
  uint32_t mtu = 0;
  bool link_up = true;  // as the witnesses below say
  bool carrier = true;
  bool rdma_down = false;       // a port of an RDMA device on it
  bool carrier_known = false;   // it was read once
  bool removed = false;         // the device went away since the start; never followed by its name after that
  std::string no_address;       // where its address is instead, "" while it is there
  uint64_t carrier_losses = 0;  // as the kernel counts them
  int64_t carrier_lost_ns = 0;  // monotonic; when the last one was noticed; 0: never
  dataplane::AttachInfo attach;
  std::string note;  // why nothing is attached
  bool attached = false;
  bool programs_gone = false;  // somebody took one of them away, and it is not back yet
  int settling = 0;            // looks until what was lost while a program was gone counts for nothing any more
  std::string hooks_trouble;   // why our programs do not see its packets now; "": they do, or are not wanted
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
  // Is what they saw, and missed, of late a word on paths and peers?
  bool judges() const { return !attached || (hooks_trouble.empty() && settling == 0); }
  std::string DeviceTrouble() const;  // the first thing wrong with the device or its address, ""
  std::string Trouble() const;        // … or with our programs on it
  std::string Note() const;           // what is not wrong and ought to be set right, ""
};

inline std::string NicState::DeviceTrouble() const {
  if (removed)
    return config.name + " was removed; the agent starts anew once each NIC is there by its name, with its address";
  return no_address;
}

inline std::string NicState::Trouble() const {
  const std::string device_trouble = DeviceTrouble();
  return device_trouble.empty() ? hooks_trouble : device_trouble;
}

inline std::string NicState::Note() const {
  if (removed || device.empty() || device == config.name) return "";
  return config.name + " is now called " + device + ": the agent follows it; name it so in the configuration";
}

using NicTable = std::vector<NicState>;  // in the order of the configuration

// nullptr: none of ours.
inline const NicState* NicOf(const NicTable& nics, uint32_t ifindex) {
  const auto nic = std::find_if(nics.begin(), nics.end(), [&](const NicState& n) { return n.ifindex == ifindex; });
  return nic == nics.end() ? nullptr : &*nic;
}
inline NicState* NicOf(NicTable& nics, uint32_t ifindex) {
  return const_cast<NicState*>(NicOf(std::as_const(nics), ifindex));
}

}  // namespace cw::agent
