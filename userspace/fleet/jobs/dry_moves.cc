// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/jobs/dry_moves.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

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

std::string OfPath(const std::string& peer, int slot) { return absl::StrCat("path ", slot, " to ", peer); }
std::string OfFlow(const std::string& flow) { return absl::StrCat("flow ", flow); }

}  // namespace

void DryMoves::Add(const std::string& about, Decision decision) {
  if (decisions_.size() >= kMostNames && !decisions_.contains(about)) return;
  std::deque<Decision>& all = decisions_[about];
  if (all.size() >= kMostOfOne) all.pop_front();
  all.push_back(std::move(decision));
}

void DryMoves::End(const std::string& about, int64_t time_ns) {
  if (ends_.size() >= kMostNames && !ends_.contains(about)) return;
  std::deque<int64_t>& all = ends_[about];
  if (all.size() >= kMostOfOne) all.pop_front();
  if (all.empty() || all.back() < time_ns) all.push_back(time_ns);
}

int64_t DryMoves::EndOf(const std::string& about, int64_t from_ns) const {
  const auto at = ends_.find(about);
  if (at == ends_.end()) return INT64_MAX;
  const auto end = std::upper_bound(at->second.begin(), at->second.end(), from_ns);
  return end == at->second.end() ? INT64_MAX : *end;
}

void DryMoves::Take(const pb::Event& event, int64_t time_ns) {
  const std::string path = OfPath(event.peer(), event.slot());
  const auto stands = [&](absl::Duration holds, double share) {
    return Decision{
        .from_ns = time_ns, .until_ns = time_ns + absl::ToInt64Nanoseconds(holds), .share = share, .path = path};
  };
  const std::string& type = event.type();
  if (type == "path" && event.slot() >= 0) {
    if (event.severity() != pb::SEVERITY_ALERT) return End(path, time_ns);
    if (!event.dry()) return;
    const bool no_data = ValueOf(event, "stalled_flows") != nullptr;  // the agent says it again where it goes on
    return Add(path, stands(no_data ? kDeadHolds : kLossyHolds, 1));
  }
  if (event.flow().empty()) return;
  if (type == "move" && !event.dry()) return End(OfFlow(event.flow()), time_ns);
  if (type == "move") return Add(OfFlow(event.flow()), stands(kDeadHolds, 1));
  const double share = type == "decision" && event.dry() ? ShareByGain(event) : 0;
  if (share > 0) Add(OfFlow(event.flow()), stands(kUnevenHolds, share));
}

double DryMoves::SavedOf(const std::string& about, int64_t begin_ns, int64_t end_ns) const {
  const auto at = decisions_.find(about);
  if (at == decisions_.end()) return 0;
  double most_ns = 0;
  for (const Decision& one : at->second) {
    const int64_t until_ns = std::min({one.until_ns, EndOf(one.path, one.from_ns), EndOf(about, one.from_ns)});
    if (one.from_ns >= end_ns || until_ns <= begin_ns) continue;
    const int64_t acted_ns = std::max(one.from_ns, begin_ns);
    most_ns = std::max(most_ns, one.share * static_cast<double>(end_ns - acted_ns));
  }
  return most_ns;
}

double DryMoves::SavedNs(const Flow& flow, int64_t begin_ns, int64_t end_ns) const {
  const double by_path_ns = flow.slot < 0 ? 0 : SavedOf(OfPath(flow.peer, flow.slot), begin_ns, end_ns);
  return std::max(SavedOf(OfFlow(flow.id), begin_ns, end_ns), by_path_ns);
}

}  // namespace cw::fleet
