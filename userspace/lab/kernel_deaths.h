// SPDX-License-Identifier: Apache-2.0
//
// What the kernel called dead, whether anybody was told of it or not: the agent asks before it tells, and an agent that
// is stopped or killed tells nothing, while its programs go on and move flows. Read from the maps that programs and
// agents share. They stay when an agent is killed, and the next one takes them over, so counts never go back.
//
// Two sources are held against each other: the counters slots_died and slots_revived, which are exact in their sum, and
// the deaths of each path slot, looked at every millisecond, which say which path it was. A death that no look
// explains (the slot was given to another path before the next one) is untraced.
//
// Thread-safe after Start; a thread of its own looks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/lab/fabric.h"
#include "userspace/lab/standstill.h"

namespace cw::lab {

// One path slot at one look.
struct SlotLook {
  uint16_t port = 0;    // 0: not in use
  uint32_t deaths = 0;  // since it was given to its path
};

struct SlotDeaths {
  uint16_t port = 0;  // of the path that died
  uint32_t times = 0;
};
// What died between two looks. A slot that was given up still tells of its last path; another port, or fewer deaths, is
// another path, which counts from nothing. Pure.
SlotDeaths DeathsBetween(const SlotLook& before, const SlotLook& now);

// What the maps said of a death at the look that saw it.
struct DeathScene {
  double behind_ms = 0;        // the path's last arrival before the newest one on any path of the pair, peer's clock
  double data_age_ms = -1;     // since data sent on the path was last acknowledged; −1: never was
  double reply_age_ms = 0;     // since the pair's last reply: what of the look was late
  double prober_still_ms = 0;  // the longest that this host sent no probes to the peer, within kSceneNs before …
  double peer_still_ms = 0;    // … and the peer none to this host
  uint32_t jump_us = 0;        // the path's largest jump of the delay in the recent past
};
constexpr int64_t kSceneNs = 30'000'000;
std::string SceneText(const DeathScene& scene);

struct KernelDeath {
  int64_t at_ns = 0;          // CLOCK_MONOTONIC of the look that saw it: late by a period at most
  int host = 0;               // whose kernel it is
  std::string local, remote;  // addresses of the two NICs
  int slot = 0;
  uint16_t udp_port = 0;
  uint32_t times = 1;  // between two looks
  DeathScene scene;
};

struct KernelCounts {
  // Of all hosts, since Start.
  uint64_t died = 0, revived = 0;  // path slots
  uint64_t moves_blind = 0;        // flows that left a path for want of answers while nobody probed
};

class KernelDeaths {
 public:
  // All of the fabric's hosts must have an agent by now. NotFound: one has no maps.
  static absl::StatusOr<std::unique_ptr<KernelDeaths>> Start(const Fabric& fabric,
                                                             absl::Duration period = absl::Milliseconds(1));
  ~KernelDeaths();

  // FailedPrecondition: an agent made its maps anew, so what was counted before is lost.
  absl::StatusOr<KernelCounts> Counted() const;
  // Since Start, in the order of the looks. Looks once more before it answers.
  std::vector<KernelDeath> Seen();

 private:
  struct Host;
  KernelDeaths();
  void Look();
  DeathScene SceneOf(const Host& host, uint32_t index, size_t slot, int64_t now_ns) const;

  std::vector<std::unique_ptr<Host>> hosts_;
  std::mutex mutex_;
  std::vector<KernelDeath> seen_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace cw::lab
