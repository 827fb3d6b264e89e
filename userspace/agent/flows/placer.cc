// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/flows/placer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "bpf/turn.h"
#include "userspace/rdma/placement.h"

namespace cw::agent {
namespace {

// Among paths that are equally taken, the order in which the kernel's program takes them (cw_next_slot in bpf/steer.h):
// hosts with neighbouring addresses begin next to each other, and each takes all before any again.
uint32_t FirstTaken(const Addr& local, uint32_t turn, size_t paths) {
  const auto n = static_cast<uint32_t>(paths);
  return n < 2 ? 0 : local.bytes[15] + cw_turn_offset(turn % n, n);
}

std::string LoadText(const std::vector<rdma::PathLoad>& loads) {
  std::string text;
  for (const rdma::PathLoad& load : loads)
    absl::StrAppendFormat(&text, "%spath %d: %d", text.empty() ? "" : ", ", load.slot, load.queue_pairs);
  return text;
}

}  // namespace

// For a path. RDMA netlink decides where it knows whose the queue pair is. Where nobody knows (also: the thread that
// made it has ended), nobody but root is believed.
bool Placer::Owns(const rdma::QpInfo& qp, const rdma::Requester& who) const {
  const rdma::KernelWord word = asks_.word_on(qp);
  if (word.by_kernel) return false;
  const uint32_t pid = word.pid != 0 || !word.there ? word.pid : qps_.PidByKernel({qp.laddr, qp.lqpn});
  return pid != 0 ? pid == who.pid : who.uid == 0;
}

rdma::Placement Placer::Choose(const rdma::QpInfo& qp, const rdma::Requester& who) {
  const std::optional<uint32_t> index = mesh_.Find({qp.laddr, qp.raddr});
  const Allow allow = asks_.allowed(index.value_or(CW_PAIR_NONE), qp);
  if (allow == Allow::kOff) return {.verdict = CW_INPROC_NOT_ACTING};
  const PairState* pair = index ? FindIn(pairs_, *index) : nullptr;
  if (pair == nullptr || !pair->table_seen || pair->blind || !asks_.paths_known(*index))
    return {.verdict = CW_INPROC_NO_PATHS};
  const auto nic =
      std::find_if(nics_.begin(), nics_.end(), [&](const NicState& n) { return n.ifindex == pair->ifindex; });
  if (nic == nics_.end()) return {.verdict = CW_INPROC_NO_PATHS};
  if (nic->attached && asks_.assigns()) return {.verdict = CW_INPROC_BY_KERNEL};
  if (!Owns(qp, who)) return {.verdict = CW_INPROC_NOT_YOURS};
  const std::vector<rdma::PathLoad> loads = owners_.Loads(*pair, qp, pair->blocked);
  const rdma::PathLoad* path = rdma::LeastLoaded(loads, FirstTaken(pair->key.local, turn_, loads.size()));
  if (path == nullptr) return {.verdict = CW_INPROC_NO_PATHS};
  const bool acts = allow == Allow::kAct;
  events_.Log(
      {.type = "place",
       .text = absl::StrFormat("queue pair 0x%x of process %d to %s %s on path %d, udp-port %d", qp.lqpn, who.pid,
                               pair->peer, acts ? "is put" : "would have been put", path->slot, path->port),
       .flow = FlowKey{.src = qp.laddr, .dst = qp.raddr, .dqpn = qp.rqpn}.Id().ToString(),
       .peer = pair->peer,
       .to_slot = path->slot,
       .dry = !acts,
       .evidence = {{"queue_pairs", LoadText(loads)}}});
  if (!acts) return {.verdict = CW_INPROC_NOT_ACTING};
  if (loads.size() > 1) ++turn_;
  return {.verdict = CW_INPROC_PLACED,
          .flow_label = *rdma::LabelOfPort(path->port),
          .udp_sport = path->port,
          .slot = path->slot};
}

rdma::Placement Placer::Place(const rdma::QpInfo& qp, const rdma::Requester& who) {
  const rdma::Placement placement = Choose(qp, who);
  ++answered_[placement.verdict];
  return placement;
}

void Placer::TellCounts(const CounterSink& add) const {
  const auto count = [&](cw_inproc_verdict verdict) {
    const auto it = answered_.find(verdict);
    return it == answered_.end() ? uint64_t{0} : it->second;
  };
  add("qps_placed", count(CW_INPROC_PLACED), "queue pairs put on a path while they connected (libcwverbs)");
  add("qps_not_acting", count(CW_INPROC_NOT_ACTING), "queue pairs that asked for a path in a mode that does not act");
  add("qps_no_paths", count(CW_INPROC_NO_PATHS), "queue pairs that asked for a path to an address without known paths");
  add("qps_not_owned", count(CW_INPROC_NOT_YOURS), "queue pairs refused a path: not the asking process's");
  add("qps_left_to_kernel", count(CW_INPROC_BY_KERNEL),
      "queue pairs that asked for a path where the kernel's program puts new flows on paths");
  add("qps_moved_by_owner", owners_.book().counts().done,
      "moves of connected queue pairs that their owners' libraries made");
  add("qps_moves_refused", owners_.book().counts().refused, "moves that the libraries or their devices refused");
  add("qps_moves_unanswered", owners_.book().counts().unanswered,
      "moves that could not be asked for, or were not answered");
}

}  // namespace cw::agent
