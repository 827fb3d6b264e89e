// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/fleet_fabric.h"

#include "absl/strings/str_cat.h"

namespace cw::fleet {

Fabric::Fabric(const FabricShape& shape) : shape_(shape) {
  for (int p = 0; p < shape.pods; ++p) {
    for (int l = 0; l < shape.leaves; ++l) names_.push_back(absl::StrCat("pod", p, "-leaf", l));
    for (int s = 0; s < shape.spines; ++s) names_.push_back(absl::StrCat("pod", p, "-spine", s));
  }
  const int cores = shape.pods > 1 ? shape.spines * shape.cores_of_spine : 0;
  for (int c = 0; c < cores; ++c) names_.push_back(absl::StrCat("core", c));
  for (int p = 0; p < shape.pods; ++p) {
    for (int l = 0; l < shape.leaves; ++l) {
      for (int s = 0; s < shape.spines; ++s) Cable(leaf(p, l), spine(p, s));
      for (int n = 0; n < shape.nics; ++n) {
        nics_.push_back(Addr::FromV4(0x0a000001 + static_cast<uint32_t>(nics_.size())));
        leaf_of_.push_back(leaf(p, l));
        nic_ports_.push_back(Addr::FromV4(next_++));
      }
    }
    for (int c = 0; c < cores; ++c) Cable(spine(p, c / shape.cores_of_spine), core(c));
  }
}

void Fabric::Cable(int a, int b) {
  ports_[{a, b}] = Addr::FromV4(next_++);
  ports_[{b, a}] = Addr::FromV4(next_++);
}

Addr Fabric::PortTo(int at, int from) const {
  if (shape_.own_addresses) return Addr::FromV4(0x0c000001 + static_cast<uint32_t>(at));
  return ports_.at({at, from});
}

std::vector<std::vector<int>> Fabric::Ways(int from, int to) const {
  std::vector<std::vector<int>> ways;
  if (from == to) return {{from}};
  const int all = static_cast<int>(names_.size());
  for (int up = 0; up < all; ++up) {
    if (!Wired(from, up)) continue;
    if (Wired(up, to)) ways.push_back({from, up, to});
    for (int core_switch = core(0); core_switch < all; ++core_switch) {
      if (!Wired(up, core_switch) || Wired(up, to)) continue;
      for (int down = 0; down < core(0); ++down) {
        if (down != up && Wired(core_switch, down) && Wired(down, to))
          ways.push_back({from, up, core_switch, down, to});
      }
    }
  }
  return ways;
}

std::vector<Trace> Fabric::Traces() const {
  std::vector<Trace> traces;
  for (size_t a = 0; a < nics_.size(); ++a) {
    for (size_t b = 0; b < nics_.size(); ++b) {
      if (a == b) continue;
      for (const std::vector<int>& way : Ways(leaf_of_[a], leaf_of_[b])) {
        Trace trace{nics_[a], nics_[b], {shape_.own_addresses ? PortTo(way[0], 0) : nic_ports_[a]}};
        for (size_t i = 1; i < way.size(); ++i) trace.hops.push_back(PortTo(way[i], way[i - 1]));
        traces.push_back(trace);
      }
    }
  }
  return traces;
}

FleetFile Fabric::Plan() const {
  FleetFile plan;
  for (int s = 0; s < static_cast<int>(names_.size()); ++s) {
    PlannedSwitch planned{.name = name(s)};
    for (const auto& [key, port] : ports_) {
      if (key.first == s) planned.addresses.push_back(port);
    }
    for (size_t n = 0; n < nics_.size(); ++n) {
      if (leaf_of_[n] == s) planned.addresses.push_back(nic_ports_[n]);
    }
    plan.switches.push_back(planned);
  }
  for (const auto& [key, port] : ports_) plan.cables.push_back({name(key.second), port});
  for (size_t n = 0; n < nics_.size(); ++n) plan.nics.push_back({nics_[n], name(leaf_of_[n])});
  return plan;
}

// The leaves' ends stay; at the spine each cable is in the other's port.
void Fabric::SwapCables(int leaf_a, int leaf_b, int spine_switch) {
  std::swap(ports_.at({spine_switch, leaf_a}), ports_.at({spine_switch, leaf_b}));
}

void Fabric::MoveNic(size_t nic, int to_leaf) {
  leaf_of_[nic] = to_leaf;
  nic_ports_[nic] = Addr::FromV4(next_++);
}

void Fabric::SwapNics(size_t a, size_t b) {
  std::swap(leaf_of_[a], leaf_of_[b]);
  std::swap(nic_ports_[a], nic_ports_[b]);
}

}  // namespace cw::fleet
