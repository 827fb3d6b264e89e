// SPDX-License-Identifier: Apache-2.0
//
// Opinions of neighbours about one number, some of which may be lies: who can be right together, and their mean without
// the extremes. Sources: K. Marzullo, S. Owicki, "Maintaining the time in a distributed system", PODC 1983 (largest set
// of overlapping intervals); D. Dolev et al., "Reaching approximate agreement in the presence of faults", J. ACM 33(3),
// 1986, and H. LeBlanc et al., "Resilient asymptotic consensus in robust networks", IEEE JSAC 31(4), 2013 (trimming).
// Pure; any thread.
#pragma once

#include <vector>

namespace cw::sync {

struct Opinion {
  double value = 0;
  double tolerance = 0;  // half-width
  double weight = 1;
  bool member = false;   // of the largest set that can be right together
  bool trimmed = false;  // left out of the mean as an extreme
};

// How many of d neighbours may lie.
inline int MostLiars(int d) { return d > 0 ? (d - 1) / 3 : 0; }

// … of d that are the whole fleet but us. Then all honest hosts judge the same hosts, and each is sure of itself:
// n = d + 1 ≥ 3f + 1 (L. Lamport, R. Shostak, M. Pease, "The Byzantine generals problem", ACM TOPLAS 4(3), 1982).
inline int MostLiarsOfAll(int d) { return d > 0 ? d / 3 : 0; }

struct Clique {
  int members = 0;  // among the opinions
  bool with_us = true;
  double low = 0, high = 0;  // where they overlap
};

// Finds the largest set of overlapping intervals and sets `member`. Our own interval, 0 ± own_tolerance, takes part and
// decides a tie; own_tolerance < 0: we have no opinion.
Clique FindClique(std::vector<Opinion>& opinions, double own_tolerance);

// The weighted mean of the members without the f lowest and f highest (fewer if too few would be left). Sets `trimmed`.
double TrimmedMean(std::vector<Opinion>& opinions, int f);

// Median and the scaled median of distances from it (1.4826 · MAD: a normal distribution's deviation). Reorders
// `values`.
struct Spread {
  double median = 0;
  double deviation = 0;
};
Spread RobustSpread(std::vector<double>& values);

}  // namespace cw::sync
