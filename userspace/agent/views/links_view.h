// SPDX-License-Identifier: Apache-2.0
//
// Links as this host's paths show them. Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "userspace/api/cwfabric.pb.h"
#include "userspace/control/gone_links.h"
#include "userspace/control/link_book.h"

namespace cw::agent {

// What paths of this moment do not show.
struct LinkPast {
  struct Gone {
    control::GoneLink link;
    double ago_s = 0;
  };
  std::map<std::string, control::FlapCount> by_end;  // the address where a link ends
  std::map<std::string, control::FlapCount> own;     // this host's own links, by their NICs' addresses
  std::vector<Gone> gone;                            // that paths left; some may be in use again
};

// paths: of all pairs. window_s: 1, 10 or 60.
cwfabric::v1::LinksReply MakeLinks(const cwfabric::v1::PathsReply& paths, uint32_t window_s, const LinkPast& past = {});

}  // namespace cw::agent
