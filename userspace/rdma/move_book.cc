// SPDX-License-Identifier: Apache-2.0
#include "userspace/rdma/move_book.h"

#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::rdma {

std::string ErrnoText(int error) {
  return absl::StrFormat("%s (errno %d)", std::generic_category().message(error), error);
}

bool OwnFailover(const QpInfo& qp) { return qp.owner && (qp.owner->can & CW_INPROC_OWN_FAILOVER) != 0; }

std::string CannotMove(const QpInfo& qp) {
  if (!qp.owner || !qp.owner->told_can) return "its library does not say that it can";
  const OwnerSums& owner = *qp.owner;
  if (OwnFailover(qp)) return "its process moves it by itself (NCCL_IB_RESILIENCY_PORT_FAILOVER)";
  if ((owner.can & CW_INPROC_OWN_LABEL) != 0) return "its application chose its port";
  if ((owner.can & CW_INPROC_CAN_MOVE_PORT) != 0) return "";
  if (owner.refused_errno != 0) return absl::StrCat("its device refuses: ", ErrnoText(owner.refused_errno));
  return "its provider has no call for it";
}

const char* MoveWhyName(MoveWhy why) {
  switch (why) {
    case MoveWhy::kDead:
      return "dead";
    case MoveWhy::kLossy:
      return "lossy";
    case MoveWhy::kOperator:
      return "operator";
    case MoveWhy::kDrained:
      return "drained";
    case MoveWhy::kDrainOver:
      return "drain over";
    case MoveWhy::kRecovered:
      return "recovered";
  }
  return "";
}

bool LeavesBadPath(MoveWhy why) { return why == MoveWhy::kDead || why == MoveWhy::kLossy; }

MoveOrder MoveBook::Ask(const QpInfo& qp, uint16_t port, uint8_t lag_port, MoveWhy why, int64_t now_ns) {
  if (++last_request_ == 0) ++last_request_;
  entries_[KeyOf(qp)].asked = {.request = last_request_,
                               .from_port = qp.udp_sport,
                               .port = port,
                               .lag_port = lag_port,
                               .at_ns = now_ns,
                               .why = why};
  return {.laddr = qp.laddr,
          .lqpn = qp.lqpn,
          .pid = qp.pid,
          .request = last_request_,
          .udp_sport = port,
          .lag_port = lag_port};
}

void MoveBook::SetManual(const QpInfo& qp, bool manual) {
  Entry& entry = entries_[KeyOf(qp)];
  if (manual && !entry.manual) entry.before_manual = PortOf(qp);
  entry.manual = manual;
}

void MoveBook::Unsent(const QpInfo& qp, uint32_t request) {
  const auto entry = entries_.find(KeyOf(qp));
  if (entry == entries_.end() || !entry->second.asked || entry->second.asked->request != request) return;
  entry->second.asked.reset();
  ++counts_.unanswered;
}

std::optional<MoveBook::Asked> MoveBook::Answered(const QpInfo& qp, const MoveResult& result) {
  const auto found = entries_.find(KeyOf(qp));
  if (found == entries_.end() || !found->second.asked || found->second.asked->request != result.request)
    return std::nullopt;
  Entry& entry = found->second;
  const Asked asked = *entry.asked;
  entry.asked.reset();
  if (result.error == 0) {
    ++entry.done;
    ++counts_.done;
    entry.refused_in_row = 0;
  } else {
    ++entry.refused;
    ++counts_.refused;
    ++entry.refused_in_row;
    entry.last_error = result.error;
  }
  return asked;
}

void MoveBook::ExpireOverdue(int64_t now_ns) {
  for (auto& [key, entry] : entries_) {
    if (!entry.asked || now_ns - entry.asked->at_ns < kOverdueNs) continue;
    entry.asked.reset();
    ++entry.refused_in_row;
    ++counts_.unanswered;
  }
}

uint16_t MoveBook::PortOf(const QpInfo& qp) const {
  const auto entry = entries_.find(KeyOf(qp));
  const bool goes = entry != entries_.end() && entry->second.asked && entry->second.asked->port != 0;
  return goes ? entry->second.asked->port : qp.udp_sport;
}

bool MoveBook::MayAsk(const QpInfo& qp) const {
  const auto entry = entries_.find(KeyOf(qp));
  return entry == entries_.end() || (!entry->second.asked && entry->second.refused_in_row < kRefusals);
}

MoveBook::Entry MoveBook::Of(const QpInfo& qp) const {
  const auto entry = entries_.find(KeyOf(qp));
  return entry == entries_.end() ? Entry{} : entry->second;
}

}  // namespace cw::rdma
