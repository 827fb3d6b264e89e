// SPDX-License-Identifier: Apache-2.0
//
// What the first attach of programs costs a device's traffic. Any thread; the device is of the calling thread's network
// namespace. What may not be asked counts as "nothing".
#pragma once

#include <cstdint>
#include <string>

namespace cw::dataplane {

// A kernel without tcx links (before Linux 6.6), and no clsact on the device: adding it drops packets that are queued.
bool NeedsClsact(uint32_t ifindex);

// "adds clsact", "brings the first XDP program, for which drivers may open their queues anew"; "": nothing.
std::string WhatFirstAttachDoes(uint32_t ifindex);

}  // namespace cw::dataplane
