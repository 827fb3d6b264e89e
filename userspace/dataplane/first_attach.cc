// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/first_attach.h"

#include <bpf/libbpf.h>
#include <linux/if_link.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "userspace/dataplane/qdiscs.h"
#include "userspace/dataplane/tcx_query.h"

namespace cw::dataplane {

bool NeedsClsact(uint32_t ifindex) {
  std::vector<TcxProgram> programs;
  if (ifindex == 0 || QueryTcx(ifindex, true, &programs) != EINVAL) return false;
  const auto qdiscs = QdiscsOf(ifindex);
  return qdiscs.ok() &&
         std::none_of(qdiscs->begin(), qdiscs->end(), [](const Qdisc& qdisc) { return qdisc.kind == "clsact"; });
}

std::string WhatFirstAttachDoes(uint32_t ifindex) {
  if (NeedsClsact(ifindex)) return "adds clsact, which drops packets that are queued";
  LIBBPF_OPTS(bpf_xdp_query_opts, options);
  if (bpf_xdp_query(static_cast<int>(ifindex), 0, &options) != 0 || options.attach_mode != XDP_ATTACHED_NONE) return "";
  return "brings the first XDP program, for which drivers may open their queues anew";
}

}  // namespace cw::dataplane
