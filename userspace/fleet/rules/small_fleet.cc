// SPDX-License-Identifier: Apache-2.0
//
// The tests that stand in rules.toml: a small fabric, and the same code that looks for what is wrong in a large one.
#include <algorithm>
#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/fleet/rules/rules_file.h"
#include "userspace/model/hops_id.h"

namespace cw::fleet {
namespace {

constexpr uint32_t kLeaves = 3, kSpines = 2, kHostsOfLeaf = 3, kTestHosts = kLeaves * kHostsOfLeaf;
constexpr int64_t kTestSecondNs = 1'000'000'000, kTestBeginNs = 1'700'000'000 * kTestSecondNs;
constexpr uint32_t kProbes = 1000;  // of a path in an interval
constexpr uint32_t kUsualMtu = 9000, kSmallMtu = 1500;
constexpr int kWarmS = 15, kFlapDownS = 4, kFlapUpS = 21;
constexpr uint32_t kSickHost = 4, kSickSpine = 1, kSickLeaf = 1;  // the host is at that leaf

Addr NicOf(uint32_t host) { return Addr::FromV4(0x0a000001 + host); }
Addr LeafPort(uint32_t leaf, uint32_t from) { return Addr::FromV4(0x0b000000 + leaf * 256 + from); }
Addr SpinePort(uint32_t spine, uint32_t leaf) { return Addr::FromV4(0x0c000000 + spine * 256 + leaf); }

class SmallFleet {
 public:
  SmallFleet() {
    FleetFile plan;
    for (uint32_t l = 0; l < kLeaves; ++l) {
      plan.switches.push_back({.name = absl::StrCat("leaf", l)});
      for (uint32_t i = 0; i < kSpines + kHostsOfLeaf; ++i) plan.switches.back().addresses.push_back(LeafPort(l, i));
    }
    for (uint32_t s = 0; s < kSpines; ++s) {
      plan.switches.push_back({.name = absl::StrCat("spine", s)});
      for (uint32_t l = 0; l < kLeaves; ++l) plan.switches.back().addresses.push_back(SpinePort(s, l));
    }
    for (uint32_t h = 0; h < kTestHosts; ++h) {
      picture_.hosts.push_back({.name = absl::StrCat("h", h), .connected = true, .nics = {{"eth0", NicOf(h)}}});
      picture_.hosts.back().clock_known = picture_.hosts.back().clock_synced = true;
    }
    hops_.reserve(kTestHosts * kTestHosts * kSpines);
    for (uint32_t a = 0; a < kTestHosts; ++a) {
      for (uint32_t b = 0; b < kTestHosts; ++b) {
        for (uint32_t s = 0; s < kSpines && a / kHostsOfLeaf != b / kHostsOfLeaf; ++s) AddPath(a, b, s);
      }
    }
    std::vector<Trace> traces;
    for (const PathEvidence& path : picture_.paths) traces.push_back({path.source, path.destination, *path.hops});
    topology_ = BuildTopology(traces, plan);
    picture_.topology = &topology_;
    picture_.wiring = &wiring_;
    picture_.now_ns = kTestBeginNs;
  }

  // As if nothing were wrong.
  void Heal() {
    for (size_t i = 0; i < picture_.paths.size(); ++i) {
      PathEvidence& path = picture_.paths[i];
      path.state = PathEvidence::State::kAlive;
      path.hops = &hops_[i];
      path.hops_id = HopsId(hops_[i]);
      path.lost = 0;
      path.queue_ns = 0;
    }
    for (HostEvidence& host : picture_.hosts) {
      host.connected = host.clock_synced = true;
      host.late_share = 0;
      host.refusal.clear();
    }
    wiring_.faults.clear();
    picture_.slas.clear();
    picture_.standing.clear();
    for (HostEvidence& host : picture_.hosts) {
      host.nics[0].mtu = kUsualMtu;
      host.nics[0].trouble.clear();
    }
  }
  void Break(const RuleTest& test, bool first);
  void BreakWords(Cause fault, bool first);
  std::vector<Finding> Second(Findings& findings) {
    picture_.now_ns += kTestSecondNs;
    for (HostEvidence& host : picture_.hosts) {
      if (host.connected) host.last_seen_ns = host.newest_ns = picture_.now_ns;
    }
    for (PathEvidence& path : picture_.paths) path.time_ns = picture_.hosts[path.host].newest_ns;
    std::vector<Finding> changed = findings.Evaluate(picture_);
    picture_.events.clear();
    return changed;
  }

