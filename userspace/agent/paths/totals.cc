// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/paths/totals.h"

#include <bit>

#include "userspace/model/clock.h"

namespace cw::agent {
namespace {

metrics::FlowCounts CountsOf(const cw_flow& record) {
  return {.packets = record.packets,
          .bytes = record.bytes,
          .ce = record.ce,
          .cnps = record.cnp,
          .seq_naks = record.nak_seq,
          .rnr_naks = record.rnr,
          .other_naks = record.nak_other,
          .missing = record.req.missing + record.resp.missing,
          .duplicates = record.req.duplicates + record.resp.duplicates};
}

}  // namespace

// NICs and the addresses of a peer are listed in the same order on all hosts: equal places are one rail.
metrics::NicDelays* Totals::DelaysOf(const PairState& pair) {
  const auto rail = names_.rails.find(pair.key.remote);
  for (size_t i = 0; i < nics_.size(); ++i) {
    if (nics_[i].ifindex != pair.ifindex) continue;
    return &delays_.Of(nics_[i].config.name, rail != names_.rails.end() && rail->second == i);
  }
  return nullptr;
}

metrics::NicFlows* Totals::FlowsOf(const Addr& local) {
  for (const NicState& nic : nics_) {
    if (nic.address == local) return &flows_[nic.config.name];
  }
  return nullptr;
}

// flow.tx.flow: the record at the reading before. What flows did before this agent looked first is not its to count.
void Totals::CountReceived(const FlowKey& key, const FlowEntry& flow, const cw_flow& now, bool added) {
  if (added && !received_read_) return;
  if (metrics::NicFlows* sums = FlowsOf(key.dst); sums != nullptr)
    sums->received.AddGrowth(added ? metrics::FlowCounts{} : CountsOf(flow.tx.flow), CountsOf(now));
}

metrics::NicPaths Totals::CountPathsOf(const NicState& nic) {
  metrics::NicPaths out{.nic = nic.config.name};
  for (const auto& [index, pair] : pairs_) {
    if (pair->ifindex != nic.ifindex) continue;
    const probe::SlotTable& slots = mesh_.slots(index);
    uint16_t living = 0;
    for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
      if (slots.port(s) == 0) continue;
      const uint8_t state = probe::Load(store_.At(index)->slot[s].state);
      const bool paused = pair->slot[s].silence && pair->slot[s].silence->watch.verdict() == control::Silence::kPaused;
      out.up += state == CW_SLOT_UP;
      out.suspect += state == CW_SLOT_SUSPECT;
      out.dead += state == CW_SLOT_DEAD && !paused;
      out.paused += state == CW_SLOT_DEAD && paused;
      out.fresh += state == CW_SLOT_NEW;
      if (state == CW_SLOT_UP || state == CW_SLOT_SUSPECT) living |= static_cast<uint16_t>(1u << s);
    }
    const auto kept = [living](uint16_t slots_kept) {
      return static_cast<uint64_t>(std::popcount(static_cast<uint16_t>(slots_kept & living)));
    };
    out.damped += kept(pair->damped);
    out.drained += kept(pair->drained);
    if (pair->loss != nullptr) out.lossy += kept(pair->loss->lossy());
  }
  return out;
}

metrics::PathTotals Totals::Make() {
  const int64_t before_ns = ThreadCpuNs();
  metrics::PathTotals out;
  for (const NicState& nic : nics_) out.nics.push_back(CountPathsOf(nic));
  out.delays = delays_;
  out.flows = flows_;
  cpu_s_ += static_cast<double>(ThreadCpuNs() - before_ns) / 1e9;
  out.loop_cpu_s = cpu_s_;
  return out;
}

}  // namespace cw::agent
