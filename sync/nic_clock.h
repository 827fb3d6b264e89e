// SPDX-License-Identifier: Apache-2.0
//
// A NIC's own clock as a node tied to its host, by cross-stamps: host, NIC, host again, as PTP_SYS_OFFSET_EXTENDED
// gives them.
//
// How: the middle of each read is a measurement of the offset. How far it may be off has two parts, both learned: noise
// that all reads have, and a share of what a read took longer than the fastest ones (a read may be held up before or
// after the NIC looks at its clock). If it is always held up on the same side, that shows as well, and is taken off. So
// noise without a floor is averaged, and where short reads are exact they decide. Offset, rate and that asymmetry (or
// none) are followed by a few Kalman filters that expect rates to wander between hardly and wildly; each counts as well
// as it has predicted the reads lately. Outliers are weighed down (Huber).
//
// Errors: error_est assumes that the fastest reads are as long on both sides. bound assumes only that the NIC looked at
// its clock during the read, and |drift| ≤ max_drift_ppb; it does not hold between a step and its discovery.
//
// Pure; one thread per object; 1.1 KiB and 0.3 µs per read. Sources: R. E. Kalman, "A new approach to linear filtering
// and prediction problems", 1960; D. T. Magill, "Optimal adaptive estimation of sampled stochastic processes", IEEE TAC
// 10(4), 1965 (several models at once); P. J. Huber, "Robust statistics", 1981; the asymmetry of jitter: chrony.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "sync/pair_estimator.h"

namespace cw::sync {

struct CrossStamp {
  int64_t before_ns = 0;  // of the host's clock
  int64_t nic_ns = 0;
  int64_t after_ns = 0;
};

// Where cross-stamps come from: a PTP device, a cycle counter, a simulation.
class NicClock {
 public:
  virtual ~NicClock() = default;
  virtual std::optional<CrossStamp> Read() = 0;  // nullopt: this time the NIC did not answer
};

struct TieOptions {
  int64_t fresh_ns = 1'000'000'000;  // a read that is older is not fresh
  double max_slope_ppb = 300'000;    // of the two clocks against each other, at first
  double max_drift_ppb = 200'000;    // for the bound: how fast the offset may really change
  int64_t step_ns = 10'000;          // a jump beyond this is a step: a new epoch
};

class NicTie {
 public:
  explicit NicTie(const TieOptions& options = {}) : options_(options) {}

  void Add(const CrossStamp& read);    // ten per second suit
  Estimate At(int64_t host_ns) const;  // NIC − host
  // By the line of the newest read.
  int64_t ToHostNs(int64_t nic_ns) const;
  int64_t ToNicNs(int64_t host_ns) const { return host_ns + OffsetAt(host_ns); }

 private:
  static constexpr std::array<double, 5> kWanderPpb{0.3, 2.4, 19, 150, 1200};     // of a rate, per √s
  static constexpr size_t kWanders = kWanderPpb.size(), kFilters = 2 * kWanders;  // without and with an asymmetry

  struct Filter {
    double offset_ns = 0, slope_ppb = 0, asymmetry = 0;  // asymmetry: of the excess, so much is error
    // Variances and covariances of the three.
    double oo = 0, os = 0, oa = 0, ss = 0, sa = 0, aa = 0;
    double log_weight = 0;  // of what it predicted

    void Predict(double passed_s, double wander_ppb);
    double Innovation(double offset, double excess) const { return offset - offset_ns - asymmetry * excess; }
    double VarianceNs2(double excess) const { return oo + 2 * excess * oa + excess * excess * aa; }
    void Update(double innovation, double excess, double noise_ns2);
    double OffsetVarianceNs2(double ahead_s, double wander_ppb) const;
  };

  struct Seen {
    int64_t x_ns = 0;
    double offset_ns = 0, excess_ns = 0;
  };

  // What reads are off by, at an excess: still_ns2 + share · (excess / 2)². A fading regression of the squares by which
  // reads lie off the line through their neighbours: that shows no crystal, only noise.
  struct Noise {
    double still_ns2 = 0, share = 1;
    double n = 0, g = 0, gg = 0, y = 0, yg = 0;
    std::array<Seen, 2> last{};  // newest first
    int seen = 0, skip = 2;

    double Of(double excess) const { return still_ns2 + share * excess * excess / 4; }
    void Begin(double width_ns);
    void Learn(const Seen& read, double asymmetry);
  };

  void Begin(const CrossStamp& read, bool step);
  void Anchor(double offset_ns, double slope_variance);
  bool Contradicts(const CrossStamp& read, double passed_s) const;
  bool Jumped(double innovation, double sd, double passed_s, double offset_ns);
  double Excess(int64_t x_ns, double width_ns);
  void Follow(double offset_ns, double excess);
  void Revive(size_t from);
  void Mix();
  int64_t OffsetAt(int64_t host_ns) const;

  TieOptions options_;
  std::array<Filter, kFilters> filters_;
  std::array<double, kFilters> shares_{};
  Noise noise_;
  bool valid_ = false;
  uint32_t epoch_ = 0;
  int64_t base_ns_ = 0;              // offsets are told from here
  int64_t began_ns_ = 0;             // the first read
  int64_t x_ns_ = 0;                 // the newest, by the host's clock
  double low_ns_ = 0, high_ns_ = 0;  // the offset lies between, at x_ns_
  double offset_ns_ = 0, slope_ppb_ = 0, asymmetry_ = 0;
  double shortest_ns_[2] = {};  // reads of this period and the one before
  int64_t period_ns_ = 0;       // when it began
  int off_ = 0;                 // reads in a row that the filters did not expect, above (+) or below (−)
  double off_for_s_ = 0;
};

}  // namespace cw::sync
