// SPDX-License-Identifier: Apache-2.0
#include "userspace/profile/verdict.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::profile {
namespace {

struct Sum {
  double total = 0;
  Waits by_state{};
};

Sum SumOf(const Collective& coll, bool send) {
  Sum sum;
  for (const Op& op : coll.ops) {
    if (op.send != send) continue;
    for (size_t i = 1; i < CW_WAIT_STATES; ++i) {
      sum.by_state[i] += op.wait_ns[i];
      sum.total += op.wait_ns[i];
    }
  }
  return sum;
}

// The queue pair that had the network's part for longest: what is under way counts with its age.
uint32_t SlowestQp(const Op& op) {
  uint32_t qpn = 0;
  double most = -1;
  for (const Qp& qp : op.qps) {
    const double each = qp.requests > 0 ? qp.wire_ns / static_cast<double>(qp.requests) : 0;
    const double ns = std::max(each, qp.open_ns);
    if (ns > most) {
      most = ns;
      qpn = qp.qpn;
    }
  }
  return qpn;
}

Verdict Of(const Collective& coll, Held held, bool send, uint32_t state, const Sum& sum) {
  Verdict verdict{.held = held, .state = StateName(state)};
  verdict.share = sum.total > 0 ? sum.by_state[state] / sum.total : 0;
  const Op* worst = nullptr;
  for (const Op& op : coll.ops) {
    if (op.send == send && (worst == nullptr || op.wait_ns[state] > worst->wait_ns[state])) worst = &op;
  }
  if (worst == nullptr) return verdict;
  verdict.peer = worst->peer;
  verdict.channel = worst->channel;
  verdict.wait_ns = worst->wait_ns[state];
  if (held == Held::kNetwork) verdict.qpn = SlowestQp(*worst);
  return verdict;
}

}  // namespace

const char* StateName(uint32_t state) {
  static constexpr const char* kNames[] = {"",         "SendGPUWait",   "SendPeerWait", "SendWait",
                                           "RecvWait", "RecvFlushWait", "RecvGPUWait"};
  return state < std::size(kNames) ? kNames[state] : "";
}

Verdict Judge(const Collective& coll) {
  const Sum sent = SumOf(coll, true), received = SumOf(coll, false);
  const double network = sent.by_state[CW_WAIT_SEND], room = sent.by_state[CW_WAIT_SEND_PEER],
               gpu = sent.by_state[CW_WAIT_SEND_GPU];
  if (network > 0 && network >= room && network >= gpu) return Of(coll, Held::kNetwork, true, CW_WAIT_SEND, sent);
  if (room > 0 && room >= gpu) return Of(coll, Held::kReceiver, true, CW_WAIT_SEND_PEER, sent);
  const double missing = received.by_state[CW_WAIT_RECV];
  const double taken = received.by_state[CW_WAIT_RECV_FLUSH] + received.by_state[CW_WAIT_RECV_GPU];
  if (missing > 0 && missing >= taken) return Of(coll, Held::kSender, false, CW_WAIT_RECV, received);
  if (gpu > 0) return Of(coll, Held::kGpu, true, CW_WAIT_SEND_GPU, sent);
  if (taken > 0) return Of(coll, Held::kGpu, false, CW_WAIT_RECV_GPU, received);
  return {};
}

std::string Sentence(const Verdict& v, const std::string& place) {
  const std::string share = absl::StrFormat("%s %.0f %% of the time", v.state, 100 * v.share);
  switch (v.held) {
    case Held::kNothing:
      return "";
    case Held::kNetwork:
      return absl::StrCat("the network to rank ", v.peer, ", channel ", v.channel,
                          v.qpn != 0 ? absl::StrFormat(", queue pair 0x%x", v.qpn) : "", place, ": ", share);
    case Held::kReceiver:
      return absl::StrCat("not the network from here: rank ", v.peer, " had no room for what is sent to it (", share,
                          "); ask its host");
    case Held::kSender:
      return absl::StrCat("rank ", v.peer, " sent nothing (", share, "); ask its host");
    case Held::kGpu:
      return absl::StrCat("not the network: the GPU ",
                          v.state == std::string(StateName(CW_WAIT_SEND_GPU)) ? "had nothing to send yet ("
                                                                              : "had not taken what came (",
                          share, ")");
  }
  return "";
}

}  // namespace cw::profile
