// SPDX-License-Identifier: Apache-2.0
//
// What is wrong, from what all hosts see. Once a second: the newest picture in, what changed out.
//  - Links, cables, switches, NICs, hosts that are dead or lose packets, and links that queue: localised over paths
//    (localise.h), dead ones first; what they explain is no evidence for anything else.
//  - Hosts: a NIC that is silent is a host that is down where its agent is silent, too; an agent that is not connected
//    while its paths live, or that nobody speaks of, is an agent that is gone.
//  - What agents say of their NICs, flows, links and clocks (event_book.h); wiring against the plan (wiring.h);
//    what was promised (sla_rule.h); NICs that are not set as their like are (settings.h).
// What is missing is no evidence: paths of hosts that are not connected, late or of another time do not count. A host
// whose dead paths are contradicted by the others is not believed.
//
// Pure: time is the picture's. Cost: about linear in paths. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "userspace/fleet/findings/cause_rules.h"
#include "userspace/fleet/findings/components.h"
#include "userspace/fleet/findings/event_book.h"
#include "userspace/fleet/findings/ledger.h"
#include "userspace/fleet/findings/localise.h"
#include "userspace/fleet/findings/path_flaps.h"
#include "userspace/fleet/findings/picture.h"

namespace cw::fleet {

struct FindingRules {
  CauseRules causes = DefaultCauseRules();
  absl::Duration settle = absl::Seconds(12);            // at first hosts have to be heard
  absl::Duration host_fresh = absl::Seconds(25);        // since it was seen
  absl::Duration clock_slack = absl::Seconds(30);       // of a host's newest interval against our clock
  absl::Duration path_fresh = absl::Seconds(15);        // of a path's interval against its host's newest
  absl::Duration host_silent = absl::Seconds(12);       // then a silent NIC's host is down
  absl::Duration host_mute = absl::Milliseconds(2300);  // … or when it said nothing since they died, for so long
  absl::Duration agent_gone = absl::Seconds(30);
  absl::Duration clock_off = absl::Seconds(60);
  double busy_share = 0.2;                                // of records that its agent came too late for
  double clock_bound_ns = 10e6;                           // a wider one is no fleet time
  absl::Duration loss_memory = absl::Seconds(60);         // losses fade with this time constant
  double least_loss = 0.003, most_loss = 0.9;             // of a grey link
  double queue_floor_ns = 10'000, queue_over_base = 0.5;  // a path queues above both
  size_t many_flaps = 8;                                  // within an hour: more is flapping
  absl::Duration flaps_rest = absl::Minutes(10);          // without a flap it ends
  double distrusted_share = 0.5;                          // of a host's dead paths that nothing explains
};

class Findings {
 public:
  explicit Findings(const FindingRules& rules = {}) : rules_(rules) {}

  // Findings that opened, ended, came back or have news.
  std::vector<Finding> Evaluate(const Picture& picture);
  std::vector<Finding> Open() const { return ledger_.Open(); }
  // When the next suspicion may become a finding, for who evaluates seldom; INT64_MAX: there is none.
  int64_t NextNs() const { return ledger_.NextNs(); }
  // What a host said of itself that left.
  void Forget(const std::string& host) { events_.Forget(host); }
  // From the store, after a restart.
  void Resume(const Finding& finding, int64_t now_ns) { ledger_.Resume(finding, now_ns); }
  const std::set<std::string>& distrusted() const { return distrusted_; }  // hosts, as of the last picture
  std::set<int32_t> living_;                                               // switches that hosts behind them vouch for
  std::set<int32_t> undecided_;  // switches that hosts behind them may still say to be dead

 private:
  // Losses of a path, fading.
  struct Memory {
    int64_t time_ns = 0;
    double sent = 0, lost = 0;
    bool dead = false;      // at its end
    int64_t bad_ns = 0;     // since when it has been dead or silent without a break; 0: it is not
    int64_t new_ns = 0;     // time of the first of its words since when it has been new; 0: it is not
    int64_t small_ns = 0;   // since when full-size packets do not arrive; 0: they do, or it is not known
    int64_t queues_ns = 0;  // since when all intervals had a queue: begin of the first; 0: the last had none
  };
  struct Dead {
    int32_t component = -1;
    int64_t since_ns = 0;
  };
  struct Scene;  // of one evaluation

