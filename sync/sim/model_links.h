// SPDX-License-Identifier: Apache-2.0
//
// Links without packets, for thousands of hosts: what an estimate is wrong by comes from a model whose figures were
// taken from packet_links.h with the production estimator (`cw_clock_sim --calibrate` prints them). Both ends share
// most of their error, because they share the points; its sign is opposite. One thread.
#pragma once

#include <vector>

#include "sync/sim/links.h"

namespace cw::sync::sim {

// What the estimator makes of a link at one load.
struct LinkFigures {
  double load;
  double error_ns;      // standard deviation of the offset's error
  double tau_s;         // its correlation time
  double slope_ppb;     // standard deviation of the slope's error
  double est_ns;        // median of error_est
  double over_ns;       // bound beyond half the fastest round trip, median
  double start_s;       // from the first probe to "synchronised"
  double find_s;        // from a step to its discovery
  double lag_s2;        // error by a changing rate: this × ns/s²
  double young_ns;      // the offset's error half a second after the first probe …
  double young_ppb;     // … and the slope's
  double young_est_ns;  // error_est then
};
LinkFigures FiguresAt(double load, bool nic_stamps);
struct TieFigures {
  double error_ns;
  double tau_s;
};
TieFigures FiguresOfTie();

class ModelLinks : public Links {
 public:
  explicit ModelLinks(Fleet& fleet);
  void AdvanceTo(TrueNs) override {}
  Estimate View(uint32_t link, int end, TrueNs t) override;
  void Send(uint32_t, int, TrueNs) override {}
  void Forget(uint32_t host, TrueNs t) override;
  void Changed(TrueNs t) override;
  double NicErrorNs(uint32_t host, int nic, TrueNs t) override;

 private:
  struct End {
    TrueNs since = 0;      // measuring
    double offset_ns = 0;  // the last estimate: what a free-running one goes on with
    float slope_ppb = 0;
    float est_ns = 0, bound_ns = 0;
    TrueNs at = -1;  // of the last estimate; −1: none
  };
  struct ModelLink {
    End end[2];
    TrueNs at = 0;
    float noise = 0, slope_noise = 0;  // in standard deviations
    float half_asymmetry_ns = 0;
    bool connected = true;
  };
  struct Tie {
    float at_s = 0, noise = 0;
  };

  void AdvanceNoise(ModelLink& l, TrueNs t);
  Estimate Measured(const ModelLink& l, uint32_t link, int end, TrueNs t);
  Estimate Remembered(const End& e, TrueNs t) const;
  double LagNs(const Host& us, const Host& peer, TrueNs t) const;

  Fleet& fleet_;
  LinkFigures figures_;
  std::vector<ModelLink> links_;
  std::vector<Tie> ties_;
  Random random_;
};

}  // namespace cw::sync::sim
