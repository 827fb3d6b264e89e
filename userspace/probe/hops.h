// SPDX-License-Identifier: Apache-2.0
//
// Comparing the hops of ports. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "userspace/model/addr.h"

namespace cw::probe {

// Hops by TTL − 1; a zero address: no answer. Trailing silence is cut off: it is the destination, which never answers a
// trace, or switches that do not answer.
using Hops = std::vector<Addr>;

Hops TrimSilence(Hops hops);
bool HasGap(const Hops& hops);                         // a hop in between did not answer, or none did
bool Conflict(const Hops& before, const Hops& after);  // an answer that cannot belong to the same path

// Each port's hops, completed where that is certain: hops that end early (the last switch's answer was lost) and begin
// exactly one longer path are taken for that path. Ports that stay uncertain (a gap, or the beginning of several paths)
// are absent.
std::map<uint16_t, Hops> CertainHops(const std::map<uint16_t, Hops>& traced);

// "10.0.0.1 10.1.2.0 *": for logs and people.
std::string HopsToString(const Hops& hops);

}  // namespace cw::probe
