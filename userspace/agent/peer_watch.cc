// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/peer_watch.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "userspace/agent/nics/hooks.h"
#include "userspace/model/counted.h"

namespace cw::agent {
namespace {

constexpr int64_t kLookNs = 1'000'000'000;
constexpr size_t kNamed = 8;  // in one event's text

std::string NameOf(const SilentPeers::Change& change) {
  return change.nics.empty() ? change.peer : absl::StrCat(change.peer, " (", change.nics, ")");
}

// "h1" or "12 peers (h1, h2, … and 4 more)".
std::string PeersText(const std::vector<std::string>& names) {
  if (names.size() == 1) return names[0];
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kNamed));
  std::string text = absl::StrCat(names.size(), " peers (", absl::StrJoin(names.begin(), end, ", "));
  if (names.size() > kNamed) absl::StrAppend(&text, " and ", names.size() - kNamed, " more");
  return text + ")";
}

}  // namespace

SilentPeers::Seen PeerWatch::SeenOf(const PairState& pair) const {
  SilentPeers::Seen seen{.peer = pair.peer, .nics = {}, .answered = pair.last_reply_ns != 0};
  for (const NicState& nic : nics_) {
    if (nic.ifindex == pair.ifindex) seen.nics = absl::StrCat(nic.config.name, " to ", pair.key.remote.ToString());
  }
  if (!pair.path_silence.AllSilent()) return seen;
  seen.silent_ns = INT64_MAX;
  for (uint8_t s = 0; s < kMaxSlots; ++s) {
    if (pair.path_silence.SilentNs(s) > 0) seen.silent_ns = std::min(seen.silent_ns, pair.path_silence.SilentNs(s));
  }
  return seen;
}

// The probes to none of its NICs leave.
bool PeerWatch::AllStay(const std::string& peer) const {
  return std::all_of(pairs_.begin(), pairs_.end(),
                     [&](const auto& entry) { return entry.second->peer != peer || DoNotLeave(entry.first); });
}

void PeerWatch::Look(int64_t now_ns) {
  if (now_ns - looked_ns_ < kLookNs) return;
  looked_ns_ = now_ns;
  std::erase_if(unseen_looks_, [&](const auto& entry) { return !pairs_.contains(entry.first); });
  std::vector<SilentPeers::Seen> seen;
  for (const auto& [index, pair] : pairs_) {
    // What our own programs do not see is no peer's silence, nor what the peer's do not.
    const NicState* nic = NicOf(nics_, pair->ifindex);
    const bool blind = nic != nullptr && nic->attached && !nic->has_programs();
    if (!blind && !pair->PeerIsBlind(now_ns)) seen.push_back(SeenOf(*pair));
    const bool stay = !blind && nic != nullptr && nic->link_up && rounds_unseen_(*pair) >= Hooks::kUnseenRounds;
    stay ? (void)++unseen_looks_[index] : (void)unseen_looks_.erase(index);
  }
  std::vector<std::string> begun;
  std::set<std::string> peers;
  int64_t longest_ns = 0;
  for (const SilentPeers::Change& change : silent_.Step(now_ns, seen)) {
    if (change.silent) {
      begun.push_back(NameOf(change));
      peers.insert(change.peer);
      longest_ns = std::max(longest_ns, change.silent_ns);
      continue;
    }
    events_.Log({.type = "path",
                 .text = absl::StrFormat("%s answers again, after %.1f s", NameOf(change),
                                         static_cast<double>(change.silent_ns) / 1e9),
                 .peer = change.peer});
  }
  if (begun.empty()) return;
  const bool stay = std::all_of(peers.begin(), peers.end(), [&](const std::string& peer) { return AllStay(peer); });
  events_.Log({.type = "path",
               .severity = telemetry::Severity::kAlert,
               .text = absl::StrFormat(
                   "%s silent: no path answered for %.1f s; %s, and no path is blamed for it",
                   PeersText(begun) + (begun.size() == 1 ? " is" : " are"), static_cast<double>(longest_ns) / 1e9,
                   stay ? "probes do not leave this host: no route, nobody answers for the address, or a firewall"
                        : "the host, its agent, its NIC or its cable"),
               .peer = peers.size() == 1 ? *peers.begin() : "",
               .evidence = {{"silent_peers", absl::StrJoin(begun, " ")}}});
}

}  // namespace cw::agent
