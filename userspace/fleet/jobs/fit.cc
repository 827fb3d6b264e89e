// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/jobs/fit.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

constexpr size_t kMostNamedHosts = 8;

// All ways between two hosts in one direction.
struct Between {
  size_t paths = 0, dead = 0, switches = 0;  // of the longest way
  uint64_t sent = 0, lost = 0;
  double p99_ns = 0;  // of the slowest way

  double Loss() const { return sent == 0 ? 0 : static_cast<double>(lost) / static_cast<double>(sent); }
};

std::string UsText(double ns) { return absl::StrFormat("%.1f us", ns / 1000); }

std::string Named(const std::vector<std::string>& names) {
  std::vector<std::string> some(names.begin(),
                                names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMostNamedHosts)));
  std::string text = absl::StrJoin(some, ", ");
  if (names.size() > some.size()) absl::StrAppend(&text, " and ", names.size() - some.size(), " more");
  return text;
}

class FitJudge {
 public:
  FitJudge(const FitQuestion& question, const Topology& topology, const FitRules& rules)
      : q_(question), topology_(topology), rules_(rules) {
    for (const FitHost& host : q_.job) others_.insert(host.name);
    for (const FitPath& path : q_.paths) Add(path);
  }

  pb::FleetFitReply Run(absl::Span<const Finding> findings) {
    CheckAgent();
    CheckNics();
    CheckPlace();
    CheckDelay();
    CheckLoss();
    CheckClock();
    CheckFindings(findings);
    const auto has = [&](const char* answer) {
      return std::any_of(reply_.checks().begin(), reply_.checks().end(),
                         [&](const pb::FleetFitCheck& check) { return check.answer() == answer; });
    };
    reply_.set_answer(has("no") ? "no" : has("unknown") ? "unknown" : "yes");
    return std::move(reply_);
  }

 private:
  void Add(const FitPath& path) {
    const bool of_host = path.from == q_.host.name || path.to == q_.host.name;
    const std::string& other = path.from == q_.host.name ? path.to : path.from;
    if (of_host && !others_.contains(other)) return;  // with the one that leaves
    Between& between = (of_host ? its_ : jobs_)[{path.from, path.to}];
    between.switches = std::max(between.switches, path.switches);
    // Where the one that leaves stands is a place in the job; its delays may be why it leaves.
    if (path.from == q_.instead_of || path.to == q_.instead_of) return;
    ++between.paths;
    between.dead += path.dead;
    between.sent += path.sent;
    between.lost += path.lost;
    between.p99_ns = std::max(between.p99_ns, path.p99_ns);
  }

  void Tell(const char* what, const char* answer, std::string text) {
    pb::FleetFitCheck& check = *reply_.add_checks();
    check.set_what(what);
    check.set_answer(answer);
    check.set_text(std::move(text));
  }

  void CheckAgent() {
    q_.host.connected ? Tell("agent", "yes", "its agent is connected")
                      : Tell("agent", "no", "its agent is not connected: nothing new is known of it");
  }

  std::set<std::string> RailsOf(const FitHost& host) const {
    std::set<std::string> rails;
    for (const Addr& nic : host.nics) {
      const auto leaf = topology_.leaf_of.find(nic);
      if (leaf == topology_.leaf_of.end()) continue;
      const std::string& rail = topology_.switches[static_cast<size_t>(leaf->second)].rail;
      if (!rail.empty()) rails.insert(rail);
    }
    return rails;
  }

  // As the host of the job with the fewest has.
  void CheckNics() {
    if (q_.job.empty()) return Tell("NICs", "unknown", "the job has no other host to compare with");
    size_t fewest = SIZE_MAX;
    std::set<std::string> rails;
    for (const FitHost& host : q_.job) {
      fewest = std::min(fewest, host.nics.size());
      rails.merge(RailsOf(host));
    }
    const std::set<std::string> its = RailsOf(q_.host);
    std::vector<std::string> lacks;
    std::set_difference(rails.begin(), rails.end(), its.begin(), its.end(), std::back_inserter(lacks));
    const std::string count = absl::StrFormat("%d NICs, the job's hosts have %d", q_.host.nics.size(), fewest);
    if (q_.host.nics.size() < fewest) return Tell("NICs", "no", count);
    const bool plugged = std::all_of(q_.host.nics.begin(), q_.host.nics.end(),
                                     [&](const Addr& nic) { return topology_.leaf_of.contains(nic); });
    if (!rails.empty() && !plugged)
      return Tell("NICs", "unknown", count + "; which leaves it is plugged into no trace has shown");
    if (!lacks.empty()) return Tell("NICs", "no", absl::StrCat(count, "; none on rail ", Named(lacks)));
    Tell("NICs", "yes", rails.empty() ? count + "; rails are not named (fabric_file)" : count + ", on the same rails");
  }

