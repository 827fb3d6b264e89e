// SPDX-License-Identifier: Apache-2.0
//
// The name of a list of hops: a host sends a list once and its name from then on. FNV-1a over the addresses (Fowler,
// Noll, Vo; 64 bits), 16 bytes each, a silent hop as zeros, and never 0, which stands for "not known". Names are
// compared within one host only, so whoever makes two lists of one name by intent fools only himself. Pure; any thread.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "userspace/model/addr.h"

namespace cw {

uint64_t HopsId(absl::Span<const Addr> hops);

}  // namespace cw
