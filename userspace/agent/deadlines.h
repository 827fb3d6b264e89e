// SPDX-License-Identifier: Apache-2.0
//
// What operators set for a while; a room of its own, since cwctl without an agent ends it, too.
#pragma once

#include "userspace/deadlines/deadlines.h"

namespace cw::agent {

using deadlines::Deadlines;
using deadlines::EndNs;

}  // namespace cw::agent
