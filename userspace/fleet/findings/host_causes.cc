// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/fleet/findings/scene.h"
#include "userspace/fleet/findings/settings.h"

namespace cw::fleet {
namespace {

constexpr absl::Duration kPortsReturn = absl::Seconds(10);
constexpr absl::Duration kCrowdLeaves = absl::Seconds(30);
constexpr size_t kMostOfGone = 16;
constexpr absl::Duration kSettingsEvery = absl::Seconds(10);
constexpr size_t kOneCause = 3;  // so many hosts that are gone at once have one
constexpr absl::Duration kLeafShows = absl::Seconds(4);
constexpr absl::Duration kGoneTogether = absl::Seconds(10);
constexpr size_t kAccusesAll = 3;  // who finds so many peers slow is what they have in common

// Down to one digit: what changes with every word is no news.
std::string Rounded(double ns) {
  const double digit = std::pow(10, std::floor(std::log10(std::max(ns, 1.0))));
  return absl::FormatDuration(absl::Nanoseconds(std::floor(ns / digit) * digit));
}

std::vector<std::string> Some(const std::set<std::string>& names) {
  std::vector<std::string> some(names.begin(), names.end());
  if (some.size() > kMostOfGone) some.resize(kMostOfGone);
  return some;
}

// Racks of which at least three and more than half are missing: what a rack has in common, most often its management
// switch, is one cause.
std::map<std::string, std::set<std::string>> RacksGone(const Picture& picture, const std::set<std::string>& gone) {
  std::map<std::string, size_t> all;
  std::map<std::string, std::set<std::string>> racks;
  for (const HostEvidence& host : picture.hosts) {
    if (host.rack.empty()) continue;
    ++all[host.rack];
    if (gone.contains(host.name)) racks[host.rack].insert(host.name);
  }
  std::erase_if(racks, [&](const auto& rack) {
    return rack.second.size() < kOneCause || 2 * rack.second.size() <= all[rack.first];
  });
  return racks;
}

}  // namespace

// Not connected, and no path says that the host itself is dead. Where most are gone at once it is our own connection.
void Findings::FindGone(Scene& scene) {
  const Picture& p = scene.picture;
  std::vector<uint32_t> alive(p.hosts.size()), dead(p.hosts.size());
  for (const uint32_t i : scene.paths) {
    const PathEvidence& path = p.paths[i];
    for (const int32_t c : components_.Of(path)) {
      const Component& component = components_.at(c);
      if (component.part != Part::kNic || component.host < 0 || component.host == static_cast<int32_t>(path.host))
        continue;
      const bool lives = path.state == PathEvidence::State::kAlive || path.state == PathEvidence::State::kPaused;
      ++(lives ? alive : dead)[static_cast<size_t>(component.host)];
    }
  }
  std::vector<Suspicion> gone;
  std::set<std::string> names;
  for (size_t h = 0; h < p.hosts.size(); ++h) {
    const HostEvidence& host = p.hosts[h];
    const int64_t silent_ns = p.now_ns - host.last_seen_ns;
    if (host.connected || absl::Nanoseconds(silent_ns) < rules_.agent_gone) continue;
    // Its NIC answers before its agent starts.
    const bool boots = ledger_.Lately(Cause::kHostDown, "host " + host.name, p.now_ns, rules_.agent_gone);
    if (boots || scene.explained_hosts.contains(host.name)) continue;
    names.insert(host.name);
    Suspicion s{.what = {.cause = Cause::kAgentGone, .scope = "host " + host.name}};
    s.what.start_ns = host.last_seen_ns;
    s.what.hosts = {host.name};
    s.what.evidence = {"its agent is not connected",
                       alive[h] + dead[h] == 0
                           ? std::string("no other host has paths to it: it may be down")
                           : absl::StrFormat("%d of %d paths of other hosts to it live", alive[h], alive[h] + dead[h])};
    gone.push_back(std::move(s));
  }
  if (names.size() >= kOneCause && 2 * names.size() > p.hosts.size()) {
    Suspicion s{.what = {.cause = Cause::kAgentGone, .scope = "most hosts"}};
    s.what.hosts = Some(names);
    s.what.evidence = {absl::StrFormat("%d of %d agents are not connected: see this service's own network first",
                                       names.size(), p.hosts.size())};
    return Add(scene, std::move(s));
  }
  const std::map<std::string, std::set<std::string>> racks = RacksGone(p, names);
  for (const auto& [rack, hosts] : racks) {
    Suspicion s{.what = {.cause = Cause::kAgentGone, .scope = "rack " + rack}};
    s.what.hosts = Some(hosts);
    s.what.evidence = {absl::StrFormat(
        "%d agents of this rack are not connected: see its management switch and its power first", hosts.size())};
    Add(scene, std::move(s));
  }
  std::erase_if(gone, [&](const Suspicion& s) {
    return std::any_of(racks.begin(), racks.end(),
                       [&](const auto& rack) { return rack.second.contains(s.what.hosts.front()); });
  });
  AddGone(scene, std::move(gone));
}

// Those that went within some seconds of each other have one cause: a release, a key, a network of their own.
void Findings::AddGone(Scene& scene, std::vector<Suspicion> gone) {
  std::sort(gone.begin(), gone.end(),
            [](const Suspicion& a, const Suspicion& b) { return a.what.start_ns < b.what.start_ns; });
  for (size_t i = 0; i < gone.size();) {
    size_t end = i + 1;
    while (end < gone.size() &&
           absl::Nanoseconds(gone[end].what.start_ns - gone[end - 1].what.start_ns) <= kGoneTogether)
      ++end;
    if (end - i < kOneCause) {
      for (; i < end; ++i) Add(scene, std::move(gone[i]));
      continue;
    }
    std::set<std::string> names;
    for (size_t at = i; at < end; ++at) names.insert(gone[at].what.hosts.front());
    Suspicion s{.what = {.cause = Cause::kAgentGone, .scope = "several hosts"}};
    s.what.start_ns = gone[i].what.start_ns;
    s.what.hosts = Some(names);
    s.what.evidence = {absl::StrFormat("%d agents went within seconds: see what was done to them together", end - i)};
    Add(scene, std::move(s));
    i = end;
  }
}

// By the host's own word. Where paths say it, too, it is one finding: its scope is the same. Several behind one leaf
// wait for what paths say of that.
void Findings::FindNics(Scene& scene) {
  for (const Addr& nic : scene.taken_along) taken_along_ns_[nic] = scene.picture.now_ns;
  std::erase_if(taken_along_ns_, [&](const auto& entry) {
    return absl::Nanoseconds(scene.picture.now_ns - entry.second) > kPortsReturn;
  });
  const Picture& p = scene.picture;
  std::map<int, size_t> of_leaf;
  for (const Addr& nic : DownByOwnWord(scene)) ++of_leaf[components_.LeafOf(nic)];
  for (size_t h = 0; h < p.hosts.size(); ++h) {
    const auto book = events_.hosts().find(p.hosts[h].name);
    if (book == events_.hosts().end() || !scene.host_fresh[h] || !book->second.IsOf(p.hosts[h].run)) continue;
    for (const auto& [name, word] : book->second.nics_down) {
      Addr address;
      for (const NicFact& nic : p.hosts[h].nics) {
        if (nic.name == name) address = nic.address;
      }
      const int leaf = components_.LeafOf(address);
      const bool waits = leaf >= 0 && of_leaf[leaf] > 1 && absl::Nanoseconds(p.now_ns - word.since_ns) < kLeafShows;
      // A leaf that is back has its ports back one by one.
      const auto along = taken_along_ns_.find(address);
      const bool taken = along != taken_along_ns_.end() && word.since_ns <= along->second;
      if (!waits && !taken) TellNic(scene, p.hosts[h], name, address, word);
    }
  }
}

void Findings::TellNic(Scene& scene, const HostEvidence& host, const std::string& name, const Addr& address,
                       const EventBook::NicWord& word) {
  Suspicion s{.what = {.cause = Cause::kNicDown, .scope = absl::StrCat("NIC ", name, " of ", host.name)}};
  if (!address.is_zero()) s.what.scope = absl::StrCat("NIC ", address.ToString());
  s.what.start_ns = std::min(word.since_ns, scene.picture.now_ns);
  s.what.hosts = {host.name};
  s.what.evidence = {absl::StrCat(host.name, " reports that ", name,
                                  word.carrier ? " has a carrier, but its RDMA port is down" : " has no carrier")};
  scene.suspicions.erase({s.what.cause, s.what.scope});
  Add(scene, std::move(s));
}

void Findings::FindSlow(Scene& scene) {
  struct Slow {
    std::set<std::string> by, jobs;
    size_t flows = 0;
    int64_t since_ns = INT64_MAX;
  };
  std::map<std::string, Slow> receivers, senders;
  for (const auto& [host, book] : events_.hosts()) {
    if (!scene.speaking.contains(host)) continue;
    std::set<std::string> peers;
    for (const auto& [flow, word] : book.slow) {
      if (word.cause == "slow receiver") peers.insert(word.peer);
    }
    for (const auto& [flow, word] : book.slow) {
      const bool receiver = word.cause == "slow receiver";
      if (receiver && peers.size() >= kAccusesAll) continue;
      Slow& slow = receiver ? receivers[word.peer] : senders[host];
      slow.by.insert(host);
      if (!word.job.empty()) slow.jobs.insert(word.job);
      ++slow.flows;
      slow.since_ns = std::min(slow.since_ns, word.since_ns);
    }
  }
  const auto tell = [&](Cause cause, const std::string& host, const Slow& slow) {
    Suspicion s{.what = {.cause = cause, .scope = "host " + host}};
    s.what.start_ns = std::min(slow.since_ns, scene.picture.now_ns);
    s.what.hosts = {host};
    s.what.jobs = Some(slow.jobs);
    // Agents tell of a sender only where a collective waits for it: docs/causes.md.
    const char* which = cause == Cause::kSlowSender ? " that collectives wait for" : "";
    s.what.evidence = {
        absl::StrFormat("%d flows%s, reported by %s", slow.flows, which, absl::StrJoin(Some(slow.by), ", "))};
    Add(scene, std::move(s));
  };
  // Acknowledgements of what waits before a NIC come late, too.
  std::erase_if(crowded_ns_, [&](const auto& entry) {
    return absl::Nanoseconds(scene.picture.now_ns - entry.second) > kCrowdLeaves;
  });
  for (const auto& [host, slow] : receivers) {
    if (!crowded_ns_.contains(host)) tell(Cause::kSlowReceiver, host, slow);
  }
  for (const auto& [host, slow] : senders) tell(Cause::kSlowSender, host, slow);
}

void Findings::FindClocks(Scene& scene) {
  const Picture& p = scene.picture;
  size_t known = 0, synced = 0;
  const auto has_time = [&](const HostEvidence& host) {
    return host.clock_synced && host.clock_bound_ns <= rules_.clock_bound_ns;
  };
  for (size_t h = 0; h < p.hosts.size(); ++h) {
    if (!scene.host_fresh[h] || !p.hosts[h].clock_known) continue;
    ++known;
    synced += has_time(p.hosts[h]);
  }
  // An agent without a processor is late with its clock, too, and says nothing good of others.
  std::set<std::string> late;
  for (const HostEvidence& host : p.hosts) {
    if (host.late_share >= rules_.busy_share) late.insert(host.name);
  }
  std::map<std::string, std::set<std::string>> accused;
  for (const auto& [host, book] : events_.hosts()) {
    if (!scene.speaking.contains(host) || late.contains(host)) continue;
    for (const auto& [peer, since_ns] : book.false_tickers) accused[peer].insert(host);
  }
  for (size_t h = 0; h < p.hosts.size(); ++h) {
    const HostEvidence& host = p.hosts[h];
    const bool off = scene.host_fresh[h] && host.clock_known && !has_time(host);
    if (!off) unsynced_since_.erase(host.name);
    const int64_t since_ns = off ? unsynced_since_.emplace(host.name, p.now_ns).first->second : p.now_ns;
    Suspicion s{.what = {.cause = Cause::kClock, .scope = "host " + host.name}};
    s.what.hosts = {host.name};
    // Where most have none fleet time is not there at all, which is no host's fault.
    if (off && 2 * synced > known && absl::Nanoseconds(p.now_ns - since_ns) >= rules_.clock_off) {
      s.what.start_ns = since_ns;
      s.what.evidence.push_back(
          host.clock_synced
              ? absl::StrFormat("its fleet time may be wrong by %s; %d of %d hosts know theirs within %s",
                                Rounded(host.clock_bound_ns), synced, known,
                                absl::FormatDuration(absl::Nanoseconds(rules_.clock_bound_ns)))
              : absl::StrFormat("its fleet time is not synchronised; %d of %d hosts have it", synced, known));
    }
    const auto by = accused.find(host.name);
    if (by != accused.end() && by->second.size() >= 2 && !late.contains(host.name)) {
      s.what.evidence.push_back(absl::StrFormat("%d hosts call it a false ticker: %s", by->second.size(),
                                                absl::StrJoin(Some(by->second), ", ")));
    }
    if (!s.what.evidence.empty()) Add(scene, std::move(s));
  }
}

// Of cables that are put right those that were traced anew already are wrong no more: the others are the same finding.
std::string Findings::OpenOrNew(const std::vector<std::string>& ends) const {
  constexpr absl::string_view kAt = "cables at ";
  for (const Finding& open : ledger_.Open()) {
    if (open.cause != Cause::kSwapped) continue;
    const std::vector<std::string> all = absl::StrSplit(absl::StripPrefix(open.scope, kAt), ", ");
    const auto known = [&](const std::string& end) { return std::find(all.begin(), all.end(), end) != all.end(); };
    if (std::all_of(ends.begin(), ends.end(), known)) return open.scope;
  }
  return absl::StrCat(kAt, absl::StrJoin(ends, ", "));
}

void Findings::FindWiring(Scene& scene) {
  if (scene.picture.wiring == nullptr) return;
  for (const Miswiring& fault : scene.picture.wiring->faults) {
    std::vector<std::string> ends;
    for (const Addr& end : fault.ends) ends.push_back(end.ToString());
    Suspicion s{.what = {.cause = Cause::kSwapped, .scope = OpenOrNew(ends)}};
    s.what.evidence = {fault.text};
    Add(scene, std::move(s));
  }
}

void Findings::FindSlas(Scene& scene) {
  for (const SlaWord& word : scene.picture.slas) {
    if (!word.missed) continue;
    Suspicion s{.what = {.cause = Cause::kSla, .scope = absl::StrCat("SLA ", word.name)}};
    s.what.evidence = word.evidence;
    s.what.hosts = word.affected;
    Add(scene, std::move(s));
  }
}

// Of 800,000 NICs this is long, and it changes seldom.
void Findings::FindSettings(Scene& scene) {
  if (absl::Nanoseconds(scene.picture.now_ns - odd_ns_) >= kSettingsEvery) {
    odd_ns_ = scene.picture.now_ns;
    odd_ = OddSettings(scene.picture, scene.host_fresh);
  }
  for (const Suspicion& suspicion : odd_) Add(scene, suspicion);
}

// Its agent came too late for much of what its programs saw: what that says of paths is left out, and this is said.
void Findings::FindBusy(Scene& scene) {
  for (size_t h = 0; h < scene.picture.hosts.size(); ++h) {
    const HostEvidence& host = scene.picture.hosts[h];
    if (!scene.host_fresh[h] || host.late_share < rules_.busy_share) continue;
    Suspicion s{.what = {.cause = Cause::kHostBusy, .scope = "host " + host.name}};
    s.what.hosts = {host.name};
    s.what.evidence = {absl::StrFormat("its agent was late for %.0f %% of the time, or of what its programs saw",
                                       100 * host.late_share)};
    Add(scene, std::move(s));
  }
}

// Connected, and nothing of what it reports can be used.
void Findings::FindRefused(Scene& scene) {
  const Picture& p = scene.picture;
  for (const HostEvidence& host : p.hosts) {
    const absl::Duration off = absl::Nanoseconds(host.newest_ns - p.now_ns);
    const bool other_time = host.newest_ns != 0 && absl::AbsDuration(off) > rules_.clock_slack;
    const bool speaks = host.connected && absl::Nanoseconds(p.now_ns - host.last_seen_ns) <= rules_.host_fresh;
    if (!speaks || (host.refusal.empty() && !other_time)) continue;
    Suspicion s{.what = {.cause = Cause::kReportsRefused, .scope = "host " + host.name}};
    s.what.hosts = {host.name};
    s.what.evidence = {!host.refusal.empty()
                           ? "its reports are refused: " + host.refusal
                           : absl::StrFormat("its newest report is of a time %s %s ours: its clock, or its connection",
                                             Rounded(std::abs(absl::ToDoubleNanoseconds(off))),
                                             off > absl::ZeroDuration() ? "ahead of" : "behind")};
    Add(scene, std::move(s));
  }
}

// By its own agent's word: without its programs it answers nobody, and its peers find it silent.
void Findings::FindNotMeasured(Scene& scene) {
  for (size_t h = 0; h < scene.picture.hosts.size(); ++h) {
    if (!scene.host_fresh[h]) continue;
    const HostEvidence& host = scene.picture.hosts[h];
    for (const NicFact& nic : host.nics) {
      if (nic.trouble.empty()) continue;
      const std::string scope = absl::StrCat("NIC ", nic.address.ToString());
      const auto touches = [&](const Finding& f) {
        const int32_t c = components_.FindScope(f.scope), own = components_.FindScope(scope);
        return f.scope == scope || f.scope == "host " + host.name ||
               (c >= 0 && own >= 0 && components_.Contains(own, c));
      };
      std::erase_if(scene.suspicions, [&](const auto& entry) {
        const Cause cause = entry.first.first;
        return (cause == Cause::kNicDown || cause == Cause::kHostDown || cause == Cause::kLinkDead ||
                cause == Cause::kLinkGrey || cause == Cause::kFlapping) &&
               touches(entry.second.what);
      });
      Suspicion s{.what = {.cause = Cause::kNicNotMeasured, .scope = scope}};
      s.what.hosts = {host.name};
      s.what.evidence = {nic.trouble};
      Add(scene, std::move(s));
    }
  }
}

void Findings::FindStanding(Scene& scene) {
  for (const StandingJob& standing : scene.picture.standing) {
    Suspicion s{.what = {.cause = Cause::kNotNetwork, .scope = absl::StrCat("job ", standing.job)}};
    s.what.evidence = {standing.text};
    s.what.hosts = {standing.host};
    s.what.jobs = {standing.job};
    Add(scene, std::move(s));
  }
}

}  // namespace cw::fleet
