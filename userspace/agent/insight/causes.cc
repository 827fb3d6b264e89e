// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/insight/causes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::agent {
namespace {

constexpr uint64_t kDataPacketBytes = 128;  // smaller on average: acknowledgements and READ requests
constexpr int64_t kTellGapsAgainNs = 100'000'000;
constexpr uint32_t kPsnMask = 0xffffff;

// One way back, typical in the last second, over all paths; 0: not known.
double ReverseNs(const PairState& pair, int64_t now_ns) {
  double sum_ns = 0;
  int paths = 0;
  for (const SlotState& slot : pair.slot) {
    if (slot.reverse.samples() == 0) continue;
    const telemetry::DelayWindow window = slot.reverse.Window(now_ns, 1);
    if (window.owd.count() == 0) continue;
    sum_ns += window.owd.MeanNs();
    ++paths;
  }
  return paths > 0 ? sum_ns / paths : 0;
}

// Packets sent and not acknowledged; −1: not known, as of READ responses, which nobody acknowledges.
int64_t InFlight(const cw_tx_flow& flow) {
  const bool requests = flow.flow.req.packets > flow.flow.resp.packets;
  if (flow.acked_valid == 0 || flow.flow.req.seen == 0 || !requests) return -1;
  const uint32_t packets = (flow.flow.req.next - flow.acked_psn) & kPsnMask;
  return packets <= kPsnMask / 2 ? packets : 0;
}

// Of IP, as one in the middle of a message has it; 0: not known.
uint32_t LargestPacket(const FlowKey& key, uint32_t path_mtu) {
  return path_mtu == 0 ? 0 : path_mtu + (key.src.is_v4() ? 20 : 40) + 8 + 12 + 4;
}

// What the MTUs of both NICs let pass where one is too small for what the other may send; 0: they fit.
uint32_t LargestOfNics(const PairState& pair, const NicState& nic) {
  const bool v4 = pair.key.local.is_v4(), known = nic.mtu > 0 && pair.peer_mtu > 0;
  const bool fit = control::RocePacketBytes(nic.mtu, v4) == control::RocePacketBytes(pair.peer_mtu, v4);
  return !known || fit ? 0 : std::min(nic.mtu, pair.peer_mtu);
}

// In a window without packets what it sent before tells: acknowledgements alone are nobody's slow data.
bool SendsData(const FlowEntry& flow) {
  const bool now = flow.window_packets > 0;
  const uint64_t bytes = now ? flow.window_bytes : flow.flow().bytes;
  return bytes >= kDataPacketBytes * (now ? flow.window_packets : flow.flow().packets);
}

}  // namespace

Causes::Causes(const FlowBook& flows, const PairTable& pairs, const NicTable& nics, const probe::Mesh& mesh,
               probe::PairStore& store, ReceivedRecord received, JobOfFlow job_of, Awaited awaited,
               const PeerNames& names, PeerMail& mail, EventSink& events)
    : flows_(flows),
      pairs_(pairs),
      nics_(nics),
      mesh_(mesh),
      store_(store),
      received_(std::move(received)),
      job_of_(std::move(job_of)),
      awaited_(std::move(awaited)),
      names_(names),
      mail_(mail),
      events_(events) {}

void Causes::SetRules(bool wanted, const control::CauseRules& rules) {
  wanted_ = wanted;
  book_.SetRules(rules);
}

void Causes::Hold(control::Observation& seen) const {
  if (wanted_) book_.Hold(seen);
}

void Causes::Answered(uint32_t pair, uint8_t slot) {
  if (wanted_) book_.Answered(pair, slot);
}

void Causes::Look(const control::Observation& seen) {
  if (!wanted_ || flows_.sent.empty()) return;  // nothing to be slow
  for (const control::PairObservation& pair : seen.pairs) {
    const std::optional<uint32_t> index = mesh_.Find(pair.pair);
    if (!index) continue;
    book_.LookAtPair(*index, pair, *store_.At(*index));
    const PairState* state = FindIn(pairs_, *index);
    const NicState* nic = state == nullptr ? nullptr : NicOf(nics_, state->ifindex);
    for (uint8_t s = 0; nic != nullptr && s < kMaxSlots; ++s) {
      const uint32_t arrives = state->slot[s].size.arrives();
      book_.PathCarries(*index, s, arrives > 0 ? arrives : LargestOfNics(*state, *nic));
    }
  }
  for (const auto& [key, flow] : flows_.sent) {
    const PairState* pair = FindIn(pairs_, flow.tx.pair);
    if (!SendsData(flow) || pair == nullptr) continue;
    // Its acknowledgements are not seen where the programs are gone.
    const NicState* nic = NicOf(nics_, pair->ifindex);
    if (nic != nullptr && !nic->judges()) continue;
    const WireGaps::Count gaps = wire_gaps_.Look(flow.tx.pair, key, flow.answers.seq_naks, flow.flow().packets);
    book_.LookAtFlow(flow.tx.pair, {.key = key,
                                    .slot = flow.PathSlot(),
                                    .packets = flow.flow().packets,
                                    .bytes = flow.flow().bytes,
                                    .cnps = flow.window_cnps,
                                    .answers_known = flow.answers.known,
                                    .acks = flow.answers.acks,
                                    .rnr_naks = flow.answers.rnr_naks,
                                    .seq_naks = flow.answers.seq_naks,
                                    .gaps_pending = gaps.pending,
                                    .gaps_known = gaps.known,
                                    .gaps = gaps.gaps,
                                    .missing = gaps.missing,
                                    .in_flight = InFlight(flow.tx),
                                    .largest = LargestPacket(key, flow.flow().mtu),
                                    .other_class = flow.flow().tos >> 2 != mesh_.dscp(flow.tx.pair)});
  }
}

