// SPDX-License-Identifier: Apache-2.0
#include "userspace/rdma/qp_claim.h"

namespace cw::rdma {

Claim Judge(const QpInfo& claimed, const KernelWord& word) {
  if (!word.asked) return Claim::kProven;
  if (!word.there || word.by_kernel) return Claim::kFalse;
  if (word.pid != 0 && word.pid != claimed.pid) return Claim::kFalse;
  if (word.rqpn != 0 && word.rqpn != claimed.rqpn) return Claim::kFalse;
  return word.pid != 0 && word.rqpn != 0 ? Claim::kProven : Claim::kOpen;
}

bool FromKernel(const QpInfo& qp) { return qp.source == "nldev" || qp.source == "hook"; }

bool IsProven(const QpInfo& qp) { return qp.proven || FromKernel(qp); }

}  // namespace cw::rdma
