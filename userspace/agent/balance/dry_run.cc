// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/balance/dry_run.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"

namespace cw::agent {
namespace {

constexpr size_t kMostOpen = 4096;
constexpr size_t kMostRepeats = 65536;
// A queue pair's usual end: timeout 20 and 7 retries, 4.3 s each.
constexpr double kLongestStallMs = 30'000;
constexpr int64_t kExpireNs = 60'000'000'000;
constexpr char kStallHow[] = "from the decision until the path answered again; 30 s at most, when queue pairs give up";

}  // namespace

void DryRun::Open(const std::string& file, uint64_t most_bytes) {
  if (file.empty()) return;
  auto writer = report::Writer::Open(file, most_bytes);
  if (writer.ok()) {
    writer_ = *std::move(writer);
    return;
  }
  events_.Log(
      {.type = "agent",
       .severity = telemetry::Severity::kAlert,
       .text = absl::StrCat("what is only observed is not reported: ", std::string(writer.status().message()))});
}

// The links of a path behind this host's own, by the addresses of the ports where they end.
std::vector<std::string> DryRun::LinksOf(const PairState& pair, uint8_t slot) const {
  std::vector<std::string> links;
  const probe::Hops* hops = slot < CW_MAX_SLOTS ? asks_.hops(pair.index, slot) : nullptr;
  if (hops == nullptr) return links;
  for (size_t i = 1; i < hops->size(); ++i) links.push_back((*hops)[i].is_zero() ? "*" : (*hops)[i].ToString());
  return links;
}

report::Item DryRun::ItemOf(const FlowKey& flow, const char* kind, int slot, int to_slot) const {
  report::Item item{.time_unix_ns = absl::GetCurrentTimeNanos(),
                    .kind = kind,
                    .flow = flow.Id().ToString(),
                    .pair = PairText(flow.src, flow.dst),
                    .peer = names_.Of(flow.dst),
                    .slot = slot,
                    .to_slot = to_slot};
  if (const std::optional<rdma::QpInfo> qp = qps_.BySentFlow(flow)) item.job = qp->label.empty() ? qp->comm : qp->label;
  const std::optional<uint32_t> index = mesh_.Find({.local = flow.src, .remote = flow.dst});
  const PairState* pair = index ? FindIn(pairs_, *index) : nullptr;
  if (pair != nullptr && slot >= 0) item.links = LinksOf(*pair, static_cast<uint8_t>(slot));
  std::tie(item.recording_unix_ns, item.window) = window_;
  return item;
}

void DryRun::Write(const report::Item& item) {
  const absl::Status status = writer_->Add(item);
  if (!status.ok()) spdlog::warn("an item of the report is lost: {}", std::string(status.message()));
}

void DryRun::Tell(report::Item item) {
  if (writer_ == nullptr) return;
  if (item.kind != "failover") {
    if (repeats_.size() > kMostRepeats) repeats_.clear();
    item.times =
        repeats_[absl::StrCat(item.kind, " ", item.pair, " ", item.flow, " ", item.slot)].Tell(monotonic_.NowNs());
    if (item.times == 0) return;
  }
  Write(item);
}

void DryRun::TellMove(const cw_ev_move& move, const Evidence& evidence) {
  if (writer_ == nullptr) return;
  const bool placed = move.type == CW_EV_FLOW;
  const auto number = [](uint8_t slot) { return slot == CW_SLOT_NONE ? -1 : static_cast<int>(slot); };
  const FlowKey key = FromMap(move.key);
  report::Item item = ItemOf(key, placed ? "place" : "failover", number(move.from_slot), number(move.to_slot));
  item.text = placed ? absl::StrFormat("a new queue pair to %s qp 0x%x would be put on path %d", item.peer, key.dqpn,
                                       move.to_slot)
                     : absl::StrFormat("queue pair to %s qp 0x%x would leave dead path %d for path %d", item.peer,
                                       key.dqpn, move.from_slot, move.to_slot);
  item.evidence = evidence;
  if (!placed && open_.size() < kMostOpen) open_.push_back({.item = item, .begun_ns = monotonic_.NowNs()});
  Tell(std::move(item));
}

// The path answers again: now it is known for how long the flows on it stood. Ends all whose path is not dead now, or
// is the one that has just revived: the slot that stands for a flow's path may have been another when it died.
void DryRun::EndDeaths(uint32_t revived_pair, uint8_t revived_slot) {
  if (open_.empty()) return;
  absl::flat_hash_map<std::string, const FlowEntry*> flows;
  for (const auto& [key, flow] : flows_.sent) flows[key.Id().ToString()] = &flow;
  const auto dead = [&](const report::Item& item) {
    const auto found = flows.find(item.flow);
    if (found == flows.end()) return false;  // it ended
    const cw_tx_flow& tx = found->second->tx;
    const uint8_t slot = found->second->SlotOfPackets(asks_.acts());
    if (FindIn(pairs_, tx.pair) == nullptr || (tx.pair == revived_pair && slot == revived_slot)) return false;
    // A slot that is new or not known yet has not answered either.
    if (slot >= CW_MAX_SLOTS) return true;
    const uint8_t state = probe::Load(mesh_.shared(tx.pair)->slot[slot].state);
    return state != CW_SLOT_UP && state != CW_SLOT_SUSPECT;
  };
  const int64_t now_ns = monotonic_.NowNs();
  std::erase_if(open_, [&](Death& death) {
    report::Item& item = death.item;
    const int64_t age_ns = now_ns - death.begun_ns;
    if (age_ns < kExpireNs && dead(item)) return false;
    item.stall_ms = std::min(static_cast<double>(age_ns) / 1e6, kLongestStallMs);
    item.how = kStallHow;
    Write(item);
    return true;
  });
}

void DryRun::TellMove(const control::Move& move) {
  if (writer_ == nullptr) return;
  report::Item item = ItemOf(move.flow, "balance", move.from, move.to);
  item.text = absl::StrFormat("queue pair to %s qp 0x%x would move from path %d to path %d: %s", item.peer,
                              move.flow.dqpn, move.from, move.to, move.why);
  item.evidence = move.evidence;
  if (move.gain > 1) {
    item.goodput_share = 1 - 1 / move.gain;
    item.how = "1 - present rate / rate that the rule expects after the move";
  }
  Tell(std::move(item));
}

void DryRun::TellOfPair(const PairKey& pair, const char* kind, const std::string& text) {
  report::Item item = ItemOf({.src = pair.local, .dst = pair.remote}, kind, -1, -1);
  item.flow.clear();
  item.text = text;
  Tell(std::move(item));
}

void DryRun::TellLoss(const PairState& pair, uint8_t slot, double share, const Evidence& evidence) {
  for (const auto& [key, flow] : flows_.sent) {
    if (writer_ == nullptr || flow.tx.pair != pair.index || flow.PathSlot() != slot) continue;
    report::Item item = ItemOf(key, "loss", slot, -1);
    item.text =
        absl::StrFormat("queue pair to %s qp 0x%x would leave path %d, which loses packets", item.peer, key.dqpn, slot);
    item.evidence = evidence;
    item.goodput_share = std::clamp(share, 0.0, 1.0);
    item.how =
        "share of the path's packets that is lost, less that of the other paths; what go-back-N costs besides is not "
        "in it";
    Tell(std::move(item));
  }
}

}  // namespace cw::agent