 private:
  void AddPath(uint32_t a, uint32_t b, uint32_t spine) {
    const uint32_t from = a / kHostsOfLeaf, to = b / kHostsOfLeaf;
    hops_.push_back({LeafPort(from, kSpines + a % kHostsOfLeaf), SpinePort(spine, from), LeafPort(to, spine)});
    picture_.paths.push_back({.host = a,
                              .source = NicOf(a),
                              .destination = NicOf(b),
                              .hops = &hops_.back(),
                              .hops_id = HopsId(hops_.back()),
                              .full_size = true,
                              .sent = kProbes,
                              .base_ns = 5000});
  }
  void Each(const std::function<bool(const PathEvidence&)>& which, const std::function<void(PathEvidence&)>& change) {
    for (PathEvidence& path : picture_.paths) {
      if (which(path)) change(path);
    }
  }
  void Say(uint32_t host, const std::string& type, uint32_t peer,
           std::vector<std::pair<std::string, std::string>> evidence) {
    picture_.events.push_back({.host = absl::StrCat("h", host),
                               .type = type,
                               .peer = absl::StrCat("h", peer),
                               .flow = "f",
                               .run = 1,
                               .time_ns = picture_.now_ns,
                               .alert = true,
                               .evidence = std::move(evidence)});
  }