void Causes::Judge(int64_t now_ns, uint64_t ring_losses) {
  if (!wanted_) return;
  const double seconds = judged_ns_ == 0 ? 0 : static_cast<double>(now_ns - judged_ns_) / 1e9;
  judged_ns_ = now_ns;
  const bool lossless = ring_losses_ == ring_losses;
  ring_losses_ = ring_losses;
  if (!flows_.sent.empty()) book_.SetAwaited(awaited_(now_ns));
  for (const NicState& nic : nics_) {
    if (!nic.judges()) {  // what was missed is no word on anybody
      for (const auto& [index, pair] : pairs_) {
        if (pair->ifindex == nic.ifindex) book_.Forget(index);
      }
      continue;
    }
    CauseBook::NicPairs group{.nic = nic.ifindex, .line_rate_bps = nic.rate_bps, .lossless = lossless};
    for (const auto& [index, pair] : pairs_) {
      if (pair->ifindex == nic.ifindex) group.pairs.push_back({index, pair->flows > 0 ? ReverseNs(*pair, now_ns) : 0});
    }
    for (const control::CauseVerdict& verdict : book_.Judge(group, seconds)) {
      if (book_.WorthTelling(verdict, now_ns)) Tell(verdict);
    }
  }
  book_.EndWindow();
  for (const auto& [pair, question] : wire_gaps_.Questions()) mail_.Send(pair, question);
}

void Causes::OnPeersPathDied(const PairState& pair, const probe::PathDeath& death) {
  if (wanted_) book_.PeersPathDied(pair.index, death.slot);
}

// Asked about flows that the peer sends: their records know what arrived, and where PSNs were missing. Answered ten
// times a second at most.
void Causes::OnGapReport(PairState& pair, const probe::GapReport& report, int64_t now_ns) {
  if (report.answer) return wire_gaps_.Answered(pair.key, report);
  if (now_ns - pair.gaps_told_ns < kTellGapsAgainNs) return;
  pair.gaps_told_ns = now_ns;
  probe::GapReport answer{.answer = true};
  for (const probe::GapReport::Flow& asked : report.flows) {
    const FlowKey key{.src = pair.key.remote, .dst = pair.key.local, .dqpn = asked.qpn};
    const absl::StatusOr<cw_flow> record = received_(key);
    probe::GapReport::Flow told{.qpn = asked.qpn, .known = record.ok()};
    if (told.known) {
      told.gaps = static_cast<uint32_t>(record->req.gaps + record->resp.gaps);
      told.packets = static_cast<uint32_t>(record->packets);
    }
    answer.flows.push_back(told);
  }
  mail_.Send(pair.index, answer);
}

void Causes::Tell(const control::CauseVerdict& verdict) {
  using control::Cause;
  const bool of_flow = verdict.flow != FlowKey{};
  // A pair's verdict repeats that of a flow, but for what its paths have.
  const bool of_paths = verdict.cause == Cause::kOneDirection || verdict.cause == Cause::kGreyLoss;
  if (!of_flow && !of_paths) return;
  const std::string peer = names_.Of(verdict.pair.remote);
  const std::string what =
      of_flow ? absl::StrFormat("queue pair to %s qp 0x%x", peer, verdict.flow.dqpn) : absl::StrCat("paths to ", peer);
  const Cause cause = CauseToTell(verdict);
  telemetry::Event event{.type = "cause", .severity = telemetry::Severity::kNotice, .peer = peer};
  event.text = cause == Cause::kNone
                   ? absl::StrCat(what, verdict.evidence.empty() && of_flow
                                            ? ": it sends nothing now, and why it was slow holds no more"
                                            : ": nothing makes it slow any more")
                   : absl::StrCat(what, ": ", std::string(control::CauseName(cause)), ", ", verdict.text);
  if (of_flow) event.flow = verdict.flow.Id().ToString();
  if (verdict.slot != kSlotNone) event.slot = verdict.slot;
  if (verdict.stopped) event.severity = telemetry::Severity::kAlert;
  event.evidence = verdict.evidence;
  event.evidence.insert(event.evidence.begin(), {"cause", std::string(control::CauseName(cause))});
  // The fleet service knows whom it concerns by this word alone.
  if (const std::string job = of_flow ? job_of_(verdict.flow) : ""; !job.empty())
    event.evidence.emplace_back("job", job);
  events_.Log(std::move(event));
}

}  // namespace cw::agent
