// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/peer_watch.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "userspace/model/counted.h"

namespace cw::agent {
namespace {

constexpr int64_t kLookNs = 1'000'000'000;
constexpr size_t kNamed = 8;  // in one event's text

// "h1" or "12 peers (h1, h2, … and 4 more)".
std::string PeersText(const std::vector<std::string>& names) {
  if (names.size() == 1) return names[0];
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kNamed));
  std::string text = absl::StrCat(names.size(), " peers (", absl::StrJoin(names.begin(), end, ", "));
  if (names.size() > kNamed) absl::StrAppend(&text, " and ", names.size() - kNamed, " more");
  return text + ")";
}

}  // namespace

void PeerWatch::Look(int64_t now_ns) {
  if (now_ns - looked_ns_ < kLookNs) return;
  looked_ns_ = now_ns;
  std::vector<SilentPeers::Seen> seen;
  for (const auto& [index, pair] : pairs_) seen.push_back({pair->peer, pair->last_reply_ns, interval_ns_(index)});
  std::vector<std::string> begun;
  int64_t longest_ns = 0;
  for (const SilentPeers::Change& change : silent_.Step(now_ns, seen)) {
    if (change.silent) {
      begun.push_back(change.peer);
      longest_ns = std::max(longest_ns, change.silent_ns);
      continue;
    }
    events_.Log({.type = "path",
                 .text = absl::StrFormat("%s answers again, after %.1f s", change.peer,
                                         static_cast<double>(change.silent_ns) / 1e9),
                 .peer = change.peer});
  }
  if (begun.empty()) return;
  events_.Log({.type = "path",
               .severity = telemetry::Severity::kAlert,
               .text = absl::StrFormat(
                   "%s silent: no path answered for %.1f s; the host, its agent, its NIC or its cable, and no "
                   "path is blamed for it",
                   PeersText(begun) + (begun.size() == 1 ? " is" : " are"), static_cast<double>(longest_ns) / 1e9),
               .peer = begun.size() == 1 ? begun[0] : "",
               .evidence = {{"silent_peers", absl::StrJoin(begun, " ")}}});
}

}  // namespace cw::agent
