// SPDX-License-Identifier: Apache-2.0
//
// What the production estimator makes of simulated packets, for the error model (model_links.h). One thread.
#pragma once

#include "sync/sim/model_links.h"

namespace cw::sync::sim {

// Over so many seeds; takes some seconds each.
LinkFigures Calibrate(double load, bool nic_stamps, int seeds);
TieFigures CalibrateTie(int seeds);

}  // namespace cw::sync::sim
