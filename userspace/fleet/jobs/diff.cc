// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/jobs/diff.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "userspace/model/counted.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

// From a host's NIC to another one's.
using NicPair = std::tuple<std::string, Addr, Addr>;

struct FlowFigures {
  std::string to;  // host, or address
  const FlowName* name = nullptr;
  const std::vector<Addr>* hops = nullptr;
  double p50_ns = -1;  // −1: not known
};

struct NicFigures {
  std::string to;
  double bytes_per_s = 0, retransmits_s = 0;
  PackedSketch delay;
  std::set<std::vector<Addr>> ways;
};

struct RunFigures {
  std::map<NicPair, NicFigures> nics;
  std::vector<FlowFigures> flows;
  pb::FleetJob job;
};

RunFigures FiguresOf(const JobRun& run) {
  RunFigures out;
  out.job = DescribeJob(*run.job, run.hosts, /*whole=*/false);
  for (const JoinedJob::Place& place : run.job->flows) {
    const HostWork& work = run.hosts[place.host];
    const HostWork::Flow& flow = work.flows[place.index];
    const FlowSample& s = *flow.sample;
    if (work.flows_s <= 0) continue;
    NicFigures& nics = out.nics[{work.host, s.name.local, s.name.remote}];
    nics.to = s.name.peer.empty() ? s.name.remote.ToString() : s.name.peer;
    nics.bytes_per_s += static_cast<double>(s.bytes) / work.flows_s;
    nics.retransmits_s += static_cast<double>(s.retransmits) / work.flows_s;
    nics.delay.Merge(s.delay);
    if (flow.hops != nullptr) nics.ways.insert(*flow.hops);
    out.flows.push_back({nics.to, &s.name, flow.hops, s.delay.empty() ? -1 : s.delay.QuantileNs(0.5)});
  }
  return out;
}

std::string GbitText(double bytes_per_s) { return absl::StrFormat("%.3g Gbit/s", bytes_per_s * 8 / 1e9); }
std::string MicrosText(double ns) { return absl::StrFormat("%.3g us", ns / 1000); }

std::string WayText(const std::vector<Addr>& hops) {
  return absl::StrJoin(
      hops, " ", [](std::string* out, const Addr& hop) { absl::StrAppend(out, hop.is_zero() ? "*" : hop.ToString()); });
}

// Hops of the one that none of the others takes.
std::vector<Addr> OnlyOf(const FlowFigures& one, const std::vector<FlowFigures>& flows) {
  std::set<Addr> others;
  for (const FlowFigures& flow : flows) {
    if (flow.name != one.name && flow.hops != nullptr) others.insert(flow.hops->begin(), flow.hops->end());
  }
  std::vector<Addr> only;
  if (one.hops == nullptr) return only;
  for (const Addr& hop : *one.hops) {
    if (!hop.is_zero() && !others.contains(hop)) only.push_back(hop);
  }
  return only;
}

struct Outliers {
  std::vector<const FlowFigures*> flows;  // slowest first
  double usual_ns = 0;                    // median of all
};

Outliers OutliersOf(const RunFigures& run, const DiffRules& rules) {
  std::vector<double> medians;
  for (const FlowFigures& flow : run.flows) {
    if (flow.p50_ns >= 0) medians.push_back(flow.p50_ns);
  }
  Outliers out;
  if (medians.size() < 3) return out;  // of two nobody can say which one is usual
  std::sort(medians.begin(), medians.end());
  out.usual_ns = medians[(medians.size() - 1) / 2];
  for (const FlowFigures& flow : run.flows) {
    if (flow.p50_ns >= std::max(rules.least_delay_ns, rules.many_times * out.usual_ns)) out.flows.push_back(&flow);
  }
  std::sort(out.flows.begin(), out.flows.end(),
            [](const FlowFigures* a, const FlowFigures* b) { return a->p50_ns > b->p50_ns; });
  return out;
}

class Differ {
 public:
  Differ(const JobRun& first, const JobRun& second, const DiffRules& rules)
      : rules_(rules), first_(FiguresOf(first)), second_(FiguresOf(second)) {}

  pb::FleetDiffJobsReply Run() {
    pb::FleetDiffJobsReply reply;
    *reply.mutable_first() = first_.job;
    *reply.mutable_second() = second_.job;
    Hosts();
    const NicFigures none;
    for (const auto& [id, figures] : second_.nics) {
      const auto before = first_.nics.find(id);
      before == first_.nics.end() ? Compare(id, none, figures) : Compare(id, before->second, figures);
    }
    for (const auto& [id, figures] : first_.nics) {
      if (!second_.nics.contains(id)) Compare(id, figures, none);
    }
    std::stable_sort(changes_.begin(), changes_.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    if (changes_.size() > rules_.most) changes_.resize(rules_.most);
    for (auto& [weight, change] : changes_) *reply.add_changes() = std::move(change);
    reply.set_summary(Summary());
    return reply;
  }

 private:
  void Add(double weight, const std::string& what, const std::string& scope, double first, double second,
           const std::string& text) {
    pb::FleetJobChange change;
    change.set_what(what);
    change.set_scope(scope);
    change.set_first(first);
    change.set_second(second);
    change.set_text(text);
    changes_.emplace_back(weight, std::move(change));
  }

  void Hosts() {
    const std::set<std::string> a(first_.job.hosts().begin(), first_.job.hosts().end());
    const std::set<std::string> b(second_.job.hosts().begin(), second_.job.hosts().end());
    if (a == b) return;
    std::vector<std::string> gone, come;
    std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(gone));
    std::set_difference(b.begin(), b.end(), a.begin(), a.end(), std::back_inserter(come));
    for (auto* names : {&gone, &come}) {
      if (names->size() > 8) names->resize(8);
    }
    std::string text;
    if (!gone.empty()) absl::StrAppend(&text, "only in the first: ", absl::StrJoin(gone, " "));
    if (!come.empty())
      absl::StrAppend(&text, gone.empty() ? "" : "; ", "only in the second: ", absl::StrJoin(come, " "));
    Add(2, "hosts", "the job", static_cast<double>(a.size()), static_cast<double>(b.size()), text);
  }

