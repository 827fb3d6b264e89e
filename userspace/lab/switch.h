// SPDX-License-Identifier: Apache-2.0
//
// The switch programs (bpf/lab/switch.bpf.c) and their maps. The programs live as long as the ports that they are
// attached to; nothing is pinned, maps are found again by their ids. Threads: everything but Open and the loader's
// functions may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bpf/lab/switch_abi.h"

struct lab_switch;  // bpftool's skeleton

namespace cw::lab {

struct SwitchMapIds {
  uint32_t config = 0;
  uint32_t links = 0;
  uint32_t sums = 0;
  uint32_t flows = 0;
};

// The maps of one lab, mapped into this process. Directions are numbered as in switch_abi.h.
class SwitchMaps {
 public:
  // NotFound: the maps are gone (the lab's ports are).
  static absl::StatusOr<std::unique_ptr<SwitchMaps>> Open(const SwitchMapIds& ids);
  ~SwitchMaps();
  SwitchMaps(const SwitchMaps&) = delete;
  SwitchMaps& operator=(const SwitchMaps&) = delete;

  void SetFaultWord(int direction, uint64_t word);
  uint64_t FaultWord(int direction) const;
  lab_link_config* Config(int direction) { return &config_[direction]; }
  const lab_link_config* Config(int direction) const { return &config_[direction]; }
  lab_link_counters Counters(int direction) const;
  uint64_t UncountedFlowPackets() const;
  absl::StatusOr<std::vector<std::pair<lab_flow_key, lab_flow_counters>>> Flows() const;

 private:
  SwitchMaps() = default;
  lab_link_config* config_ = nullptr;
  lab_link_counters* links_ = nullptr;
  lab_totals* sums_ = nullptr;
  int flows_fd_ = -1;
};

class SwitchPrograms {
 public:
  static absl::StatusOr<std::unique_ptr<SwitchPrograms>> Load();
  ~SwitchPrograms();
  SwitchPrograms(const SwitchPrograms&) = delete;
  SwitchPrograms& operator=(const SwitchPrograms&) = delete;

  SwitchMapIds map_ids() const { return ids_; }
  // In the network namespace of the calling thread. xdp: lab_pass as well, in native mode.
  absl::Status AttachPort(int ifindex, bool xdp) const;

 private:
  SwitchPrograms() = default;
  lab_switch* skeleton_ = nullptr;
  SwitchMapIds ids_;
};

// Attaches the programs of a lab that is up to one more port, by the ids of those that run on `like_ifindex`. In the
// network namespace of the calling thread, where both ports are.
absl::Status AttachPortLike(int like_ifindex, int ifindex);
// And the XDP program.
absl::Status AttachXdpLike(int like_ifindex, int ifindex);

}  // namespace cw::lab
