// SPDX-License-Identifier: Apache-2.0
//
// A direction of a link, by which all hosts and the fleet service know it: a pair's index and a slot never leave a
// host. Value type; any thread.
#pragma once

#include <utility>

#include "userspace/model/addr.h"

namespace cw {

// {address of the port before, address of the port at its end}; the same over all hosts.
using LinkId = std::pair<Addr, Addr>;

}  // namespace cw
