// SPDX-License-Identifier: Apache-2.0
//
// Keys live in this process's memory, some of them in libraries' buffers: so none of it is ever written to disk.
#pragma once

namespace cw::agent {

// From now on this process makes no core dump, and no other process of its user may read its memory (prctl(2),
// PR_SET_DUMPABLE); root still can. Before threads.
void NoMemoryDumps();

}  // namespace cw::agent
