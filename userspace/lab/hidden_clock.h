// SPDX-License-Identifier: Apache-2.0
//
// A lab host's clock with a known error: an offset and a piecewise constant drift, applied alike to the time that the
// BPF programs read (bpf/clock.h, map cw_lab_clock) and to the agent's. Only cwlab-agentd has it; the agent itself sees
// a cw::Clock and cannot tell. The true error is then known exactly.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "maps/abi.h"
#include "sync/nic_clock.h"
#include "userspace/model/clock.h"

namespace cw::lab {

struct HiddenClockSpec {
  int64_t offset_ns = 0;
  double drift_ppm = 0;   // the first segment's drift; each other's is drawn from [-|drift_ppm|, |drift_ppm|] …
  double wander_ppm = 0;  // … or, above 0, differs from the one before by at most so much: a crystal in a machine room
  double segment_s = 10;  // length of a segment; the last of them goes on for ever
  int64_t step_ns = 0;    // by which the clock is set at the beginning of its second segment
  uint32_t seed = 1;
  // Something disciplines the host's kernel clock, so that it may be an anchor: CLOCK_TAI − CLOCK_MONOTONIC as it reads
  // it. nullopt: as the machine's own.
  std::optional<int64_t> tai_less_monotonic_ns;
};

// A simulated NIC's own clock, and what reads of it are like.
struct NicClockSpec {
  HiddenClockSpec clock;
  double read_ns = 800;    // a read takes so long …
  double jitter_ns = 100;  // … plus an exponential so long on average, on either side of the NIC's look
  double noise_ns = 5;     // root mean square: of what the NIC says
};

// start_ns: true time (CLOCK_MONOTONIC) of the first segment's beginning.
cw_lab_clock MakeHiddenClock(const HiddenClockSpec& spec, uint64_t start_ns);

// Where the clock of an agent's instance is pinned.
std::string HiddenClockPin(const std::string& instance);
std::string NicClockPin(const std::string& instance);  // … and that of its NICs

// hidden − true time, at true time true_ns. The same function as in BPF (bpf/clock.h).
int64_t HiddenClockError(const cw_lab_clock& clock, uint64_t true_ns);

// Any thread.
class HiddenClock final : public Clock {
 public:
  explicit HiddenClock(const cw_lab_clock& clock) : clock_(clock) {}
  int64_t NowNs() const override;
  int64_t AtNs(int64_t monotonic_ns) const override;

 private:
  cw_lab_clock clock_;
};

// The clock of a simulated NIC, as its host reads it: the same clock that stamps what arrives (map cw_lab_nic).
class SimulatedNicClock final : public sync::NicClock {
 public:
  SimulatedNicClock(const cw_lab_clock& nic, const NicClockSpec& spec, std::shared_ptr<const Clock> local)
      : nic_(nic), spec_(spec), local_(std::move(local)), random_(spec.clock.seed) {}
  std::optional<sync::CrossStamp> Read() override;

 private:
  const cw_lab_clock nic_;
  const NicClockSpec spec_;
  const std::shared_ptr<const Clock> local_;
  std::mt19937 random_;
};

}  // namespace cw::lab
