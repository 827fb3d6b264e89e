// SPDX-License-Identifier: Apache-2.0
// What jobs_test tells its rank processes, one packet each over the socket that is their standard input.
#pragma once

#include <cstdint>

namespace cw::lab {

enum class RankOrder : uint32_t {
  kBegin = 1,     // a collective: each channel posts its first request
  kComplete = 2,  // the channel's request is complete; it posts the next
  kFinish = 3,    // the channel's last request is complete
  kEnd = 4,       // of the collective, with whatever is open of it
};

struct RankMessage {
  RankOrder order = RankOrder::kBegin;
  uint32_t seq = 0;
  uint32_t channel = 0;
};

// What a rank tells of each post (a sender) and completion (a receiver): when it told the plug-in, CLOCK_MONOTONIC.
struct RankStamp {
  uint32_t channel = 0;
  uint32_t number = 0;  // in the collective
  int64_t before_ns = 0;
  int64_t after_ns = 0;
};

constexpr int kRankChannels = 2;

}  // namespace cw::lab
