// SPDX-License-Identifier: Apache-2.0
//
// Packets that the machine under the lab lost: a processor that is too busy drops what its backlog has no room for, on
// any link of any lab. Agents are right to call that loss, and no switch or host of the lab is to blame. Source: Linux,
// /proc/net/softnet_stat (a line per processor, hexadecimal; the second word: dropped). Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace cw::lab {

// The sum over all processors; lines that have no second word count nothing.
uint64_t DroppedBySoftnet(absl::string_view softnet_stat);
// Of this machine since it started; 0 where the kernel does not tell.
uint64_t MachineDrops();

// "" for none, else a sentence for the people who watch.
std::string MachineDropsText(uint64_t drops);

}  // namespace cw::lab
