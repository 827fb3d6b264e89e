// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/failover_verdicts.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"

namespace cw::lab {
namespace {

constexpr int64_t kLateNs = 100'000'000;

bool Crosses(const Way& way, const LinkDirection& link) {
  if (link.tier != LinkDirection::Tier::kSpine || link.spine != way.spine) return false;
  return link.leaf == (link.toward == LinkDirection::Toward::kDown ? way.to_leaf : way.from_leaf);
}

std::optional<int> LeafOf(const Testbed& testbed, Fabric& fabric, const std::string& address) {
  for (int host = 0; host < fabric.hosts(); ++host) {
    if (fabric.HostAddr(host) == address) return fabric.HostLeaf(host);
    const auto& second = testbed.spec().second_nics;
    if (static_cast<size_t>(host) < second.size() && fabric.PortAddress(testbed.second_port(host)) == address)
      return second[static_cast<size_t>(host)];
  }
  return std::nullopt;
}

double SecondsOf(const Testbed& testbed, int64_t at_ns) {
  return static_cast<double>(at_ns - testbed.origin_ns()) / 1e9;
}

}  // namespace

std::optional<Way> WayOf(Testbed& testbed, const std::string& local, const std::string& remote, uint16_t udp_port) {
  const absl::StatusOr<int> spine = testbed.fabric().PathOf(local, remote, udp_port);
  const std::optional<int> from = LeafOf(testbed, testbed.fabric(), local);
  const std::optional<int> to = LeafOf(testbed, testbed.fabric(), remote);
  if (!spine.ok() || !from || !to) return std::nullopt;
  return Way{*from, *to, *spine};
}

bool Explained(const std::vector<Cut>& cuts, const Way& way, int64_t at_ns) {
  return std::any_of(cuts.begin(), cuts.end(), [&](const Cut& cut) {
    return Crosses(way, cut.link) && at_ns >= cut.time.cut_ns && at_ns <= cut.time.repaired_ns + kLateNs;
  });
}

int WrongTold(Testbed& testbed, const std::vector<Testbed::PathDeath>& told, const std::vector<Cut>& cuts,
              std::vector<Mark>& marks) {
  int wrong = 0;
  for (const Testbed::PathDeath& death : told) {
    const std::optional<Way> way =
        WayOf(testbed, testbed.fabric().HostAddr(death.host), testbed.fabric().HostAddr(death.peer), death.udp_port);
    const bool right = way && Explained(cuts, *way, death.at_ns);
    wrong += right ? 0 : 1;
    marks.push_back({SecondsOf(testbed, death.at_ns), "dead",
                     absl::StrFormat("%sh%d: %s", right ? "" : "WRONG: ", death.host, death.text)});
  }
  return wrong;
}

absl::StatusOr<KernelVerdicts> JudgeKernels(Testbed& testbed, KernelDeaths& deaths, const std::vector<Cut>& cuts,
                                            std::vector<Mark>& marks) {
  const absl::StatusOr<KernelCounts> counted = deaths.Counted();
  if (!counted.ok()) return counted.status();
  KernelVerdicts verdicts{.died = counted->died, .revived = counted->revived, .moves_blind = counted->moves_blind};
  uint64_t seen = 0;
  for (const KernelDeath& death : deaths.Seen()) {
    seen += death.times;
    const std::optional<Way> way = WayOf(testbed, death.local, death.remote, death.udp_port);
    if (way && Explained(cuts, *way, death.at_ns)) continue;
    verdicts.elsewhere += death.times;
    marks.push_back({SecondsOf(testbed, death.at_ns), "dead",
                     absl::StrFormat("WRONG: h%d's kernel: path %d to %s (udp-port %d, spine%d) died %d times; %s",
                                     death.host, death.slot, death.remote, death.udp_port, way ? way->spine : -1,
                                     death.times, SceneText(death.scene))});
  }
  verdicts.untraced = verdicts.died > seen ? verdicts.died - seen : 0;
  return verdicts;
}

}  // namespace cw::lab
