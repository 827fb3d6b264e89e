// SPDX-License-Identifier: Apache-2.0
//
// What the running kernel can do, each feature tried by itself: distribution kernels carry backports, so that a version
// number says little.
#pragma once

#include <string>
#include <vector>

namespace cw::dataplane {

struct Feature {
  std::string name;     // for example "program type xdp"
  std::string purpose;  // what is lost without it
  bool available = false;
};

// About a dozen tiny programs and maps are loaded and dropped: some milliseconds. Needs CAP_BPF.
std::vector<Feature> ProbeFeatures();

// "; this kernel lacks: A (needed for ...), B (...)", or empty.
std::string MissingFeatures(const std::vector<Feature>& features);

}  // namespace cw::dataplane
