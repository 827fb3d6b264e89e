// SPDX-License-Identifier: Apache-2.0
//
// Which components explain what paths met: maximum likelihood over sets of components, found greedily. Each path is a
// number of trials (probes, or the path itself), some of them bad. A trial over a broken component is bad with that
// component's rate, one over none with the small rate of an error. The component that raises the likelihood most is
// accused, what it explains is taken away, and so on until none raises it by more than its prior costs. Paths that are
// well count against all that they cross: a living path exonerates.
//
// Sources: V. Harsh et al., "Flock: Accurate Network Fault Localization at Scale", CoNEXT 2023 (greedy search over the
// likelihood of paths × components); B. Arzani et al., "007: Democratically Finding the Cause of Packet Drops", NSDI
// 2018 (each flow that is bad votes for its links); C. Tan et al., "NetBouncer", NSDI 2019 (what one path shows to be
// well is well). What is added here: a component is accused only where the hosts that cross it agree, so that one host
// that lies, or is ill itself, accuses nothing that others find well.
//
// Pure. Cost: about linear in the components of all paths that share one with a bad path. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <vector>

#include "userspace/fleet/findings/components.h"

namespace cw::fleet {

// One path, as one host tells of it.
struct Observation {
  const std::vector<int32_t>* needs = nullptr;  // components
  uint32_t host = 0;                            // the teller
  double trials = 0, bad = 0;
};

struct LocaliseRules {
  double error = 1e-3;                                // rate of bad trials without a cause
  double least_rate = 0.99, most_rate = 0.99;         // of a broken component
  double least_gain = 9;                              // natural logarithm of likelihoods
  std::array<double, 5> prior = {0, 3.5, 3, 0.5, 1};  // what accusing costs more, by Part; < 0: never accused
  bool nic_links = true;                              // links that end at a NIC may be accused
  double least_agreement = 0.7;  // mean over the hosts that cross it of the share of their paths that are bad
  double most_contradicted = 1;  // share of the paths that would surely have shown it, and are clean
  const std::set<int32_t>* lives = nullptr;  // never accused
  bool even_alone = false;    // the word of one host is believed only if one rate for all its paths explains it
  bool without_best = false;  // it has to be seen without the host that tells the worst of it, too
  size_t most_suspects = 1000;
};

struct Suspect {
  int32_t component = -1;
  double rate = 0;             // of bad trials
  double trials = 0, bad = 0;  // over it
  uint32_t paths_bad = 0, paths_well = 0;
  uint32_t hosts_bad = 0, hosts = 0;  // that tell of bad ones; that cross it
  std::vector<uint32_t> explains;     // observations
  std::vector<int32_t> alike;         // components that explain the same, and are not part of it
};

std::vector<Suspect> Localise(const std::vector<Observation>& seen, const Components& components,
                              const LocaliseRules& rules);

}  // namespace cw::fleet
