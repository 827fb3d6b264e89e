// SPDX-License-Identifier: Apache-2.0
// What speaks against "safe to pull": what a drain's silence does not prove.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/agent/flows/draining.h"
#include "userspace/model/counted.h"

namespace cw::agent {
namespace {

using control::DrainKind;

constexpr size_t kTracedPerLook = 64;               // pairs
constexpr int64_t kAskedLatelyNs = 30'000'000'000;  // the fleet's orders are looked at each second

}  // namespace

// New flows keep off it: they would choose any path by themselves where nothing acts, as those of a held job do.
bool Draining::KeepsFree(const DrainEntry& drain) const {
  return modes_.ActsAtAll() && !asks_.holds_a_job() &&
         std::all_of(drain.crossing.begin(), drain.crossing.end(),
                     [&](const auto& crossing) { return modes_.may()(crossing.first).ActsAtAll(); });
}

bool Draining::IsSafe(const DrainEntry& drain, int64_t now_ns) const {
  return drain.QuietS(now_ns) >= kSafeAfterS && KeepsFree(drain) && ObstaclesOf(drain, now_ns).empty();
}

// Silence alone proves nothing: what is not seen is silent, and what pauses will go on.
std::vector<std::string> Draining::ObstaclesOf(const DrainEntry& drain, int64_t now_ns) const {
  std::vector<std::string> obstacles;
  const NicState* own = nullptr;
  for (const NicState& nic : nics_) {
    if (drain.kind == DrainKind::kNic && nic.config.name != drain.what) continue;
    if (drain.kind == DrainKind::kNic) own = &nic;
    if (std::string trouble = nic.Trouble(); nic.attached && !trouble.empty()) obstacles.push_back(std::move(trouble));
  }
  if (asks_.overflows() > drain.overflows_before) {
    obstacles.push_back(
        "the table of flows was full since the drain began, so queue pairs may be unknown: raise limits.max_tx_flows");
  }
  const auto stays = [&](const FlowKey& flow) { return !drain.moved.contains(flow) && asks_.has_qp(flow); };
  if (const auto idle = std::count_if(drain.on_it.begin(), drain.on_it.end(), stays); idle > 0)
    obstacles.push_back(absl::StrCat(Counted(static_cast<size_t>(idle), "queue pair"),
                                     idle == 1 ? " remains on it, or may" : " remain on it, or may",
                                     ": idle, and free to send again (cwctl qps)"));
  const auto unlisted = [&](const auto& sent) {
    return now_ns - sent.second < kUnlistedQuietNs && !drain.moved.contains(sent.first) && !asks_.has_qp(sent.first);
  };
  if (const auto recent = std::count_if(drain.sent_ns.begin(), drain.sent_ns.end(), unlisted); recent > 0)
    obstacles.push_back(absl::StrCat(Counted(static_cast<size_t>(recent), "flow"),
                                     " without a known queue pair sent over it within the last minute"));
  if (drain.kind == DrainKind::kPath) return obstacles;
  if (drain.kind != DrainKind::kNic) {
    if (std::string untraced = Untraced(); !untraced.empty()) obstacles.push_back(std::move(untraced));
  }
  if (std::string other = OtherTraffic(now_ns, own); !other.empty()) obstacles.push_back(std::move(other));
  if (std::string unplaced = Unplaced(now_ns); !unplaced.empty()) obstacles.push_back(std::move(unplaced));
  return obstacles;
}

void Draining::LookAtOthers() {
  const int64_t now_ns = monotonic_.NowNs();
  const bool asked = asked_ns_ != 0 && now_ns - asked_ns_ < kAskedLatelyNs;
  if (drains_.entries().empty() && !asked) {
    unplaced_ = UINT64_MAX;
    return others_with_.clear();
  }
  TraceSoon();
  const uint64_t unplaced = asks_.unplaced();
  if (unplaced > unplaced_) unplaced_ns_ = now_ns;
  unplaced_ = unplaced;
  std::map<FlowKey, Other> now;
  for (const auto& [key, flow] : flows_.received) {  // with those that are sent to nobody's peer
    if (mesh_.Find({key.src, key.dst}) || mesh_.Find({key.dst, key.src})) continue;
    const auto before = others_with_.find(key);
    const bool same = before != others_with_.end() && before->second.bytes == flow.last_bytes;
    // What pauses will go on.
    now[key] = same && !asks_.has_qp(key) ? before->second : Other{flow.last_bytes, now_ns};
  }
  others_with_ = std::move(now);
}

std::set<uint32_t> Draining::PairsWithFlows() const {
  std::set<uint32_t> pairs;
  for (const auto& [key, flow] : flows_.sent) {
    if (pairs_.contains(flow.tx.pair)) pairs.insert(flow.tx.pair);
  }
  return pairs;
}

// A switch that loses a link spreads what it sends anew over the others, without a death or any other sign: a flow may
// cross what is drained a moment after its path was traced. So paths of flows are traced each second, in turn.
void Draining::TraceSoon() {
  const bool of_hops = std::any_of(drains_.entries().begin(), drains_.entries().end(), [](const auto& entry) {
    return entry.second.kind != DrainKind::kNic && entry.second.kind != DrainKind::kPath;
  });
  if (!of_hops) return;
  const std::set<uint32_t> pairs = PairsWithFlows();
  auto at = pairs.upper_bound(traced_last_);
  for (size_t i = 0; i < std::min(pairs.size(), kTracedPerLook); ++i, ++at) {
    if (at == pairs.end()) at = pairs.begin();
    asks_.trace_soon(*at);
    traced_last_ = *at;
  }
}

std::string Draining::Untraced() const {
  size_t untraced = 0;
  for (const uint32_t pair : PairsWithFlows()) untraced += asks_.untraced_s(pair) > kSafeAfterS;
  if (untraced == 0) return "";
  return absl::StrCat("the paths to ", Counted(untraced, "NIC"), " were not traced within the last ", kSafeAfterS,
                      " s: their flows may cross it by now");
}

// What the programs pass untouched has no flow, whoever its peer is.
std::string Draining::Unplaced(int64_t now_ns) const {
  if (unplaced_ns_ == 0 || now_ns - unplaced_ns_ > static_cast<int64_t>(kSafeAfterS * 1e9)) return "";
  return "RoCE packets whose path the programs cannot know: segments of GSO frames, or with IP options or IPv6 "
         "extension headers (cwctl counters)";
}

bool Draining::IsOurs(const Addr& address) const {
  return std::any_of(nics_.begin(), nics_.end(), [&](const NicState& nic) { return nic.address == address; });
}

std::string Draining::OtherTraffic(int64_t now_ns, const NicState* nic) const {
  std::set<std::string> addresses;
  for (const auto& [key, other] : others_with_) {
    if (now_ns - other.seen_ns > static_cast<int64_t>(kSafeAfterS * 1e9)) continue;
    const auto owns = [&](const Addr& address) {
      return std::any_of(nics_.begin(), nics_.end(),
                         [&](const NicState& n) { return n.address == address && (nic == nullptr || &n == nic); });
    };
    if (owns(key.src)) addresses.insert(key.dst.ToString());
    if (owns(key.dst)) addresses.insert(key.src.ToString());
    // An address of this host that the configuration does not name: by which NIC it leaves is not known.
    if (!IsOurs(key.src) && !IsOurs(key.dst))
      addresses.insert(absl::StrCat(key.dst.ToString(), " from ", key.src.ToString()));
  }
  if (addresses.empty()) return "";
  constexpr size_t kNamed = 4;
  std::vector<std::string> named(addresses.begin(), addresses.end());
  const size_t more = named.size() - std::min(named.size(), kNamed);
  named.resize(named.size() - more);
  return absl::StrCat("RoCE with ", absl::StrJoin(named, ", "), more > 0 ? absl::StrCat(" and ", more, " more") : "",
                      ": no peer of this host, so its path is not known");
}

}  // namespace cw::agent
