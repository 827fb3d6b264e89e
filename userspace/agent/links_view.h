// SPDX-License-Identifier: Apache-2.0
//
// Links as this host's paths show them. Pure; any thread.
#pragma once

#include <cstdint>

#include "userspace/api/cwfabric.pb.h"

namespace cw::agent {

// paths: of all pairs. window_s: 1, 10 or 60.
cwfabric::v1::LinksReply MakeLinks(const cwfabric::v1::PathsReply& paths, uint32_t window_s);

}  // namespace cw::agent
