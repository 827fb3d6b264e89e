// SPDX-License-Identifier: Apache-2.0
// Links that flap: which link a path died of (control/link_blame.h), how often that happened to it
// (control/link_book.h), and who keeps away from it.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/flap_watch.h"
#include "userspace/agent/link_file.h"

namespace cw::agent {
namespace {

constexpr absl::Duration kFlapTick = absl::Milliseconds(20);

uint64_t PathNumber(const PairState& pair, uint8_t slot) {
  return (uint64_t{pair.index} + 1) << 8 | slot;  // 0 is no path
}

std::vector<std::string> Names(absl::Span<const Addr> links) {
  std::vector<std::string> names;
  for (const Addr& link : links) names.push_back(link.ToString());
  return names;
}

}  // namespace

absl::Status Agent::OpenLinkBook() {
  flaps_of_links_ = std::make_unique<FlapWatch>();
  const absl::Status loaded =
      LoadLinkBook(options_.config.RunDir() + "/" + kLinkFile, Deadlines::BootId(), flaps_of_links_->book);
  if (absl::IsInvalidArgument(loaded)) {
    Log({.type = "link",
         .severity = telemetry::Severity::kNotice,
         .text = absl::StrCat("outages of links that an earlier agent saw are forgotten: ",
                              std::string(loaded.message()))});
  }
  return absl::OkStatus();
}

void Agent::KeepLinkBook() {
  if (!flaps_of_links_->book.TakeChanged()) return;
  const absl::Status saved =
      SaveLinkBook(options_.config.RunDir() + "/" + kLinkFile, Deadlines::BootId(), flaps_of_links_->book);
  if (!saved.ok() && flaps_of_links_->kept) {
    spdlog::warn("a restart of the agent would forget outages of links: {}", std::string(saved.message()));
  }
  flaps_of_links_->kept = saved.ok();
}

// Hops of a path that is dead, or being traced anew, are not known in full; what was known before holds.
void Agent::RememberLinks(PairState& pair) {
  const probe::Discovery* discovery = engine_->discovery(pair.index);
  if (discovery == nullptr) return;
  const probe::SlotTable& slots = engine_->mesh().slots(pair.index);
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    const probe::Hops* hops = slots.port(s) == 0 ? nullptr : discovery->HopsOf(slots.port(s));
    if (hops == nullptr || hops->empty()) continue;
    if (std::any_of(hops->begin(), hops->end(), [](const Addr& hop) { return hop.is_zero(); })) continue;
    std::vector<Addr>& links = pair.slot[s].links;
    const bool same = links.size() == hops->size() + 1 && std::equal(hops->begin(), hops->end(), links.begin());
    if (same) continue;
    LeaveLinks(pair, s);
    links.assign(hops->begin(), hops->end());
    links.push_back(pair.key.remote);
  }
}

void Agent::LeaveLinks(PairState& pair, uint8_t s) {
  flaps_of_links_->gone.Left(pair.key.local.ToString(), Names(pair.slot[s].links), MonotonicNs());
  pair.slot[s].links.clear();
}

void Agent::BlameLinks(const PairState& pair, const cw_ev_slot& verdict) {
  const SlotState& slot = pair.slot[verdict.slot];
  control::PathDeath death{.path = PathNumber(pair, verdict.slot), .links = slot.links};
  death.died_ns = static_cast<int64_t>(verdict.ns);
  death.alive_ns = death.died_ns - verdict.silence_ns;
  death.interval_ns = engine_->IntervalNs(pair.index);
  if (verdict.witness < CW_MAX_SLOTS && verdict.witness != verdict.slot)
    death.proven = pair.slot[verdict.witness].links;
  flaps_of_links_->blame.Died(std::move(death));
  if (slot.silence->answered_ns != 0)
    flaps_of_links_->blame.Back(PathNumber(pair, verdict.slot), slot.silence->answered_ns);
  if (flaps_of_links_->ticking) return;
  flaps_of_links_->ticking = true;
  loop_->After(kFlapTick, [this] { BlameTick(); });
}

// sent_ns: local time.
void Agent::LinksAnswer(const PairState& pair, uint8_t s, int64_t sent_ns) {
  flaps_of_links_->blame.Back(PathNumber(pair, s), sent_ns);
}

