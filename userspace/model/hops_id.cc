// SPDX-License-Identifier: Apache-2.0
#include "userspace/model/hops_id.h"

namespace cw {

uint64_t HopsId(absl::Span<const Addr> hops) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const Addr& hop : hops) {
    for (const uint8_t byte : hop.bytes) hash = (hash ^ byte) * 0x100000001b3;
  }
  return hash == 0 ? 1 : hash;
}

}  // namespace cw