  // path_causes.cc
  void Look(Scene& scene);
  void FindDead(Scene& scene);
  // dead_evidence.cc
  void Weigh(Scene& scene);
  struct Unreached {
    std::set<uint32_t> hosts;  // who finds it dead
    int64_t since_ns = 0;
  };
  void FindUnreached(Scene& scene);
  void FindDarkRacks(const Scene& scene, size_t wanted, std::map<int32_t, Unreached>& by) const;
  std::set<Addr> DownByOwnWord(const Scene& scene) const;
  void ExplainByOwnWord(Scene& scene, std::vector<Suspect>& suspects) const;
  std::vector<Observation> DeadObservations(Scene& scene);
  // dead_causes.cc
  std::vector<Suspect> LocaliseDead(const std::vector<Observation>& seen, size_t paths, bool nic_links = false) const;
  void SplitRacks(Scene& scene, std::vector<Suspect>& suspects) const;
  Suspect NicOf(const Scene& scene, int32_t nic, std::vector<uint32_t> explains) const;
  void Distrust(Scene& scene, const std::vector<Suspect>& suspects);
  void TellDead(Scene& scene, const Suspect& found);
  static int64_t DiedNs(const Scene& scene, const Suspect& suspect);
  bool IsSure(const Scene& scene, const Suspect& suspect) const;
  static uint32_t ExplainOver(Scene& scene, int32_t component);
  static uint32_t OverIt(const Scene& scene, int32_t component);
  void ExplainByThePast(Scene& scene);
  void LeaveOut(Scene& scene, std::vector<Suspect>& suspects) const;
  static bool EndsAtPortOf(const Component& c, const Finding& open);
  bool IsPartOfOpen(int32_t component, int64_t now_ns) const;
  void ExplainHostsBehind(Scene& scene, const Suspect& suspect, Suspicion& s) const;
  void ExplainHostsOf(Scene& scene, int32_t leaf, Suspicion& s) const;
  void FindLiving(const Scene& scene);
  void HoldUndecided(Scene& scene, std::vector<Suspect>& suspects) const;
  static bool OtherWayArrives(const Scene& scene, const Component& link);
  std::vector<Suspect> OwnLinks(const Scene& scene, const std::vector<Observation>& seen) const;
  void FindOwnLinks(const Scene& scene, std::vector<Observation> seen, std::vector<Suspect>& suspects) const;
  void TellOwnLink(int32_t component, Suspicion& s) const;
  bool TellHost(Scene& scene, const Suspect& suspect, Suspicion& s) const;
  void KeepDead(Scene& scene);
  void Remember(Scene& scene);
  static uint64_t PathKey(const PathEvidence& path);
  const Memory& MemoryOf(const PathEvidence& path);
  // grey_causes.cc
  struct Grey {
    Suspect suspect;
    double sent = 0, lost = 0;  // within the newest reports
  };
  std::vector<Grey> GreyLinks(Scene& scene);
  static Grey JoinGrey(const Scene& scene, int32_t whole, const std::vector<const Grey*>& parts);
  void FoldGrey(const Scene& scene, std::vector<Grey>& grey) const;
  void FindGrey(Scene& scene);
  void ForgetLosses(const Scene& scene, const std::vector<Finding>& changed);
  // join_open.cc
  bool Contains(const std::string& whole, const std::string& part) const;
  bool Touch(const Finding& one, const Finding& other) const;
  void JoinOpen(Scene& scene) const;
  // path_causes.cc
  void LeaveOutOwnQueues(const Scene& scene, std::vector<Suspect>& suspects) const;
  void FindQueues(Scene& scene);
  void FindPaused(Scene& scene);
  void FindPacketSizes(Scene& scene);  // size_causes.cc
  void NoteDead(const Scene& scene);
  // rail_causes.cc
  void FindRails(Scene& scene, std::vector<Suspect>& suspects);
  bool IsCutAt(const Scene& scene, uint32_t i, const std::vector<int32_t>& what) const;
  bool IsOnceNew(const PathEvidence& path);
  int32_t EndOfAll(const Scene& scene, const std::vector<uint32_t>& paths) const;
  void FindUnexplained(Scene& scene);
  // flap_causes.cc
  struct Flapping {
    int64_t last_ns = 0;
    size_t times = 0;  // that the service has seen; 0: too few
    std::string evidence;
    std::set<std::string> by;  // hosts that report it
  };
  using ByScope = std::map<std::string, Flapping>;
  void CountFlaps(Scene& scene);
  std::vector<Suspect> FlapsOf(const Scene& scene, size_t least) const;
  bool IsCertain(const Suspect& suspect) const;
  void FindFlapping(Scene& scene);
  void DeathAround(Scene& scene, std::vector<Suspect>& suspects) const;
  size_t TimesOf(const Scene& scene, const Suspect& suspect) const;
  int64_t LastFlapNs(const Scene& scene, const Suspect& suspect) const;
  static Suspect DeadNow(const Scene& scene, int32_t component);
  int32_t WholeLately(int32_t component, int64_t now_ns) const;
  ByScope FlapsReported(const Picture& picture) const;
  void AddCounted(const Scene& scene, ByScope& flapping) const;
  std::string ScopeOfWord(const Picture& picture, const std::string& host, const std::string& link) const;
  void FoldIntoCables(ByScope& flapping, int64_t now_ns) const;
  bool IsDeathOf(const Suspicion& suspicion, const Suspicion& flapping) const;
  void TellFlapping(Scene& scene, Suspicion suspicion);
  void TellUnclearFlaps(Scene& scene, const ByScope& certain);
  void FindFlaps(Scene& scene);
  // path_causes.cc, too
  Suspicion Of(const Scene& scene, Cause cause, const Suspect& suspect) const;
  std::vector<Suspect> LeftInGaps(const std::vector<Observation>& seen, const std::vector<uint32_t>& place) const;
  void FindInGaps(Scene& scene, Cause cause, std::vector<Suspect>& suspects);
  // host_causes.cc
  void FindGone(Scene& scene);
  void AddGone(Scene& scene, std::vector<Suspicion> gone);
  void FindNics(Scene& scene);
  void TellNic(Scene& scene, const HostEvidence& host, const std::string& name, const Addr& address,
               const EventBook::NicWord& word);
  void FindSlow(Scene& scene);
  void FindClocks(Scene& scene);
  std::string OpenOrNew(const std::vector<std::string>& ends) const;
  void FindWiring(Scene& scene);
  void FindSlas(Scene& scene);
  void FindStanding(Scene& scene);
  void FindSettings(Scene& scene);
  void FindBusy(Scene& scene);
  void FindNotMeasured(Scene& scene);
  void FindRefused(Scene& scene);
  void Add(Scene& scene, Suspicion suspicion);

  const FindingRules rules_;
  int64_t begun_ns_ = 0;
  uint64_t fabric_ = 0;
  bool fabric_known_ = false;
  Components::LinkNames link_names_;
  Components components_;
  Ledger ledger_;
  EventBook events_;
  absl::flat_hash_map<uint64_t, Memory> memory_;       // by path
  absl::flat_hash_map<uint64_t, int64_t> stirred_ns_;  // by two NICs: when a path between them died or came back last
  int64_t memory_swept_ns_ = 0;
  std::map<std::string, int64_t> dead_since_;        // scope of what is dead now
  std::map<std::string, int64_t> unanswered_since_;  // host: no other finds it alive
  std::map<Addr, int64_t> taken_along_ns_;           // NIC: when a dead leaf took it along last
  std::map<std::string, int64_t> crowded_ns_;        // host → when paths to its NIC last queued before it
  std::map<std::string, int64_t> dead_lately_;       // scope: when it was dead last
  PathFlaps flaps_;
  std::map<std::string, int64_t> unsynced_since_;  // host
  std::set<std::string> distrusted_;
  std::vector<Suspicion> odd_;  // as of odd_ns_
  int64_t odd_ns_ = 0;
};

}  // namespace cw::fleet
