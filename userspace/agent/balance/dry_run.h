// SPDX-License-Identifier: Apache-2.0
//
// What was decided and not done, with what it cost, for cwctl report (userspace/report/item.h). Alike decisions are
// merged; deaths are not, because each has a harm of its own, which is known when the path answers again.
// Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_names.h"
#include "userspace/control/contention.h"
#include "userspace/model/clock.h"
#include "userspace/probe/discovery.h"
#include "userspace/probe/mesh.h"
#include "userspace/rdma/qp_registry.h"
#include "userspace/report/item.h"
#include "userspace/report/writer.h"

namespace cw::agent {

class DryRun {
 public:
  struct Asks {
    std::function<const probe::Hops*(uint32_t pair, uint8_t slot)> hops;  // nullptr: no path there, or not traced
    std::function<bool()> acts;  // packets are rewritten, in any mode that acts
  };

  // All of them outlive it. Nothing is written before Open.
  DryRun(const PairTable& pairs, const FlowBook& flows, const rdma::QpRegistry& qps, const probe::Mesh& mesh,
         const PeerNames& names, const Clock& monotonic, EventSink& events, Asks asks)
      : pairs_(pairs),
        flows_(flows),
        qps_(qps),
        mesh_(mesh),
        names_(names),
        monotonic_(monotonic),
        events_(events),
        asks_(std::move(asks)) {}

  void Open(const std::string& file, uint64_t most_bytes);  // "": not wanted. Why it cannot be had is an event
  // Of the recording: when the file was begun, and the number of the window that is decided now or next.
  void SetWindow(std::pair<int64_t, int64_t> window) { window_ = window; }

  // slots: -1 is none. The caller adds its sentence and evidence, and tells it.
  report::Item ItemOf(const FlowKey& flow, const char* kind, int slot, int to_slot) const;
  void Tell(report::Item item);
  void TellOfPair(const PairKey& pair, const char* kind, const std::string& text);  // it is about all of its flows
  void TellMove(const cw_ev_move& move, const Evidence& evidence);                  // that the kernel would have made
  void TellMove(const control::Move& move);                                         // for balance
  // Flows of a path that would be left, because it loses a share more than others.
  void TellLoss(const PairState& pair, uint8_t slot, double share, const Evidence& evidence);
  // The path answers again: for how long the flows on it stood is known.
  void EndDeaths(uint32_t pair, uint8_t slot);
  void ExpireDeaths() { EndDeaths(UINT32_MAX, CW_SLOT_NONE); }  // once a second

 private:
  struct Death {  // of a path, to a flow on it, whose harm is not known yet
    report::Item item;
    int64_t begun_ns;  // of monotonic_
  };

  std::vector<std::string> LinksOf(const PairState& pair, uint8_t slot) const;
  void Write(const report::Item& item);

  const PairTable& pairs_;
  const FlowBook& flows_;
  const rdma::QpRegistry& qps_;
  const probe::Mesh& mesh_;
  const PeerNames& names_;
  const Clock& monotonic_;
  EventSink& events_;
  const Asks asks_;

  std::unique_ptr<report::Writer> writer_;  // null: not wanted
  std::vector<Death> open_;
  absl::flat_hash_map<std::string, report::Repeats> repeats_;  // by kind, flow and path
  std::pair<int64_t, int64_t> window_ = {0, -1};
};

}  // namespace cw::agent
