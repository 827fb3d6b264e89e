// SPDX-License-Identifier: Apache-2.0
//
// What held a collective back, from the time its operations waited in each state on this host. Pure.
//
// A ring's step waits for the GPU, then for the receiver's room, then for the network. On the rank whose link is slow
// the network dominates; behind it everybody waits for what has not come, before it everybody for room; and a GPU that
// waits for what has not come has nothing to send either. So "the GPU" is said only where nothing that should come is
// missing.
#pragma once

#include <cstdint>
#include <string>

#include "userspace/profile/book.h"

namespace cw::profile {

enum class Held : uint8_t { kNothing, kNetwork, kReceiver, kSender, kGpu };

struct Verdict {
  Held held = Held::kNothing;
  int peer = -1;  // rank concerned
  uint32_t channel = 0;
  uint32_t qpn = 0;        // local; 0: none known
  double share = 0;        // of the time that the operations of that direction waited
  double wait_ns = 0;      // of the operation concerned
  const char* state = "";  // that it waited in
};

const char* StateName(uint32_t state);  // NCCL's word: SendWait, …
Verdict Judge(const Collective& coll);
// One sentence; place: what is known of the queue pair, "" = nothing.
std::string Sentence(const Verdict& verdict, const std::string& place);

}  // namespace cw::profile
