// SPDX-License-Identifier: Apache-2.0
//
// Which verdicts on paths the faults of a run explain, and which are wrong: of what agents told, and of what their
// kernels did. Thread rule: as Testbed's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/lab/failover_measure.h"
#include "userspace/lab/kernel_deaths.h"
#include "userspace/lab/report.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {

struct Cut {
  LinkDirection link;
  CutTime time;
};

// A packet on its way over this spine, from a host of one leaf to one of another.
struct Way {
  int from_leaf = 0, to_leaf = 0, spine = 0;
  bool operator==(const Way&) const = default;
};

// The way of packets with this source port now. None: the port leads nowhere, or an address is nobody's.
std::optional<Way> WayOf(Testbed& testbed, const std::string& local, const std::string& remote, uint16_t udp_port);

// A verdict is right when the way crosses a link that was cut then, or within the 100 ms before (a verdict on what was
// lost just before the repair). Pure.
bool Explained(const std::vector<Cut>& cuts, const Way& way, int64_t at_ns);

// Of what was told, how many are wrong. Each becomes a mark; the text of a wrong one begins with WRONG.
int WrongTold(Testbed& testbed, const std::vector<Testbed::PathDeath>& told, const std::vector<Cut>& cuts,
              std::vector<Mark>& marks);

struct KernelVerdicts {
  uint64_t died = 0, revived = 0;  // by the kernels' own counters
  uint64_t elsewhere = 0;          // of the died, on ways that no cut explains
  uint64_t untraced = 0;           // of the died: nobody knows of which path
  uint64_t moves_blind = 0;
};
// Deaths elsewhere become marks that begin with WRONG.
absl::StatusOr<KernelVerdicts> JudgeKernels(Testbed& testbed, KernelDeaths& deaths, const std::vector<Cut>& cuts,
                                            std::vector<Mark>& marks);

}  // namespace cw::lab
