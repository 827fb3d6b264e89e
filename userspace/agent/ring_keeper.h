// SPDX-License-Identifier: Apache-2.0
//
// Writes the ring file, a record each second, and copies out of it what the fleet service asks for. A thread of its
// own: the agent's loop waits for no disk. A host whose ring cannot be written works on without one, and says so once.
//
// Threads: Take, Begin and Next from any; one makes and destroys it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "userspace/config/config.h"
#include "userspace/uplink/ring.h"
#include "userspace/uplink/ring_answers.h"
#include "userspace/uplink/ring_second.h"

namespace cw::agent {

class Agent;

class RingKeeper {
 public:
  struct Asks {
    std::function<uint64_t()> bound_ns;            // of the clock that records are stamped by
    std::function<void(const std::string&)> tell;  // what people should know
    std::function<void()> wake;                    // Next may have something
  };

  // `agent` outlives it. `told`: events up to this one are not of it. Errors: the ring's.
  static absl::StatusOr<std::unique_ptr<RingKeeper>> Start(const config::Config& config, Agent& agent, uint64_t run,
                                                           uint64_t told, Asks asks);
  ~RingKeeper();
  // No record is written and nobody is woken from then on.
  void Stop();

  void Take(const cwfabric::v1::RingAsk& ask);
  void Begin() { answers_.Begin(); }
  std::optional<cwfabric::v1::RingAnswer> Next() { return answers_.Next(); }

 private:
  RingKeeper(const config::Config& config, Agent& agent, uint64_t run, uint64_t told, Asks asks,
             std::unique_ptr<uplink::Ring> ring);
  void Run();
  void Write();

  Agent& agent_;
  const Asks asks_;
  const uint64_t run_;
  const std::unique_ptr<uplink::Ring> ring_;
  uplink::RingSeconds seconds_;
  uplink::RingAnswers answers_;
  uint64_t after_seq_ = 0;
  bool failed_ = false;  // it is told
  std::mutex mutex_;     // of what follows
  std::condition_variable news_;
  bool end_ = false, asked_ = false;
  std::thread thread_;
};

}  // namespace cw::agent
