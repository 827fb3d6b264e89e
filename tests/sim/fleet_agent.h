// SPDX-License-Identifier: Apache-2.0
//
// A host: its pairs, and its agent's uplink, which reports when the real one does (agent/uplink.cc): each ten seconds,
// and soon after news of paths, at most once a second. Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/fleet_pair.h"
#include "tests/sim/fleet_service.h"
#include "userspace/uplink/batch_builder.h"

namespace cw::sim {

class FleetAgent {
 public:
  struct Nic {
    std::string name;
    Addr address;
    uint32_t mtu = 9000;
  };
  using Lie = std::function<void(std::vector<uplink::PathSeen>& paths)>;

  FleetAgent(std::string name, std::vector<Nic> of, FleetService& service)
      : nics(std::move(of)), name_(std::move(name)), service_(service) {}

  void Start(int64_t now_ns, uint64_t run);  // a new agent: its uplink connects
  void PathNews(int64_t now_ns);
  // Reports where it is time to.
  void Report(int64_t now_ns, std::vector<std::unique_ptr<ProbePair>>& pairs, const std::vector<bool>& awake);
  void Tell(int64_t now_ns, const std::string& type, const std::string& peer, bool alert,
            const std::vector<std::pair<std::string, std::string>>& evidence);
  void Connect(int64_t now_ns) { service_.Connect(name_, run_, now_ns); }
  void Disconnect() { service_.Disconnect(name_, run_); }
  const std::string& name() const { return name_; }

  std::vector<Nic> nics;
  std::vector<size_t> pairs;  // numbers
  // running: the agent; up: the host, whose programs answer probes.
  bool missing = false, late = false, liar = false, running = false, up = true;
  bool clock_synced = true;
  std::function<void(std::vector<uplink::PathSeen>&)> lie;

 private:
  int64_t ClockNs(int64_t now_ns) const;

  const std::string name_;
  FleetService& service_;
  uint64_t run_ = 0, seq_ = 0;
  std::optional<uplink::BatchBuilder> builder_;
  bool path_changed_ = false;
  int64_t changed_ns_ = 0, taken_ns_ = 0, detail_ns_ = 0, last_ns_ = 0;
};

}  // namespace cw::sim
