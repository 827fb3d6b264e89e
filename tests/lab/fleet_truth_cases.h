// SPDX-License-Identifier: Apache-2.0
//
// What is done to labs, and what an operator who knows it would call the right answer.
#pragma once

#include <vector>

#include "tests/lab/fleet_truth_case.h"

namespace cw::lab {

using TruthPair = std::vector<const TruthCase*>;  // at once

// Of hosts with one NIC.
const std::vector<TruthCase>& HostFaults();
const std::vector<TruthCase>& FabricFaults();
const std::vector<TruthCase>& TrafficFaults();
const TruthCase& FlapsUnderWrites();
// Of hosts with two.
const std::vector<TruthCase>& RailFaults();
// Two at once, by the names of the first three.
std::vector<TruthPair> TruthPairs();
// Aborts where there is none of this name.
const TruthCase& CaseNamed(const std::string& name);

}  // namespace cw::lab
