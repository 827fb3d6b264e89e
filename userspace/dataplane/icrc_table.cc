// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/icrc_table.h"

#include <vector>

#include "bpf/icrc.h"

namespace cw::dataplane {

absl::Status FillIcrcTable(const maps::BpfMap& map) {
  std::vector<uint32_t> table(map.shape().max_entries);
  cw_icrc_pow_fill(table.data());
  for (uint32_t i = 0; i < table.size(); ++i) {
    if (auto s = map.Update(&i, &table[i]); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace cw::dataplane
