// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/icrc_table.h"

#include <vector>

#include "bpf/icrc.h"

namespace cw::dataplane {

std::string IcrcTableBytes() {
  std::vector<__u32> table(CW_ICRC_POWS);
  cw_icrc_pow_fill(table.data());
  return std::string(reinterpret_cast<const char*>(table.data()), table.size() * sizeof(table[0]));
}

}  // namespace cw::dataplane