  // The most switches between two hosts, and where nothing is known.
  struct Distance {
    size_t most = 0;
    std::string with;
  };
  void CheckPlace() {
    Distance job, its;
    for (const auto& [ends, between] : jobs_) {
      if (between.switches > job.most) job = {between.switches, absl::StrCat(ends.first, " and ", ends.second)};
    }
    for (const auto& [ends, between] : its_) {
      if (between.switches > its.most) its = {between.switches, ends.first == q_.host.name ? ends.second : ends.first};
    }
    if (its.most == 0) return Tell("place", "unknown", "the ways between it and the job's hosts are not known");
    const std::string text = absl::StrFormat("at most %d switches to a host of the job (%s)", its.most, its.with);
    if (job.most == 0) return Tell("place", "unknown", text + "; how far the job's hosts are apart is not known");
    Tell("place", its.most <= job.most ? "yes" : "no",
         absl::StrFormat("%s; within it at most %d (%s)", text, job.most, job.with));
  }

  // Hosts of the job to or from which nothing was measured.
  std::vector<std::string> Unmeasured() const {
    std::vector<std::string> names;
    for (const FitHost& host : q_.job) {
      const auto out = its_.find({q_.host.name, host.name}), back = its_.find({host.name, q_.host.name});
      const bool measured =
          (out != its_.end() && out->second.p99_ns > 0) || (back != its_.end() && back->second.p99_ns > 0);
      if (!measured) names.push_back(host.name);
    }
    return names;
  }

  void CheckDelay() {
    const auto slower = [](const auto& a, const auto& b) { return a.second.p99_ns < b.second.p99_ns; };
    const auto worst_job = std::max_element(jobs_.begin(), jobs_.end(), slower);
    const auto worst = std::max_element(its_.begin(), its_.end(), slower);
    if (worst == its_.end() || worst->second.p99_ns == 0)
      return Tell("delay", "unknown", "no delay was measured between it and the job's hosts: make them its peers");
    const std::string text = absl::StrFormat("p99 at most %s, from %s to %s", UsText(worst->second.p99_ns),
                                             worst->first.first, worst->first.second);
    if (worst_job == jobs_.end() || worst_job->second.p99_ns == 0)
      return Tell("delay", "unknown", text + "; within the job none was measured");
    const double limit_ns = worst_job->second.p99_ns * rules_.delay_slack + rules_.delay_floor_ns;
    const std::string compared =
        absl::StrFormat("%s; within the job %s, from %s to %s", text, UsText(worst_job->second.p99_ns),
                        worst_job->first.first, worst_job->first.second);
    if (worst->second.p99_ns > limit_ns) return Tell("delay", "no", compared);
    const std::vector<std::string> unmeasured = Unmeasured();
    if (!unmeasured.empty()) return Tell("delay", "unknown", absl::StrCat(compared, "; none with ", Named(unmeasured)));
    Tell("delay", "yes", compared);
  }

  void CheckLoss() {
    size_t paths = 0, dead = 0;
    uint64_t sent = 0;
    double most = 0;
    for (const auto& [ends, between] : its_) {
      paths += between.paths;
      dead += between.dead;
      sent += between.sent;
      most = std::max(most, between.Loss());
    }
    if (sent == 0) return Tell("loss", "unknown", "no probe went between it and the job's hosts");
    const std::string text =
        absl::StrFormat("%d of %d paths dead, at most %.3f %% lost between two hosts", dead, paths, 100 * most);
    Tell("loss", dead == 0 && most <= rules_.loss ? "yes" : "no", text);
  }

  void CheckClock() {
    if (!q_.host.clock_known) return Tell("clock", "unknown", "it has not told of its clock");
    q_.host.clock_synced ? Tell("clock", "yes", "fleet time is synchronised")
                         : Tell("clock", "no", "fleet time is not synchronised");
  }

  bool IsAbout(const Finding& finding) const {
    if (finding.scope == "host " + q_.host.name || absl::EndsWith(finding.scope, " of " + q_.host.name)) return true;
    return std::any_of(q_.host.nics.begin(), q_.host.nics.end(), [&](const Addr& nic) {
      return finding.scope == "NIC " + nic.ToString() ||
             std::any_of(finding.links.begin(), finding.links.end(),
                         [&](const LinkId& link) { return link.first == nic || link.second == nic; });
    });
  }

  void CheckFindings(absl::Span<const Finding> findings) {
    std::vector<std::string> names;
    for (const Finding& finding : findings) {
      if (IsAbout(finding))
        names.push_back(absl::StrCat(std::string(CauseName(finding.cause)), " (", IdText(finding.id), ")"));
    }
    names.empty() ? Tell("findings", "yes", "none goes on that is about it") : Tell("findings", "no", Named(names));
  }

  const FitQuestion& q_;
  const Topology& topology_;
  const FitRules& rules_;
  std::set<std::string> others_;
  std::map<std::pair<std::string, std::string>, Between> its_, jobs_;  // by {from, to}
  pb::FleetFitReply reply_;
};

}  // namespace

pb::FleetFitReply JudgeFit(const FitQuestion& question, absl::Span<const Finding> findings, const Topology& topology,
                           const FitRules& rules) {
  return FitJudge(question, topology, rules).Run(findings);
}

}  // namespace cw::fleet