  std::vector<std::vector<Addr>> hops_;
  Topology topology_;
  WiringReport wiring_;
  Picture picture_;
};

void SmallFleet::Break(const RuleTest& test, bool first) {
  const auto crosses = [](const Addr& port) {
    return [port](const PathEvidence& p) { return std::count(p.hops->begin(), p.hops->end(), port) > 0; };
  };
  const auto link = crosses(LeafPort(kSickLeaf, kSickSpine));
  const auto of_spine = [](const PathEvidence& p) {
    return (*p.hops)[1] == SpinePort(kSickSpine, p.host / kHostsOfLeaf);
  };
  const Addr sick = NicOf(kSickHost);
  const auto of_nic = [&](const PathEvidence& p) { return p.source == sick || p.destination == sick; };
  const auto to_nic = [&](const PathEvidence& p) { return p.destination == sick; };
  const auto die = [](PathEvidence& p) { p.state = PathEvidence::State::kDead; };
  const auto queue = [&](PathEvidence& p) { p.queue_ns = absl::ToDoubleNanoseconds(test.queue); };
  switch (test.fault) {
    case Cause::kLinkDead:
    case Cause::kFlapping:
      return Each(link, die);
    case Cause::kLinkGrey:
      return Each(link, [&](PathEvidence& p) { p.lost = static_cast<uint32_t>(test.loss * kProbes); });
    case Cause::kSwitchDead:
      return Each(of_spine, die);
    case Cause::kHostDown:
      picture_.hosts[kSickHost].connected = false;
      return Each(of_nic, die);
    case Cause::kAgentGone:
      picture_.hosts[kSickHost].connected = false;
      return;
    case Cause::kNicDown:
      return Each(of_nic, die);
    case Cause::kCongestion:
      return Each(link, queue);
    case Cause::kIncast:
      return Each(to_nic, queue);
    case Cause::kPacketSize:
      return Each(link, [](PathEvidence& p) {
        p.largest_bytes = kSmallMtu;
        p.full_size = false;
      });
    case Cause::kClassPaused:
      return Each(to_nic, [](PathEvidence& p) { p.state = PathEvidence::State::kPaused; });
    case Cause::kRailDown:
      return Each([](const PathEvidence&) { return true; },
                  [](PathEvidence& p) { p.state = PathEvidence::State::kSilent; });
    case Cause::kPathsDead:  // of switches that answer no trace
      return Each(of_spine, [](PathEvidence& p) {
        p.state = PathEvidence::State::kDead;
        p.hops = nullptr;
        p.hops_id = 0;
      });
    default:
      return BreakWords(test.fault, first);
  }
}

// What hosts, or others, say.
void SmallFleet::BreakWords(Cause fault, bool first) {
  switch (fault) {
    case Cause::kSwapped:
      wiring_.faults = {{.ends = {SpinePort(0, 0), SpinePort(0, 1)}, .text = "two cables are exchanged"}};
      return;
    case Cause::kSlowReceiver:
      if (first) Say(0, "cause", kSickHost, {{"cause", "slow receiver"}});
      return;
    case Cause::kSlowSender:
      if (first) Say(kSickHost, "cause", 0, {{"cause", "slow sender"}});
      return;
    case Cause::kClock:
      picture_.hosts[kSickHost].clock_synced = false;
      return;
    case Cause::kSla:
      picture_.slas = {{.name = "test", .missed = true}};
      return;
    case Cause::kConfiguration:
      picture_.hosts[kSickHost].nics[0].mtu = kSmallMtu;
      return;
    case Cause::kHostBusy:
      picture_.hosts[kSickHost].late_share = 0.5;
      return;
    case Cause::kNicNotMeasured:
      picture_.hosts[kSickHost].nics[0].trouble = "NIC eth0: another XDP program is in the place of the agent's";
      return;
    case Cause::kReportsRefused:
      picture_.hosts[kSickHost].refusal = "from the future";
      return;
    case Cause::kNotNetwork:
      picture_.standing = {{.job = "test", .host = absl::StrCat("h", kSickHost), .text = "a rank has sent nothing"}};
      return;
    default:
      return;  // paths show it
  }
}

struct Opened {
  std::multiset<std::string> lines;  // "CAUSE: SEVERITY"
  std::set<std::string> summaries;
};

Opened Happens(const Rules& rules, const RuleTest& test) {
  SmallFleet fleet;
  Findings findings(rules.findings);
  Opened opened;
  std::set<std::pair<uint64_t, Cause>> seen;
  const auto pass = [&](int64_t seconds, bool broken) {
    for (int64_t s = 0; s < seconds; ++s) {
      fleet.Heal();
      if (broken && !test.none) fleet.Break(test, s == 0);
      for (const Finding& f : fleet.Second(findings)) {
        if (f.end_ns != 0 || !seen.insert({f.id, f.cause}).second) continue;
        const CauseRule& rule = RuleOf(rules.findings.causes, f.cause);
        opened.lines.insert(absl::StrCat(CauseName(f.cause), ": ", SeverityName(rule.severity)));
        opened.summaries.insert(SummaryOf(rule, f.scope));
      }
    }
  };
  pass(kWarmS, false);
  if (!test.none && test.fault == Cause::kFlapping) {
    for (int i = 0; i < test.flaps; ++i) {
      pass(kFlapDownS, true);
      pass(kFlapUpS, false);
    }
  } else {
    pass(absl::ToInt64Seconds(test.lasts), true);
  }
  return opened;
}

}  // namespace

std::vector<std::string> RunRuleTests(const Rules& rules) {
  std::vector<std::string> wrong;
  for (const RuleTest& test : rules.tests) {
    const Opened opened = Happens(rules, test);
    const std::multiset<std::string> wanted(test.expect.begin(), test.expect.end());
    if (opened.lines != wanted) {
      wrong.push_back(absl::StrCat(test.at, ": ", test.name, ": expected [", absl::StrJoin(wanted, ", "), "], found [",
                                   absl::StrJoin(opened.lines, ", "), "]"));
    } else if (!test.summary.empty() && !opened.summaries.contains(test.summary)) {
      wrong.push_back(absl::StrCat(test.at, ": ", test.name, ": expected the summary \"", test.summary, "\", found \"",
                                   absl::StrJoin(opened.summaries, "\", \""), "\""));
    }
  }
  return wrong;
}

}  // namespace cw::fleet
