// SPDX-License-Identifier: Apache-2.0
#include "sync/mesh.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sync/vote.h"

namespace cw::sync {
namespace {

constexpr double kResidual = 1e-9;  // of conjugate gradients, relative
constexpr int kMostSteps = 2000;
constexpr double kSettled = 1e-3;  // reweighting ends when no node moves by more than this share of a usual error

struct Edge {
  uint32_t a, b;
  double value;  // wanted: x[b] − x[a]
  double error;
  double weight;  // 1 / error², reweighted
  size_t link;    // index of the caller's
};

// (BᵀWB)·x, without the matrix.
void Multiply(const std::vector<Edge>& edges, const std::vector<double>& x, std::vector<double>& y) {
  std::fill(y.begin(), y.end(), 0.0);
  for (const Edge& e : edges) {
    const double flow = e.weight * (x[e.b] - x[e.a]);
    y[e.b] += flow;
    y[e.a] -= flow;
  }
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Weighted least squares from x on. The system is singular (one constant per component), but consistent.
void Relax(const std::vector<Edge>& edges, std::vector<double>& x) {
  const size_t n = x.size();
  std::vector<double> diagonal(n, 0), r(n, 0), z(n), p(n), q(n);
  for (const Edge& e : edges) {
    diagonal[e.a] += e.weight;
    diagonal[e.b] += e.weight;
    const double flow = e.weight * (e.value - (x[e.b] - x[e.a]));
    r[e.b] += flow;
    r[e.a] -= flow;
  }
  const auto precondition = [&] {
    for (size_t i = 0; i < n; ++i) z[i] = diagonal[i] > 0 ? r[i] / diagonal[i] : 0;
  };
  double scale = 0;  // of a right side that has nothing to do with the start
  for (const Edge& e : edges) scale += e.weight * e.error * e.error * e.weight;
  precondition();
  p = z;
  double rho = Dot(r, z);
  for (int step = 0; step < kMostSteps; ++step) {
    if (rho <= 0 || Dot(r, r) <= kResidual * kResidual * scale) break;
    Multiply(edges, p, q);
    const double curvature = Dot(p, q);
    if (curvature <= 0) break;
    const double alpha = rho / curvature;
    for (size_t i = 0; i < n; ++i) {
      x[i] += alpha * p[i];
      r[i] -= alpha * q[i];
    }
    precondition();
    const double next = Dot(r, z);
    const double beta = next / rho;
    rho = next;
    for (size_t i = 0; i < n; ++i) p[i] = z[i] + beta * p[i];
  }
}

// Components by union-find, numbered in the order of their lowest nodes.
uint32_t Components(size_t nodes, const std::vector<Edge>& edges, std::vector<uint32_t>& component) {
  std::vector<uint32_t> parent(nodes);
  std::iota(parent.begin(), parent.end(), 0u);
  const auto root = [&](uint32_t i) {
    while (parent[i] != i) i = parent[i] = parent[parent[i]];
    return i;
  };
  for (const Edge& e : edges) {
    const uint32_t a = root(e.a), b = root(e.b);
    parent[std::max(a, b)] = std::min(a, b);
  }
  component.assign(nodes, 0);
  uint32_t count = 0;
  for (uint32_t i = 0; i < nodes; ++i) component[i] = root(i) == i ? count++ : component[root(i)];
  return count;
}

// Offsets may be seconds and errors nanoseconds: begin with the sums along a spanning tree, so that what is left to
// solve is of the size of the errors.
std::vector<double> AlongTree(size_t nodes, const std::vector<Edge>& edges) {
  std::vector<size_t> first(nodes + 1, 0), incident(2 * edges.size());
  for (const Edge& e : edges) ++first[e.a + 1], ++first[e.b + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<size_t> fill(first.begin(), first.end() - 1);
  for (size_t k = 0; k < edges.size(); ++k) {
    incident[fill[edges[k].a]++] = k;
    incident[fill[edges[k].b]++] = k;
  }
  std::vector<double> x(nodes, 0);
  std::vector<bool> seen(nodes, false);
  std::vector<uint32_t> queue;
  for (uint32_t start = 0; start < nodes; ++start) {
    if (seen[start]) continue;
    seen[start] = true;
    queue.assign(1, start);
    for (size_t head = 0; head < queue.size(); ++head) {
      const uint32_t at = queue[head];
      for (size_t k = first[at]; k < first[at + 1]; ++k) {
        const Edge& e = edges[incident[k]];
        const uint32_t to = e.a == at ? e.b : e.a;
        if (seen[to]) continue;
        seen[to] = true;
        x[to] = x[at] + (e.a == at ? e.value : -e.value);
        queue.push_back(to);
      }
    }
  }
  return x;
}

// A least-squares fit takes part of each link's error into the nodes: with so many nodes per link its residual shows
// only this share of the variance.
double Freedom(size_t nodes, uint32_t components, size_t edges) {
  const double used = static_cast<double>(nodes - components);
  return edges == 0 ? 1 : std::max(0.05, 1 - used / static_cast<double>(edges));
}

struct Fitted {
  std::vector<double> x;
  double scatter = 1;
};

Fitted Fit(size_t nodes, std::vector<Edge>& edges, double freedom, const MeshOptions& options) {
  Fitted f;
  f.x = AlongTree(nodes, edges);
  std::vector<double> before, deviations(edges.size());
  for (int round = 0; round < std::max(1, options.rounds); ++round) {
    before = f.x;
    Relax(edges, f.x);
    for (size_t k = 0; k < edges.size(); ++k) {
      const Edge& e = edges[k];
      deviations[k] = std::abs(e.value - (f.x[e.b] - f.x[e.a])) / (e.error * std::sqrt(freedom));
    }
    // Residuals lie around 0, so the median of their sizes is the spread.
    std::vector<double> sorted = deviations;
    const auto middle = sorted.begin() + static_cast<long>(sorted.size() / 2);
    if (!sorted.empty()) std::nth_element(sorted.begin(), middle, sorted.end());
    f.scatter = sorted.empty() ? 1 : std::max(1e-9, 1.4826 * *middle);
    const double limit = options.huber_k * std::max(f.scatter, 1e-9);
    double usual = 0;
    for (size_t k = 0; k < edges.size(); ++k) {
      Edge& e = edges[k];
      const double keep = deviations[k] > limit ? limit / deviations[k] : 1;
      e.weight = keep / (e.error * e.error);
      usual += e.error;
    }
    usual /= static_cast<double>(std::max<size_t>(edges.size(), 1));
    double moved = 0;
    for (size_t i = 0; i < nodes; ++i) moved = std::max(moved, std::abs(f.x[i] - before[i]));
    if (round > 0 && moved < kSettled * usual) break;
  }
  return f;
}

void Centre(const std::vector<uint32_t>& component, uint32_t components, std::vector<double>& x) {
  std::vector<double> sum(components, 0), n(components, 0);
  for (size_t i = 0; i < x.size(); ++i) {
    sum[component[i]] += x[i];
    n[component[i]] += 1;
  }
  for (size_t i = 0; i < x.size(); ++i) x[i] -= sum[component[i]] / n[component[i]];
}

std::vector<Edge> Edges(size_t nodes, const std::vector<MeshLink>& links, bool slopes) {
  std::vector<Edge> edges;
  edges.reserve(links.size());
  for (size_t i = 0; i < links.size(); ++i) {
    const MeshLink& l = links[i];
    const double value = slopes ? l.slope_ppb : l.offset_ns;
    const double error = slopes ? l.slope_error_ppb : l.error_ns;
    const bool sane = l.a < nodes && l.b < nodes && l.a != l.b && std::isfinite(l.offset_ns) &&
                      std::isfinite(l.slope_ppb) && l.error_ns > 0 && l.slope_error_ppb > 0 &&
                      std::isfinite(l.error_ns) && std::isfinite(l.slope_error_ppb);
    if (sane) edges.push_back({l.a, l.b, value, error, 1 / (error * error), i});
  }
  return edges;
}

// Nodes most of whose links are suspects are the fault themselves.
void NameNodes(size_t nodes, const std::vector<Edge>& edges, MeshResult& result) {
  std::vector<int> all(nodes, 0), bad(nodes, 0);
  for (const Edge& e : edges) {
    const int suspect = result.links[e.link].suspect;
    ++all[e.a], ++all[e.b];
    bad[e.a] += suspect, bad[e.b] += suspect;
  }
  for (uint32_t i = 0; i < nodes; ++i) {
    if (all[i] >= 3 && 2 * bad[i] > all[i]) result.suspect_nodes.push_back(i);
  }
}

}  // namespace

MeshResult SolveMesh(size_t nodes, const std::vector<MeshLink>& links, const MeshOptions& options) {
  MeshResult result;
  result.links.resize(links.size());
  for (MeshLinkVerdict& v : result.links) v.weight = 0;
  std::vector<Edge> edges = Edges(nodes, links, false);
  result.components = Components(nodes, edges, result.component);
  const double freedom = Freedom(nodes, result.components, edges.size());
  Fitted offsets = Fit(nodes, edges, freedom, options);
  result.scatter = offsets.scatter;
  // Small meshes show little of their scatter; the links' own errors are then the better measure.
  const double scatter = std::max(offsets.scatter, edges.size() < 30 ? 1.0 : 0.0);
  for (const Edge& e : edges) {
    MeshLinkVerdict& v = result.links[e.link];
    v.residual_ns = e.value - (offsets.x[e.b] - offsets.x[e.a]);
    v.deviations = std::abs(v.residual_ns) / (e.error * std::sqrt(freedom) * scatter);
    v.weight = e.weight * e.error * e.error;
    v.suspect = v.deviations > options.suspect_deviations;
    if (v.suspect) result.suspects.push_back(e.link);
  }
  std::sort(result.suspects.begin(), result.suspects.end(), [&](size_t x, size_t y) {
    const double dx = result.links[x].deviations, dy = result.links[y].deviations;
    return dx != dy ? dx > dy : x < y;
  });
  NameNodes(nodes, edges, result);
  Centre(result.component, result.components, offsets.x);
  result.offset_ns = std::move(offsets.x);

  std::vector<Edge> slope_edges = Edges(nodes, links, true);
  Fitted slopes = Fit(nodes, slope_edges, freedom, options);
  for (const Edge& e : slope_edges) {
    result.links[e.link].slope_residual_ppb = e.value - (slopes.x[e.b] - slopes.x[e.a]);
  }
  Centre(result.component, result.components, slopes.x);
  result.slope_ppb = std::move(slopes.x);
  return result;
}

}  // namespace cw::sync
