// SPDX-License-Identifier: Apache-2.0
//
// NICs that are set unlike nearly all of their kind, which is their rail, or where rails are not told their name: a
// smaller MTU costs or drops packets, a link that came up with fewer lanes is slow. Of eight NICs or more 85 %
// have to agree; where a kind is mixed nothing is odd. Of 100 NICs
// and more each kind is one suspicion. Pure. Cost: linear in NICs. Any thread.
#pragma once

#include <vector>

#include "userspace/fleet/findings/ledger.h"
#include "userspace/fleet/findings/picture.h"

namespace cw::fleet {

// fresh: of each host, whether what it says counts.
std::vector<Suspicion> OddSettings(const Picture& picture, const std::vector<bool>& fresh);

}  // namespace cw::fleet
