// SPDX-License-Identifier: Apache-2.0
//
// The audit of all links together. Every link says by how much two clocks differ; around a loop the differences must
// add up to nothing, so links that measure wrongly show. Weighted least squares over the graph of links,
//
//   min over θ of Σ w_e · (θ_b − θ_a − offset_e)²,   w_e = 1 / error_e²,
//
// is the node form of the loop correction of Y. Geng et al., NSDI 2018 (§4, "network effect"); robust by iteratively
// reweighted least squares (P. Huber, "Robust Statistics", 1981); solved by conjugate gradients with a diagonal
// preconditioner (Y. Saad, "Iterative Methods for Sparse Linear Systems", 2003, §9.2). It runs nothing: fleet time
// comes from the agreement. What it cannot see: an error that is one and the same on all links of a host
// (docs/clock.md).
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cw::sync {

struct MeshLink {
  uint32_t a = 0, b = 0;  // nodes
  double offset_ns = 0;   // clock of b − clock of a; or the difference of their fleet times
  double slope_ppb = 0;   // how fast it grows
  double error_ns = 1;    // likely error of offset_ns; > 0
  double slope_error_ppb = 1;
};

struct MeshOptions {
  double huber_k = 1.5;           // deviations from which on a link loses weight
  int rounds = 12;                // of reweighting, at most
  double suspect_deviations = 6;  // beyond this a link is named
};

struct MeshLinkVerdict {
  double residual_ns = 0;  // offset − (θ_b − θ_a)
  double deviations = 0;   // the same, in likely errors of this link's residual
  double slope_residual_ppb = 0;
  double weight = 1;     // 0–1: what reweighting has left
  bool suspect = false;  // wrong beside the others: an asymmetric path, or a lie about one link
};

struct MeshResult {
  // Per node. Each component has mean 0.
  std::vector<double> offset_ns, slope_ppb;
  std::vector<uint32_t> component;
  uint32_t components = 0;
  std::vector<MeshLinkVerdict> links;   // as given
  std::vector<size_t> suspects;         // links, worst first
  std::vector<uint32_t> suspect_nodes;  // most of whose links (three or more) are suspects
  double scatter = 0;                   // how much larger residuals are than the links' errors say
};

// Links that name nodes beyond `nodes`, or an error that is not positive, or values that are not finite are ignored
// (verdict: weight 0). 100,000 nodes and 800,000 links take about two seconds of one core.
MeshResult SolveMesh(size_t nodes, const std::vector<MeshLink>& links, const MeshOptions& options = {});

}  // namespace cw::sync
