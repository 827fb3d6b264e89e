// SPDX-License-Identifier: Apache-2.0
//
// A rank whose collective waits: this process drives the NCCL profiler plug-in as a training would that has posted its
// sends on these queue pairs, until the object goes. So an agent knows that somebody waits for what they carry.
//
// Errors are Status. Thread rule: one thread; one at a time, since the plug-in reads its environment when it is loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

struct cw_nccl_profiler;

namespace cw::lab {

struct WaitingRankSpec {
  std::string socket;          // the agent's inproc.sock
  std::string job;             // label
  std::vector<uint32_t> qpns;  // local ones that it sends on
  std::string plugin;          // its file; "": as built or installed with this program
};

class WaitingRank {
 public:
  static absl::StatusOr<std::unique_ptr<WaitingRank>> Start(const WaitingRankSpec& spec);
  ~WaitingRank();

 private:
  explicit WaitingRank(cw_nccl_profiler& table) : table_(table) {}
  absl::Status Begin(absl::Span<const uint32_t> qpns);
  void Post(void* collective, int channel, uint32_t qpn);

  cw_nccl_profiler& table_;
  void* context_ = nullptr;
  std::vector<void*> open_;  // to be stopped, newest last
};

}  // namespace cw::lab
