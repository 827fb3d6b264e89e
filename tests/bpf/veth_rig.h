// SPDX-License-Identifier: Apache-2.0
//
// Two network namespaces joined by a veth pair, for tests of the loader: "near" has the interface under test. Removed
// on destruction; what killed test processes left is removed by the next one. Threads: the constructing one.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"

namespace cw::test {

// Runs a shell command; its output (both streams). A failing command fails the test unless may_fail.
std::string Shell(const std::string& command, bool may_fail = false);

class VethRig {
 public:
  explicit VethRig(int mtu = 1500);
  ~VethRig();
  VethRig(const VethRig&) = delete;
  VethRig& operator=(const VethRig&) = delete;

  const std::string& near() const { return near_; }  // names of the namespaces
  const std::string& far() const { return far_; }
  static constexpr char kDevice[] = "nic0";  // on both sides
  static constexpr char kNear[] = "10.99.0.1";
  static constexpr char kFar[] = "10.99.0.2";

  // Runs with the calling thread in the namespace; the BPF file system stays visible.
  void InNear(absl::FunctionRef<void()> run) const { In(near_, run); }
  void InFar(absl::FunctionRef<void()> run) const { In(far_, run); }
  // ip, tc, bpftool in the namespace.
  std::string NearShell(const std::string& command, bool may_fail = false) const;

  // RC SEND-only packets to `qpn` with consecutive PSNs from first_psn, over UDP sockets, so through both programs'
  // whole path. to_near: sent by the far side. The ICRC is not computed: nothing under test checks it.
  void SendRoce(bool to_near, uint32_t qpn, uint32_t first_psn, int packets, size_t payload = 64) const;

 private:
  void In(const std::string& netns, absl::FunctionRef<void()> run) const;
  std::string near_, far_;
};

}  // namespace cw::test
