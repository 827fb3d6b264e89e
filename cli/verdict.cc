// SPDX-License-Identifier: Apache-2.0
#include "cli/verdict.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/format.h"
#include "userspace/model/counted.h"

namespace cw::cli {
namespace {

constexpr double kOldDataS = 5;  // an idle pair is probed more often than this

}  // namespace

Verdict VerdictOf(const cwfabric::v1::StatusReply& status) {
  std::vector<std::string> bad, warn;
  std::vector<std::string> cut_off, waited_for;
  // Without the programs of any NIC nothing is known of peers and paths.
  bool measures = status.nics().empty();
  for (const auto& nic : status.nics()) {
    if (!nic.trouble().empty()) bad.push_back(nic.trouble());
    measures = measures || nic.trouble().empty();
  }
  for (const auto& peer : status.peers()) {
    if (!measures) break;
    if (!peer.blind_text().empty()) {
      bad.push_back(absl::StrCat(peer.name(), ": ", peer.blind_text()));
      continue;
    }
    // Paths that all fall silent together are called dead by nobody: it may be the peer.
    if (peer.last_reply_ago_s() > kOldDataS)
      bad.push_back(absl::StrCat(peer.name(), " is silent for ", DurationText(peer.last_reply_ago_s())));
    if (peer.paths_live() > 0 || peer.last_reply_ago_s() > kOldDataS) continue;
    (peer.last_reply_ago_s() < 0 ? waited_for : cut_off).push_back(peer.name());
  }
  if (!cut_off.empty()) bad.push_back("no path lives to " + absl::StrJoin(cut_off, ", "));
  if (const uint32_t silent = status.paths().silent(); silent > 0 && measures)
    bad.push_back(Counted(silent, "path") + (silent == 1 ? " is" : " are") + " silent (cwctl paths)");
  if (const uint32_t dead = status.paths().dead(); dead > 0 && measures)
    bad.push_back(Counted(dead, "path") + (dead == 1 ? " is" : " are") + " dead (cwctl links)");
  if (const uint32_t limited = status.paths().size_limited(); limited > 0)
    bad.push_back(absl::StrCat("packets above ", status.paths().least_largest_arrives(), " bytes do not arrive on ",
                               Counted(limited, "path"), " (cwctl paths)"));
  for (const auto& peer : status.peers()) {
    if (!peer.mtu_text().empty()) bad.push_back(peer.mtu_text());
  }
  if (status.data_age_s() > kOldDataS && !status.peers().empty() && measures)
    bad.push_back("the newest measurement is " + DurationText(status.data_age_s()) + " old");
  if (!waited_for.empty()) warn.push_back("never answered: " + absl::StrJoin(waited_for, ", "));
  if (status.mode() == cwfabric::v1::MODE_OFF) warn.push_back("switched off, every flow is on its native port");
  if (status.breaker().tripped()) warn.push_back("the breaker has tripped, nothing moves for balance");
  if (const uint32_t paused = status.paths().paused(); paused > 0) warn.push_back(Counted(paused, "path") + " paused");
  if (const uint32_t suspect = status.paths().suspect(); suspect > 0)
    warn.push_back(Counted(suspect, "path") + " suspect");
  for (const auto& peer : status.peers()) {
    if (!peer.cause_text().empty() && peer.cause() != "slow sender")
      warn.push_back(absl::StrCat("slow to ", peer.name(), " (", peer.cause(), ")"));
  }
  if (bad.empty() && warn.empty()) return {.text = "healthy", .tone = Tone::kGood};
  const Tone tone = bad.empty() ? Tone::kWarn : Tone::kBad;
  bad.insert(bad.end(), warn.begin(), warn.end());
  return {.text = absl::StrJoin(bad, "; "), .tone = tone};
}

}  // namespace cw::cli
