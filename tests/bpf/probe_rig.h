// SPDX-License-Identifier: Apache-2.0
//
// Two hosts and two routers in network namespaces, with two equal paths between the routers:
//
//   a nic0 10.98.1.2 ─ .1 host r1 ═ link1 10.98.2.0/30, link2 10.98.4.0/30 ═ r2 host .1 ─ 10.98.3.2 nic0 b
//
// The routers choose the link by a hash of the UDP ports, and answer a TTL that ends there from the address of the port
// where the packet came in. Both ends of every host link have a native XDP program, so that XDP_TX works on veth.
// Removed on destruction; what a killed test left is removed by the next VethRig. Threads: the constructing one.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"

namespace cw::test {

class ProbeRig {
 public:
  static constexpr char kDevice[] = "nic0";
  static constexpr char kA[] = "10.98.1.2";
  static constexpr char kB[] = "10.98.3.2";

  ProbeRig();
  ~ProbeRig();
  ProbeRig(const ProbeRig&) = delete;
  ProbeRig& operator=(const ProbeRig&) = delete;

  void InA(absl::FunctionRef<void()> run) const { In("a", run); }
  void InB(absl::FunctionRef<void()> run) const { In("b", run); }
  void InR1(absl::FunctionRef<void()> run) const { In("r1", run); }
  // Everything from r1 to r2 on this link vanishes, or no longer does. link: 1 or 2.
  void SetForwardCut(int link, bool cut) const;
  void SetBackwardCut(int link, bool cut) const;  // the same from r2 to r1

 private:
  std::string Name(const std::string& host) const;
  void In(const std::string& host, absl::FunctionRef<void()> run) const;
};

}  // namespace cw::test
