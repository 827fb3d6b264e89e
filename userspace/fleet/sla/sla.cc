// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/sla/sla.h"

#include <fnmatch.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::fleet {
namespace {

constexpr absl::Duration kSpeaks = absl::Seconds(25);  // since it was seen, as for findings
constexpr absl::Duration kPathFresh = absl::Seconds(15);
constexpr absl::Duration kInTime = absl::Seconds(30);  // of a host's newest interval against our clock
constexpr size_t kMostAffected = 16;
constexpr double kMostWeight = 4;  // of a path, in usual ones
constexpr uint64_t kMostBaseNs = 10'000'000'000;
constexpr double kMostDelayNs = 1e12;

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
    double sent = 0, lost = 0;
  };
  std::vector<double> delays = std::vector<double>(PackedSketch::kMostBuckets);  // probes, by PackedSketch's index
  double answered = 0, sent = 0, lost = 0;
  size_t paths = 0, hosts = 0;
  absl::flat_hash_map<std::pair<size_t, size_t>, Pair> pairs;  // by places

  void Add(size_t from, size_t to, const Path& path, double weight) {
    ++paths;
    sent += weight * path.sent;
    lost += weight * path.lost;
    Pair& pair = pairs[{from, to}];
    pair.sent += path.sent;
    pair.lost += path.lost;
    if (path.base_ns == 0 || path.base_ns > kMostBaseNs || path.queue.empty()) return;
    const auto base_ns = static_cast<double>(path.base_ns);
    const double each = weight * std::min(1.0, path.sent / static_cast<double>(path.queue.Count()));
    for (const PackedSketch::Bucket& bucket : path.queue.buckets) {
      const double delay_ns = std::min(base_ns + PackedSketch::MiddleNs(bucket.index), kMostDelayNs);
      const uint32_t index =
          std::min(PackedSketch::IndexOf(static_cast<uint64_t>(delay_ns)), PackedSketch::kMostBuckets - 1);
      delays[index] += each * bucket.count;
      answered += each * bucket.count;
    }
    pair.p99_ns = std::max(pair.p99_ns, base_ns + path.queue.QuantileNs(0.99));
  }
  double P99Ns() const {
    double seen = 0;
    for (uint32_t index = 0; index < delays.size(); ++index) {
      seen += delays[index];
      if (answered > 0 && seen >= 0.99 * answered) return PackedSketch::MiddleNs(index);
    }
    return 0;
  }
  double Loss() const { return sent == 0 ? 0 : lost / sent; }
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
  host.newest_ns = live.newest_ns;
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

SlaWatch::Present SlaWatch::Now(absl::Time now) const {
  Present present;
  for (const auto& [name, host] : hosts_) {
    const absl::Duration off = absl::AbsDuration(now - absl::FromUnixNanos(host.newest_ns));
    if (now - host.last_seen > kSpeaks || off > kInTime) continue;
    for (const Addr& nic : host.nics) present.host_of[nic] = present.hosts.size();
    present.hosts.emplace_back(&name, &host);
  }
  return present;
}

SlaWatch::Sum SlaWatch::SumOf(const SlaRule& rule, const Present& present,
                              const std::map<std::string, std::string>& racks) const {
  std::vector<bool> from(present.hosts.size()), to(present.hosts.size());
  for (size_t h = 0; h < present.hosts.size(); ++h) {
    from[h] = IsIn(rule.from, *present.hosts[h].first, racks);
    to[h] = rule.to.empty() ? from[h] : IsIn(rule.to, *present.hosts[h].first, racks);
  }
  struct Chosen {
    size_t from, to;
    const Path* path;
  };
  std::vector<Chosen> chosen;
  std::vector<uint32_t> sent;
  Sum sum;
  for (size_t h = 0; h < present.hosts.size(); ++h) {
    const size_t before = chosen.size();
    for (const Path& path : present.hosts[h].second->paths) {
      const auto peer = from[h] ? present.host_of.find(path.remote) : present.host_of.end();
      if (peer == present.host_of.end() || !to[peer->second]) continue;
      chosen.push_back({h, peer->second, &path});
      sent.push_back(path.sent);
    }
    sum.hosts += chosen.size() > before;
  }
  if (chosen.empty()) return sum;
  std::nth_element(sent.begin(), sent.begin() + static_cast<std::ptrdiff_t>(sent.size() / 2), sent.end());
  const double most = kMostWeight * std::max(1u, sent[sent.size() / 2]);
  for (const Chosen& c : chosen) sum.Add(c.from, c.to, *c.path, std::min(1.0, most / std::max(1u, c.path->sent)));
  return sum;
}

void SlaWatch::Explain(const SlaRule& rule, const Sum& sum, bool late, bool lossy, const Present& present,
                       SlaWord& word) {
  const double most_ns = absl::ToDoubleNanoseconds(rule.p99_delay);
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
    const double loss = pair.sent == 0 ? 0 : pair.lost / pair.sent;
    const double times = std::max(late ? pair.p99_ns / most_ns : 0, lossy ? loss / rule.loss : 0);
    if (times <= 1) continue;
    const std::string &from = *present.hosts[ends.first].first, &to = *present.hosts[ends.second].first;
    if (affected.size() < kMostAffected) affected.insert(from);
    worst.emplace_back(
        times, absl::StrFormat("%s to %s: p99 %s, %.3f %% lost", from, to, Microseconds(pair.p99_ns), 100 * loss));
  }
  std::sort(worst.begin(), worst.end(), std::greater<>());
  for (size_t i = 0; i < worst.size() && i < kMostNamed; ++i) word.evidence.push_back(std::move(worst[i].second));
  if (worst.size() > kMostNamed)
    word.evidence.push_back(absl::StrCat(worst.size() - kMostNamed, " more pairs of hosts are beyond it"));
  word.affected.assign(affected.begin(), affected.end());
}

SlaWord SlaWatch::Judge(const SlaRule& rule, const Present& present,
                        const std::map<std::string, std::string>& racks) const {
  const Sum sum = SumOf(rule, present, racks);
  SlaWord word{.name = rule.name, .p99_ns = sum.P99Ns(), .loss = sum.Loss()};
  word.paths = sum.paths;
  word.hosts = sum.hosts;
  word.probes = static_cast<uint64_t>(sum.sent);
  const double most_ns = absl::ToDoubleNanoseconds(rule.p99_delay);
  word.delay_known = most_ns > 0 && sum.answered >= kLeastProbes;
  word.loss_known = rule.loss > 0 && sum.sent >= kLeastProbes;
  const bool late = word.delay_known && word.p99_ns > most_ns, lossy = word.loss_known && word.loss > rule.loss;
  word.missed = late || lossy;
  if (word.missed) Explain(rule, sum, late, lossy, present, word);
  return word;
}

std::vector<SlaWord> SlaWatch::Look(absl::Time now, const std::map<std::string, std::string>& racks) const {
  const Present present = Now(now);
  std::vector<SlaWord> words;
  words.reserve(rules_.size());
  for (const SlaRule& rule : rules_) words.push_back(Judge(rule, present, racks));
  return words;
}

}  // namespace cw::fleet
