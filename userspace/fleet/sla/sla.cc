// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/sla/sla.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::fleet {
namespace {

constexpr absl::Duration kSpeaks = absl::Seconds(25);  // since it was seen, as for findings
constexpr absl::Duration kPathFresh = absl::Seconds(15);
constexpr size_t kMostAffected = 16;

bool MatchesOne(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
}

bool IsIn(const SlaGroup& group, const std::string& host, const std::map<std::string, std::string>& racks) {
  if (group.empty() || MatchesOne(group.hosts, host)) return true;
  const auto rack = racks.find(host);
  return rack != racks.end() && MatchesOne(group.racks, rack->second);
}

std::string Microseconds(double ns) { return absl::StrFormat("%.1f us", ns / 1000); }

}  // namespace

struct SlaWatch::Sum {
  struct Pair {
    double p99_ns = 0;  // of its worst path
    uint64_t sent = 0, lost = 0;
  };
  std::map<uint32_t, uint64_t> delays;  // PackedSketch's index → probes
  uint64_t answered = 0, sent = 0, lost = 0;
  size_t paths = 0;
  std::map<std::pair<std::string, std::string>, Pair> pairs;

  void Add(const std::string& from, const std::string& to, const Path& path) {
    ++paths;
    sent += path.sent;
    lost += path.lost;
    Pair& pair = pairs[{from, to}];
    pair.sent += path.sent;
    pair.lost += path.lost;
    if (path.base_ns == 0 || path.queue.empty()) return;
    for (const PackedSketch::Bucket& bucket : path.queue.buckets) {
      const double delay = static_cast<double>(path.base_ns) + PackedSketch::MiddleNs(bucket.index);
      delays[PackedSketch::IndexOf(static_cast<uint64_t>(delay))] += bucket.count;
      answered += bucket.count;
    }
    pair.p99_ns = std::max(pair.p99_ns, static_cast<double>(path.base_ns) + path.queue.QuantileNs(0.99));
  }
  double P99Ns() const {
    const auto rank = static_cast<uint64_t>(std::ceil(0.99 * static_cast<double>(answered)));
    uint64_t seen = 0;
    for (const auto& [index, count] : delays) {
      if ((seen += count) >= rank) return PackedSketch::MiddleNs(index);
    }
    return 0;
  }
  double Loss() const { return sent == 0 ? 0 : static_cast<double>(lost) / static_cast<double>(sent); }
};

bool SlaWatch::MayConcern(const std::string& host) const {
  return std::any_of(rules_.begin(), rules_.end(), [&](const SlaRule& rule) {
    return rule.from.empty() || !rule.from.racks.empty() || MatchesOne(rule.from.hosts, host);
  });
}

void SlaWatch::Take(const LiveHost& live) {
  if (rules_.empty()) return;
  Host& host = hosts_[live.host];
  host.last_seen = live.connected ? live.last_seen : absl::InfinitePast();
  if (host.run == live.run && host.batches == live.batches) return;
  host.run = live.run;
  host.batches = live.batches;
  host.nics.clear();
  for (const LiveHost::Nic& nic : live.nics) host.nics.push_back(nic.address);
  host.paths.clear();
  if (!MayConcern(live.host)) return;
  const int64_t fresh_ns = live.newest_ns - absl::ToInt64Nanoseconds(kPathFresh);
  for (const auto& [key, sample] : live.paths) {
    if (key.reverse || sample.time_ns < fresh_ns) continue;
    host.paths.push_back({key.remote, sample.base_ns, sample.sent, sample.lost, sample.queue});
  }
}

SlaWord SlaWatch::Judge(const SlaRule& rule, const std::map<Addr, const std::string*>& host_of,
                        const std::map<std::string, std::string>& racks, absl::Time now) const {
  SlaWord word{.name = rule.name};
  Sum sum;
  for (const auto& [name, host] : hosts_) {
    if (now - host.last_seen > kSpeaks || !IsIn(rule.from, name, racks)) continue;
    const size_t before = sum.paths;
    for (const Path& path : host.paths) {
      const auto to = host_of.find(path.remote);
      if (to == host_of.end() || !IsIn(rule.to.empty() ? rule.from : rule.to, *to->second, racks)) continue;
      sum.Add(name, *to->second, path);
    }
    word.hosts += sum.paths > before;
  }
  word.paths = sum.paths;
  word.probes = sum.sent;
  word.p99_ns = sum.P99Ns();
  word.loss = sum.Loss();
  const double most_ns = absl::ToDoubleNanoseconds(rule.p99_delay);
  const bool delay_known = most_ns > 0 && sum.answered >= kLeastProbes,
             loss_known = rule.loss > 0 && sum.sent >= kLeastProbes;
  word.known = delay_known || loss_known;
  const bool late = delay_known && word.p99_ns > most_ns, lossy = loss_known && word.loss > rule.loss;
  word.missed = late || lossy;
  if (!word.missed) return word;
  const std::string over = absl::StrFormat("over %d paths of %d hosts", word.paths, word.hosts);
  if (late)
    word.evidence.push_back(absl::StrFormat("p99 of the one-way delay is %s, promised are %s, %s",
                                            Microseconds(word.p99_ns), Microseconds(most_ns), over));
  if (lossy)
    word.evidence.push_back(absl::StrFormat("%.3f %% of probes are lost, promised are %.3f %%, %s", 100 * word.loss,
                                            100 * rule.loss, over));
  std::vector<std::pair<double, std::string>> worst;  // how many times what was promised
  std::set<std::string> affected;
  for (const auto& [ends, pair] : sum.pairs) {
    const double loss = pair.sent == 0 ? 0 : static_cast<double>(pair.lost) / static_cast<double>(pair.sent);
    const double times = std::max(late ? pair.p99_ns / most_ns : 0, lossy ? loss / rule.loss : 0);
    if (times <= 1) continue;
    affected.insert(ends.first);
    worst.emplace_back(times, absl::StrFormat("%s to %s: p99 %s, %.3f %% lost", ends.first, ends.second,
                                              Microseconds(pair.p99_ns), 100 * loss));
  }
  std::sort(worst.begin(), worst.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = 0; i < worst.size() && i < kMostNamed; ++i) word.evidence.push_back(std::move(worst[i].second));
  if (worst.size() > kMostNamed)
    word.evidence.push_back(absl::StrCat(worst.size() - kMostNamed, " more pairs of hosts are beyond it"));
  for (const std::string& host : affected) {
    if (word.affected.size() < kMostAffected) word.affected.push_back(host);
  }
  return word;
}

std::vector<SlaWord> SlaWatch::Look(absl::Time now, const std::map<std::string, std::string>& racks) const {
  std::map<Addr, const std::string*> host_of;
  for (const auto& [name, host] : hosts_) {
    for (const Addr& nic : host.nics) host_of[nic] = &name;
  }
  std::vector<SlaWord> words;
  words.reserve(rules_.size());
  for (const SlaRule& rule : rules_) words.push_back(Judge(rule, host_of, racks, now));
  return words;
}

}  // namespace cw::fleet
