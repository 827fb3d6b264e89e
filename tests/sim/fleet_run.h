// SPDX-License-Identifier: Apache-2.0
//
// One world, one fault (or two at once), and what was found of it. Threads: one at a time.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/fleet_sim.h"
#include "tests/sim/fleet_world.h"

namespace cw::sim {

class FleetRun {
 public:
  FleetRun(const FleetShape& shape, uint64_t seed) : shape_(shape), seed_(seed) {}

  FleetSimResult Do(FleetFault::Kind kind);
  FleetSimResult Healthy(int seconds);

 private:
  struct Known {
    FleetFault fault;
    bool found = false, over = false;
  };
  void Choose(FleetFault::Kind kind);
  void ChooseTwo();
  void ChooseTwoRacks();
  void Pass(int seconds);
  void Take(const fleet::Finding& finding);
  bool Names(const FleetFault& fault, const fleet::Finding& finding) const;
  bool IsTrueToo(const FleetFault& fault, const fleet::Finding& finding) const;
  void Judge(FleetFault::Kind kind);
  void Complain(const std::string& text);
  double SinceS() const { return static_cast<double>(world_->now_ns() - begun_ns_) / 1e9; }

  const FleetShape shape_;
  const uint64_t seed_;
  std::unique_ptr<FleetWorld> world_;
  std::vector<Known> faults_;
  std::string what_;
  FleetSimResult result_;
  FleetScore score_;
  std::set<std::pair<uint64_t, fleet::Cause>> seen_;
  std::set<uint64_t> ids_;
  int64_t begun_ns_ = 0;
};

}  // namespace cw::sim
