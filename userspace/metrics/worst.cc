// SPDX-License-Identifier: Apache-2.0
#include "userspace/metrics/worst.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/metrics/family_builder.h"

namespace cw::metrics {
namespace {

constexpr uint32_t kWindowS = 10;

template <typename T, typename Worse>
void KeepFirst(std::vector<T>& all, size_t most, Worse worse) {
  const auto kept = all.begin() + static_cast<std::ptrdiff_t>(std::min(most, all.size()));
  std::partial_sort(all.begin(), kept, all.end(), worse);
  all.erase(kept, all.end());
}

}  // namespace

std::vector<WorstPath> WorstPaths(const v1::PathsReply& paths, size_t most) {
  std::vector<WorstPath> all;
  for (const v1::Pair& pair : paths.pairs()) {
    for (const v1::Path& path : pair.paths()) {
      for (const v1::PathWindow& window : path.windows()) {
        if (window.seconds() != kWindowS || window.queueing_forward().samples() == 0) continue;
        all.push_back({.nic = pair.nic(),
                       .peer = absl::StrCat(pair.peer(), "/", pair.remote_address()),
                       .path = path.slot(),
                       .queueing_p99_s = window.queueing_forward().p99_ns() / 1e9,
                       .loss_ratio = window.loss()});
      }
    }
  }
  KeepFirst(all, most, [](const WorstPath& a, const WorstPath& b) {
    return std::tuple(a.queueing_p99_s, a.loss_ratio) > std::tuple(b.queueing_p99_s, b.loss_ratio);
  });
  return all;
}

std::vector<TopFlow> TopFlows(const v1::QpsReply& qps, size_t most) {
  std::vector<TopFlow> all;
  for (const v1::Flow& flow : qps.flows()) {
    if (flow.received()) continue;
    // Where the own QPN is not known, the other end's names the flow just as well.
    const std::string qp = flow.local_qpn() != 0 ? absl::StrFormat("0x%x", flow.local_qpn())
                                                 : absl::StrFormat("to 0x%x", flow.remote_qpn());
    all.push_back({.nic = flow.nic(),
                   .peer = absl::StrCat(flow.peer(), "/", flow.remote_address()),
                   .qp = qp,
                   .bytes_per_second = flow.rate_bps() / 8,
                   .owd_p99_s = flow.owd().samples() == 0 ? -1 : flow.owd().p99_ns() / 1e9});
  }
  KeepFirst(all, most, [](const TopFlow& a, const TopFlow& b) {
    return std::tie(b.bytes_per_second, a.nic, a.qp) < std::tie(a.bytes_per_second, b.nic, b.qp);
  });
  return all;
}

void AddWorst(const Snapshot& snapshot, FamilyBuilder& out) {
  for (const WorstPath& path : snapshot.worst_paths) {
    const FamilyBuilder::Labels labels = {{"nic", path.nic}, {"peer", path.peer}, {"path", absl::StrCat(path.path)}};
    out.Gauge("worst_path_queueing_seconds",
              "Queueing delay (p99, last 10 s) of the paths with the longest queues; only with metrics.worst_paths.",
              path.queueing_p99_s, labels);
    out.Gauge("worst_path_loss_ratio", "Share of probes lost on the same paths, last 10 s.", path.loss_ratio, labels);
  }
  for (const TopFlow& flow : snapshot.top_flows) {
    const FamilyBuilder::Labels labels = {{"nic", flow.nic}, {"peer", flow.peer}, {"qp", flow.qp}};
    out.Gauge("top_flow_bytes_per_second",
              "IP bytes per second of the queue pairs with the highest rates; only with metrics.top_flows.",
              flow.bytes_per_second, labels);
    if (flow.owd_p99_s >= 0)
      out.Gauge("top_flow_owd_p99_seconds", "One-way delay (p99, last 10 s) of the same queue pairs' own packets.",
                flow.owd_p99_s, labels);
  }
}

}  // namespace cw::metrics
