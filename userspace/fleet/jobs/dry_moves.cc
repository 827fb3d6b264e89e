// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/jobs/dry_moves.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
using Kind = DryMoves::Word::Kind;

// nullptr: there is none of this name.
const std::string* ValueOf(const pb::Event& event, const char* name) {
  for (const pb::Evidence& evidence : event.evidence()) {
    if (evidence.name() == name) return &evidence.value();
  }
  return nullptr;
}

// What moving a flow that shares a link saves of its time; 0: not said, or nothing.
double ShareByGain(const pb::Event& event) {
  const std::string* text = ValueOf(event, "gain");
  double gain = 0;
  if (text == nullptr || !absl::SimpleAtod(*text, &gain) || !std::isfinite(gain) || gain <= 1) return 0;
  return 1 - 1 / gain;
}

// Of a host with several NICs slots of one number are paths of several pairs. "": not known.
std::string PathOf(const std::string& pair, int slot) {
  return pair.empty() || slot < 0 ? "" : absl::StrCat("path ", slot, " of ", pair);
}
std::string OfFlow(const std::string& flow) { return absl::StrCat("flow ", flow); }
std::string LossesOf(const std::string& path) { return absl::StrCat("losses of ", path); }

// What a path's own event says.
std::optional<Kind> KindOfPath(const pb::Event& event) {
  const bool by_loss = ValueOf(event, "probes") != nullptr;
  if (event.severity() != pb::SEVERITY_ALERT) return by_loss ? Kind::kLossOver : Kind::kRevived;
  if (!event.dry()) return std::nullopt;
  return by_loss ? Kind::kLossy : Kind::kDead;  // it delivers no data
}

}  // namespace

std::optional<DryMoves::Word> DryMoves::Read(const pb::Event& event, int64_t time_ns) {
  const std::string* pair = ValueOf(event, "pair");
  Word word{.time_ns = time_ns, .flow = event.flow()};
  word.path = PathOf(pair == nullptr ? "" : *pair, event.slot());
  if (event.type() == "path") {
    const std::optional<Kind> kind = KindOfPath(event);
    if (!kind || word.path.empty()) return std::nullopt;
    word.kind = *kind;
    word.flow.clear();
    return word;
  }
  if (word.flow.empty()) return std::nullopt;
  if (event.type() == "move") {
    word.kind = event.dry() ? Kind::kDead : Kind::kMoved;
    return word;
  }
  if (event.type() != "decision" || !event.dry()) return std::nullopt;
  word.kind = Kind::kUneven;
  word.share = ShareByGain(event);
  return word.share > 0 ? std::optional(word) : std::nullopt;
}

void DryMoves::Add(const std::string& about, Decision decision) {
  if (kept_ >= kMost || (decisions_.size() >= kMostNames && !decisions_.contains(about))) {
    whole_ = false;
    return;
  }
  std::deque<Decision>& all = decisions_[about];
  const auto goes_on = [&](const Decision& last) {
    return decision.from_ns < UntilOf(about, last) && last.share == decision.share && last.path == decision.path;
  };
  if (!all.empty() && goes_on(all.back())) {  // it is said again
    all.back().until_ns = std::max(all.back().until_ns, decision.until_ns);
    return;
  }
  if (all.size() >= kMostOfOne) {
    whole_ = false;
    all.pop_front();
    --kept_;
  }
  all.push_back(std::move(decision));
  ++kept_;
}

void DryMoves::End(const std::string& about, int64_t time_ns) {
  if (ends_.size() >= kMostNames && !ends_.contains(about)) {
    whole_ = false;
    return;
  }
  std::deque<int64_t>& all = ends_[about];
  if (!all.empty() && all.back() >= time_ns) return;
  if (all.size() >= kMostOfOne) {
    whole_ = false;
    all.pop_front();
  }
  all.push_back(time_ns);
}

int64_t DryMoves::EndOf(const std::string& about, int64_t from_ns) const {
  const auto at = ends_.find(about);
  if (about.empty() || at == ends_.end()) return INT64_MAX;
  const auto end = std::upper_bound(at->second.begin(), at->second.end(), from_ns);
  return end == at->second.end() ? INT64_MAX : *end;
}

// It stands no longer. A path that was silent for a moment still loses packets.
int64_t DryMoves::UntilOf(const std::string& about, const Decision& one) const {
  const int64_t revived_ns = about == LossesOf(one.path) ? INT64_MAX : EndOf(one.path, one.from_ns);
  return std::min({one.until_ns, revived_ns, EndOf(about, one.from_ns)});
}

void DryMoves::Take(Word word) {
  const auto stands = [&](absl::Duration holds) {
    return Decision{.from_ns = word.time_ns,
                    .until_ns = word.time_ns + absl::ToInt64Nanoseconds(holds),
                    .share = word.share,
                    .path = word.path};
  };
  switch (word.kind) {
    case Kind::kDead:
      return Add(word.flow.empty() ? word.path : OfFlow(word.flow), stands(kDeadHolds));
    case Kind::kUneven:
      return Add(OfFlow(word.flow), stands(kUnevenHolds));
    case Kind::kLossy:
      return Add(LossesOf(word.path), stands(kLossyHolds));
    case Kind::kMoved:
      return End(OfFlow(word.flow), word.time_ns);
    case Kind::kRevived:
      return End(word.path, word.time_ns);
    case Kind::kLossOver:
      return End(LossesOf(word.path), word.time_ns);
  }
}

double DryMoves::SavedOf(const std::string& about, int64_t begin_ns, int64_t end_ns) const {
  const auto at = decisions_.find(about);
  if (at == decisions_.end()) return 0;
  double saved_ns = 0;
  int64_t counted_ns = begin_ns;  // decisions overlap
  for (const Decision& one : at->second) {
    const int64_t until_ns = std::min(UntilOf(about, one), end_ns);
    const int64_t from_ns = std::max(one.from_ns, counted_ns);
    if (until_ns <= from_ns) continue;
    saved_ns += one.share * static_cast<double>(until_ns - from_ns);
    counted_ns = until_ns;
  }
  return saved_ns;
}

double DryMoves::SavedNs(const Flow& flow, int64_t begin_ns, int64_t end_ns) const {
  const std::string path = PathOf(flow.pair, flow.slot);
  double most_ns = flow.id.empty() ? 0 : SavedOf(OfFlow(flow.id), begin_ns, end_ns);
  if (path.empty()) return most_ns;
  for (const std::string& about : {path, LossesOf(path)}) most_ns = std::max(most_ns, SavedOf(about, begin_ns, end_ns));
  return most_ns;
}

}  // namespace cw::fleet