void Agent::ForgiveLinks(const PairState& pair, uint8_t s) {
  const cw_ev_slot& verdict = pair.slot[s].silence->verdict;
  const int64_t alive_ns = static_cast<int64_t>(verdict.ns) - verdict.silence_ns + MonotonicNs() - NowNs();
  flaps_of_links_->blame.Forget(PathNumber(pair, s));
  flaps_of_links_->book.Retract(PathNumber(pair, s), alive_ns);
}

void Agent::BlameTick() {
  ReadProbes();
  const int64_t now_ns = NowNs();
  std::vector<control::PathSign> signs;
  for (const auto& [index, pair] : pairs_) {
    for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
      const SlotState& slot = pair->slot[s];
      if (slot.links.empty() || slot.answered_ns == 0) continue;
      signs.push_back({.path = PathNumber(*pair, s),
                       .links = slot.links,
                       .sent_ns = slot.answered_ns,
                       .dead = slot.silence.has_value()});
    }
  }
  const std::vector<control::Blame> blamed = flaps_of_links_->blame.Step(signs, now_ns);
  for (const control::Blame& blame : blamed) CountOutage(blame);
  if (!blamed.empty()) {
    for (auto& [index, pair] : pairs_) UpdateDamping(*pair);
  }
  flaps_of_links_->ticking = flaps_of_links_->blame.Waits();
  if (flaps_of_links_->ticking) loop_->After(kFlapTick, [this] { BlameTick(); });
}

void Agent::CountOutage(const control::Blame& blame) {
  const int64_t since_local_ns = MonotonicNs() - NowNs();
  control::LinkOutage outage{.links = Names(blame.links)};
  outage.began_ns = blame.deaths.front().died_ns + since_local_ns;
  int64_t alive_ns = INT64_MIN;
  for (const control::PathDeath& death : blame.deaths) {
    alive_ns = std::max(alive_ns, death.alive_ns + since_local_ns);
    const auto s = static_cast<uint8_t>(death.path & 0xff);
    const PairState* pair = FindPair(static_cast<uint32_t>((death.path >> 8) - 1));
    if (pair == nullptr) continue;
    outage.seen_by.push_back({death.path, absl::StrCat(pair->peer, "/", s)});
    // Nobody knows of what: its switches do not answer, or each of its links goes on carrying other paths.
    if (outage.links.empty()) {
      outage.links = {
          absl::StrFormat("path to %s by udp-port %d", pair->peer, engine_->mesh().slots(pair->index).port(s))};
    }
  }
  if (outage.links.empty()) return;
  const std::optional<control::FlapAlert> alert = flaps_of_links_->book.Add(std::move(outage), alive_ns);
  if (alert) TellFlaps(*alert);
}

// By the address where it ends; our own link and lone paths have names of another kind.
std::string Agent::LinkText(const std::string& end) const {
  for (const auto& [index, pair] : pairs_) {
    for (const SlotState& slot : pair->slot) {
      for (size_t i = 0; i < slot.links.size(); ++i) {
        if (slot.links[i].ToString() != end) continue;
        return absl::StrCat("from ", (i == 0 ? pair->key.local : slot.links[i - 1]).ToString(), " to ", end);
      }
    }
  }
  return end;
}

void Agent::TellFlaps(const control::FlapAlert& alert) {
  const absl::Time boot = absl::Now() - absl::Nanoseconds(MonotonicNs());
  const auto at = [&](int64_t ns) {
    return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", boot + absl::Nanoseconds(ns), absl::UTCTimeZone());
  };
  std::vector<std::string> links;
  for (const std::string& link : alert.links) links.push_back(LinkText(link));
  std::string text = absl::StrCat("link ", absl::StrJoin(links, ", or "), " ", flaps_of_links_->book.AlertText());
  if (links.size() > 1) absl::StrAppend(&text, "; no path of this host tells them apart");
  Log({.type = "link",
       .severity = telemetry::Severity::kAlert,
       .text = std::move(text),
       .evidence = {{"link", absl::StrJoin(alert.links, " ")},
                    {"flaps", absl::StrCat(alert.count.flaps)},
                    {"flaps_certain", absl::StrCat(alert.count.certain)},
                    {"first", at(alert.first_ns)},
                    {"last", at(alert.last_ns)},
                    {"seen_by", absl::StrJoin(alert.seen_by, " ")}}});
}

bool Agent::DampedByLinks(const PairState& pair, uint8_t s, int64_t now_ns) const {
  const std::vector<Addr>& links = pair.slot[s].links;
  return !links.empty() && flaps_of_links_->book.AnyToDamp(now_ns) && flaps_of_links_->book.Damps(Names(links), now_ns);
}

}  // namespace cw::agent
