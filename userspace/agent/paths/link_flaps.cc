// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/paths/link_flaps.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"
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

LinkFlaps::LinkFlaps(std::string file, std::string boot, const PairTable& pairs, const probe::Mesh& mesh,
                     const Clock& local, const Clock& monotonic, EventSink& events, Asks asks)
    : file_(std::move(file)),
      boot_(std::move(boot)),
      pairs_(pairs),
      mesh_(mesh),
      local_(local),
      monotonic_(monotonic),
      events_(events),
      asks_(std::move(asks)) {
  const absl::Status loaded = LoadLinkBook(file_, boot_, book_);
  if (!absl::IsInvalidArgument(loaded)) return;
  events_.Log({.type = "link",
               .severity = telemetry::Severity::kNotice,
               .text = absl::StrCat("outages of links that an earlier agent saw are forgotten: ",
                                    std::string(loaded.message()))});
}

void LinkFlaps::Keep() {
  if (!book_.TakeChanged()) return;
  const absl::Status saved = SaveLinkBook(file_, boot_, book_);
  if (!saved.ok() && kept_)
    spdlog::warn("a restart of the agent would forget outages of links: {}", std::string(saved.message()));
  kept_ = saved.ok();
}

// Hops of a path that is dead, or being traced anew, are not known in full; what was known before holds.
void LinkFlaps::Remember(PairState& pair) {
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    const probe::Hops* hops = asks_.hops(pair.index, s);
    if (hops == nullptr || hops->empty()) continue;
    if (std::any_of(hops->begin(), hops->end(), [](const Addr& hop) { return hop.is_zero(); })) continue;
    std::vector<Addr>& links = pair.slot[s].links;
    const bool same = links.size() == hops->size() + 1 && std::equal(hops->begin(), hops->end(), links.begin());
    if (same) continue;
    Leave(pair, s);
    links.assign(hops->begin(), hops->end());
    links.push_back(pair.key.remote);
  }
}

void LinkFlaps::Leave(PairState& pair, uint8_t s) {
  gone_.Left(pair.key.local.ToString(), Names(pair.slot[s].links), monotonic_.NowNs());
  pair.slot[s].links.clear();
}

void LinkFlaps::Blame(const PairState& pair, const cw_ev_slot& verdict) {
  const SlotState& slot = pair.slot[verdict.slot];
  control::PathDeath death{.path = PathNumber(pair, verdict.slot), .links = slot.links};
  death.died_ns = static_cast<int64_t>(verdict.ns);
  death.alive_ns = death.died_ns - verdict.silence_ns;
  death.interval_ns = asks_.interval_ns(pair.index);
  if (verdict.witness < CW_MAX_SLOTS && verdict.witness != verdict.slot)
    death.proven = pair.slot[verdict.witness].links;
  blame_.Died(std::move(death));
  if (slot.silence->answered_ns != 0) blame_.Back(PathNumber(pair, verdict.slot), slot.silence->answered_ns);
  if (ticking_) return;
  ticking_ = true;
  asks_.after(kFlapTick, [this] { BlameTick(); });
}

// sent_ns: local time.
void LinkFlaps::Answered(const PairState& pair, uint8_t s, int64_t sent_ns) {
  blame_.Back(PathNumber(pair, s), sent_ns);
}

void LinkFlaps::Forgive(const PairState& pair, uint8_t s) {
  const cw_ev_slot& verdict = pair.slot[s].silence->verdict;
  const int64_t alive_ns = static_cast<int64_t>(verdict.ns) - verdict.silence_ns + monotonic_.NowNs() - local_.NowNs();
  blame_.Forget(PathNumber(pair, s));
  book_.Retract(PathNumber(pair, s), alive_ns);
}

void LinkFlaps::BlameTick() {
  asks_.read_probes();
  const int64_t now_ns = local_.NowNs();
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
  const std::vector<control::Blame> blamed = blame_.Step(signs, now_ns);
  for (const control::Blame& blame : blamed) CountOutage(blame);
  if (!blamed.empty()) asks_.damp_anew();
  ticking_ = blame_.Waits();
  if (ticking_) asks_.after(kFlapTick, [this] { BlameTick(); });
}

void LinkFlaps::CountOutage(const control::Blame& blame) {
  const int64_t since_local_ns = monotonic_.NowNs() - local_.NowNs();
  control::LinkOutage outage{.links = Names(blame.links)};
  outage.began_ns = blame.deaths.front().died_ns + since_local_ns;
  int64_t alive_ns = INT64_MIN;
  for (const control::PathDeath& death : blame.deaths) {
    alive_ns = std::max(alive_ns, death.alive_ns + since_local_ns);
    const auto s = static_cast<uint8_t>(death.path & 0xff);
    const PairState* pair = FindIn(pairs_, static_cast<uint32_t>((death.path >> 8) - 1));
    if (pair == nullptr) continue;
    outage.seen_by.push_back({death.path, absl::StrCat(pair->peer, "/", s)});
    // Nobody knows of what: its switches do not answer, or each of its links goes on carrying other paths.
    if (outage.links.empty()) {
      outage.links = {absl::StrFormat("path to %s by udp-port %d", pair->peer, mesh_.slots(pair->index).port(s))};
    }
  }
  if (outage.links.empty()) return;
  const std::optional<control::FlapAlert> alert = book_.Add(std::move(outage), alive_ns);
  if (alert) Tell(*alert);
}

void LinkFlaps::OwnLinkDown(const std::string& nic, int64_t began_ns) {
  control::LinkOutage outage{.links = {nic}, .began_ns = began_ns};
  outage.seen_by.push_back({0, "carrier"});
  if (const auto alert = book_.Add(std::move(outage), INT64_MAX); alert) Tell(*alert);
}

// By the address where it ends; our own link and lone paths have names of another kind.
std::string LinkFlaps::TextOf(const std::string& end) const {
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

void LinkFlaps::Tell(const control::FlapAlert& alert) {
  const absl::Time boot = absl::Now() - absl::Nanoseconds(monotonic_.NowNs());
  const auto at = [&](int64_t ns) {
    return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", boot + absl::Nanoseconds(ns), absl::UTCTimeZone());
  };
  std::vector<std::string> links;
  for (const std::string& link : alert.links) links.push_back(TextOf(link));
  std::string text = absl::StrCat("link ", absl::StrJoin(links, ", or "), " ", book_.AlertText());
  if (links.size() > 1) absl::StrAppend(&text, "; no path of this host tells them apart");
  events_.Log({.type = "link",
               .severity = telemetry::Severity::kAlert,
               .text = std::move(text),
               .evidence = {{"link", absl::StrJoin(alert.links, " ")},
                            {"flaps", absl::StrCat(alert.count.flaps)},
                            {"flaps_certain", absl::StrCat(alert.count.certain)},
                            {"first", at(alert.first_ns)},
                            {"last", at(alert.last_ns)},
                            {"seen_by", absl::StrJoin(alert.seen_by, " ")}}});
}

bool LinkFlaps::Damps(const PairState& pair, uint8_t s, int64_t now_ns) const {
  const std::vector<Addr>& links = pair.slot[s].links;
  return !links.empty() && book_.AnyToDamp(now_ns) && book_.Damps(Names(links), now_ns);
}

}  // namespace cw::agent