  // Weights: a share of the whole job's bandwidth, delays by how many times they are, what is new of ways least.
  void Compare(const NicPair& id, const NicFigures& a, const NicFigures& b) {
    const auto& [from, local, remote] = id;
    const std::string scope = absl::StrCat(from, " > ", b.to.empty() ? a.to : b.to);
    const std::string where = absl::StrCat(scope, " (", local.ToString(), " > ", remote.ToString(), ")");
    const double all = std::max(first_.job.bytes_per_s(), second_.job.bytes_per_s());
    const double most = std::max(a.bytes_per_s, b.bytes_per_s), moved = std::abs(a.bytes_per_s - b.bytes_per_s);
    if (most > 0 && moved > rules_.least_share * most) {
      Add(moved / all, "bandwidth", scope, a.bytes_per_s, b.bytes_per_s,
          absl::StrCat(where, ": ", GbitText(a.bytes_per_s), ", then ", GbitText(b.bytes_per_s)));
    }
    if (!a.delay.empty() && !b.delay.empty()) {
      const double was = a.delay.QuantileNs(0.5), is = b.delay.QuantileNs(0.5);
      const double more = std::max(was, is), less = std::max(std::min(was, is), 1000.0);
      if (more - std::min(was, is) > rules_.least_delay_ns && more > rules_.many_times * less)
        Add(1 + std::log10(more / less), "delay", scope, was, is,
            absl::StrCat(where, ": packets queued for ", MicrosText(was), ", then ", MicrosText(is), " (median)"));
    }
    if (std::abs(a.retransmits_s - b.retransmits_s) > rules_.least_retransmits_s) {
      Add(1, "retransmits", scope, a.retransmits_s, b.retransmits_s,
          absl::StrFormat("%s: %.1f packets/s sent again, then %.1f", where, a.retransmits_s, b.retransmits_s));
    }
    if (!a.ways.empty() && !b.ways.empty() && a.ways != b.ways) Ways(scope, where, a, b);
  }

  void Ways(const std::string& scope, const std::string& where, const NicFigures& a, const NicFigures& b) {
    std::vector<std::vector<Addr>> gone, come;
    std::set_difference(a.ways.begin(), a.ways.end(), b.ways.begin(), b.ways.end(), std::back_inserter(gone));
    std::set_difference(b.ways.begin(), b.ways.end(), a.ways.begin(), a.ways.end(), std::back_inserter(come));
    std::string text = where;
    if (!gone.empty()) absl::StrAppend(&text, ": no more by ", WayText(gone[0]));
    if (!come.empty()) absl::StrAppend(&text, gone.empty() ? ": also by " : ", but by ", WayText(come[0]));
    Add(0.05, "path", scope, static_cast<double>(a.ways.size()), static_cast<double>(b.ways.size()), text);
  }

  std::string Summary() const {
    std::string text = absl::StrCat("first run ", GbitText(first_.job.bytes_per_s()), ", second ",
                                    GbitText(second_.job.bytes_per_s()));
    const bool second_slower = second_.job.bytes_per_s() <= first_.job.bytes_per_s();
    const RunFigures& slower = second_slower ? second_ : first_;
    const Outliers outliers = OutliersOf(slower, rules_);
    if (outliers.flows.empty()) return text;
    const FlowFigures& worst = *outliers.flows[0];
    absl::StrAppend(&text, ": in the ", second_slower ? "second " : "first ", Counted(outliers.flows.size(), "flow"),
                    " at ", MicrosText(worst.p50_ns), ", others at ", MicrosText(outliers.usual_ns),
                    "; the slowest to ", worst.to);
    if (worst.hops == nullptr) return text;
    absl::StrAppend(&text, " by ", WayText(*worst.hops));
    const std::vector<Addr> only = OnlyOf(worst, slower.flows);
    if (!only.empty()) absl::StrAppend(&text, ", and alone over ", WayText(only));
    return text;
  }

  const DiffRules rules_;
  const RunFigures first_, second_;
  std::vector<std::pair<double, pb::FleetJobChange>> changes_;
};

}  // namespace

pb::FleetDiffJobsReply DiffJobs(const JobRun& first, const JobRun& second, const DiffRules& rules) {
  return Differ(first, second, rules).Run();
}

}  // namespace cw::fleet
