// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/tcx_query.h"

#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

namespace cw::dataplane {
namespace {

// The part of union bpf_attr for BPF_PROG_QUERY, as Linux 6.6 has it.
struct QueryAttr {
  uint32_t target_ifindex;
  uint32_t attach_type;
  uint32_t query_flags;
  uint32_t attach_flags;
  uint64_t prog_ids;
  uint32_t count;
  uint32_t unused;
  uint64_t prog_attach_flags;
  uint64_t link_ids;
  uint64_t link_attach_flags;
  uint64_t revision;
};
static_assert(offsetof(QueryAttr, link_ids) == 40 && sizeof(QueryAttr) == 64);

}  // namespace

int QueryTcx(uint32_t ifindex, bool egress, std::vector<TcxProgram>* out) {
  out->clear();
  std::vector<uint32_t> programs(64), links(64);  // the kernel's limit (BPF_MPROG_MAX)
  QueryAttr attr = {};
  attr.target_ifindex = ifindex;
  attr.attach_type = egress ? kTcxEgress : kTcxIngress;
  attr.prog_ids = reinterpret_cast<uint64_t>(programs.data());
  attr.link_ids = reinterpret_cast<uint64_t>(links.data());
  attr.count = static_cast<uint32_t>(programs.size());
  if (syscall(SYS_bpf, BPF_PROG_QUERY, &attr, sizeof(attr)) != 0) return errno == ENOENT ? 0 : errno;
  for (size_t i = 0; i < std::min<size_t>(attr.count, programs.size()); ++i) out->push_back({programs[i], links[i]});
  return 0;
}

}  // namespace cw::dataplane
