// SPDX-License-Identifier: Apache-2.0
//
// Programs on the interfaces of this network namespace, by route netlink (rtnetlink(7), linux/pkt_cls.h).
// Errors are an errno; 0 is none. Thread rule: one thread per object.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "maps/unique_fd.h"

namespace cw::off {

struct Interface {
  uint32_t ifindex = 0;
  std::string name;
};

class Route {
 public:
  Route();
  int error() const { return error_; }  // of opening

  std::vector<Interface> Interfaces();  // sorted by number
  // Ids of the XDP programs of an interface, in whatever mode.
  int XdpPrograms(uint32_t ifindex, std::set<uint32_t>* out);
  // Id of the program with our handle and priority, 0: there is none, or something of another kind.
  int FilterInOurPlace(uint32_t ifindex, bool egress, uint32_t* program);
  int RemoveFilterInOurPlace(uint32_t ifindex, bool egress);

 private:
  maps::UniqueFd socket_;
  uint32_t sequence_ = 0;
  int error_ = 0;

  friend class Exchange;
};

}  // namespace cw::off
