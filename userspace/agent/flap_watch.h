// SPDX-License-Identifier: Apache-2.0
//
// What the agent keeps of links that go down. Thread rule: the agent's loop.
#pragma once

#include "userspace/control/gone_links.h"
#include "userspace/control/link_blame.h"
#include "userspace/control/link_book.h"

namespace cw::agent {

struct FlapWatch {
  control::LinkBlame blame;
  control::LinkBook book;
  control::GoneLinks gone;
  bool ticking = false;
  bool kept = true;  // in its file
};

}  // namespace cw::agent
