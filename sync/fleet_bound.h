// SPDX-License-Identifier: Apache-2.0
//
// How far our fleet time can be from that of any other synchronised host of our timeline, whatever the paths' lengths
// are. Nobody can certify the distance to one distant host on a sparse graph against liars around every host of the way
// (A. Pelc, D. Peleg, "Broadcasting with locally bounded Byzantine faults", 2005). What can be certified is that no
// two honest neighbours are further apart than so much, the "width"; and how many links lie between any two hosts
// follows from the fleet's size, because its graph is a random one that all compute alike.
//
// The width is what a host sees or is told by more neighbours than may lie: of d neighbours the (f+1)-th largest of
// "you differ from me by at most so much" and "I know of a width of so much", f = ⌊(d−1)/3⌋. So f liars can neither
// make it larger than the largest honest one nor, unless honest ones are far off as well, smaller. It says in what a
// neighbourhood is wrong by the same rule by which trimmed means say in what it is right (H. LeBlanc et al., "Resilient
// asymptotic consensus in robust networks", IEEE JSAC 31(4), 2013): of two sets of hosts that are apart at least one
// has a host with more than 2f neighbours in the other, which sees it and tells; and so on, host by host.
//
// Where all compare with all, f is ⌊(n−1)/3⌋ of n hosts. Two honest ones i and j share at least 2f − 1 honest others k.
// Were they further apart than both widths together, each k would be further from i than i's width or from j than
// j's. But that holds for at most f − 1 others of i, because j is one more, and for f − 1 of j: 2f − 2 in all.
//
// Times in ns. No errors. Pure; one thread per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cw::sync {

inline constexpr double kNowhereNs = 3.6e12;  // an hour: no bound known

// Over how many links a fleet of so many is bridged when a third of each host's neighbours lies. See neighbours.h.
int BoundHops(size_t members);

class FleetBound {
 public:
  // A neighbour on our timeline that tells a time.
  struct Told {
    double apart_ns;  // |its fleet time − ours| is at most this
    double width_ns;  // as it tells
  };

  // present: those that are heard; so many of them may lie. absent_s: of each neighbour that is not, how long.
  // growth_ppb: how fast two hosts that do not hear each other may run apart.
  void Update(double passed_s, const std::vector<Told>& present, int liars, const std::vector<double>& absent_s,
              double growth_ppb);
  void Reset() { *this = FleetBound(); }

  double width_ns() const { return width_ns_; }  // to tell the neighbours
  double bound_ns(int hops) const;               // for BoundHops(members)

 private:
  double width_ns_ = 0;
  std::vector<double> scratch_;
};

}  // namespace cw::sync
