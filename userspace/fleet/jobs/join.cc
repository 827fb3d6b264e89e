// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "userspace/fleet/jobs/jobs.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

// Sets that are joined: each element names one of its set, by a short way.
class Sets {
 public:
  size_t Make() {
    parent_.push_back(parent_.size());
    return parent_.size() - 1;
  }
  size_t Find(size_t of) {
    while (parent_[of] != of) of = parent_[of] = parent_[parent_[of]];
    return of;
  }
  void Join(size_t a, size_t b) { parent_[Find(b)] = Find(a); }

 private:
  std::vector<size_t> parent_;
};

using ProcessId = std::pair<size_t, uint32_t>;  // host, pid

class Joiner {
 public:
  explicit Joiner(absl::Span<const HostWork> hosts) : hosts_(hosts) {}

  std::vector<JoinedJob> Run() {
    for (size_t h = 0; h < hosts_.size(); ++h) {
      for (const HostWork::Rank& rank : hosts_[h].ranks) JoinRank(h, *rank.job);
    }
    for (size_t h = 0; h < hosts_.size(); ++h) {
      for (const HostWork::Flow& flow : hosts_[h].flows) {
        if (!flow.sample->name.label.empty()) JoinFlow(h, flow.sample->name);
      }
    }
    std::map<size_t, JoinedJob> jobs;  // by set
    for (size_t h = 0; h < hosts_.size(); ++h) Place(h, jobs);
    std::vector<JoinedJob> out;
    for (auto& [set, job] : jobs) {
      Name(set, job);
      out.push_back(std::move(job));
    }
    std::sort(out.begin(), out.end(),
              [](const JoinedJob& a, const JoinedJob& b) { return std::tie(a.name, a.ids) < std::tie(b.name, b.ids); });
    return out;
  }

 private:
  template <typename Key>
  size_t SetOf(std::map<Key, size_t>& known, const Key& key) {
    const auto [at, added] = known.try_emplace(key, 0);
    if (added) at->second = sets_.Make();
    return at->second;
  }

  void JoinRank(size_t host, const pb::Job& rank) {
    const size_t set = SetOf(ids_, rank.id());
    sets_.Join(set, SetOf(processes_, ProcessId{host, rank.pid()}));
    const bool own = !rank.label().empty() && rank.label() != rank.name();
    if (own) sets_.Join(set, SetOf(labels_, rank.label()));
  }

  void JoinFlow(size_t host, const FlowName& flow) {
    const size_t set = SetOf(labels_, flow.label);
    if (flow.pid != 0) sets_.Join(set, SetOf(processes_, ProcessId{host, flow.pid}));
  }

  void Place(size_t host, std::map<size_t, JoinedJob>& jobs) {
    const HostWork& work = hosts_[host];
    for (size_t i = 0; i < work.ranks.size(); ++i)
      jobs[sets_.Find(ids_.at(work.ranks[i].job->id()))].ranks.push_back({host, i});
    for (size_t i = 0; i < work.flows.size(); ++i) {
      const FlowName& flow = work.flows[i].sample->name;
      const auto label = labels_.find(flow.label);
      const auto process = processes_.find({host, flow.pid});
      if (!flow.label.empty() && label != labels_.end()) {
        jobs[sets_.Find(label->second)].flows.push_back({host, i});
      } else if (flow.pid != 0 && process != processes_.end()) {
        jobs[sets_.Find(process->second)].flows.push_back({host, i});
      }
    }
  }

  // Of several labels that of most ranks.
  void Name(size_t set, JoinedJob& job) {
    std::map<std::string, size_t> by_label;
    for (const auto& [label, of] : labels_) {
      if (sets_.Find(of) == set) by_label[label] = 0;
    }
    std::map<std::string, int> ranks_of;
    for (const JoinedJob::Place& place : job.ranks) {
      const pb::Job& rank = *hosts_[place.host].ranks[place.index].job;
      ranks_of[rank.id()] = std::max(ranks_of[rank.id()], rank.ranks());
      const auto label = by_label.find(rank.label());
      if (label != by_label.end()) ++label->second;
    }
    const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
    for (const auto& [id, ranks] : ranks_of) job.ids.push_back(id);
    if (!by_label.empty()) {
      job.name = std::max_element(by_label.begin(), by_label.end(), less)->first;
    } else if (!ranks_of.empty()) {
      job.name = std::max_element(ranks_of.begin(), ranks_of.end(), less)->first;
    }
  }

  const absl::Span<const HostWork> hosts_;
  Sets sets_;
  std::map<std::string, size_t> ids_, labels_;
  std::map<ProcessId, size_t> processes_;
};

}  // namespace

std::vector<JoinedJob> JoinJobs(absl::Span<const HostWork> hosts) { return Joiner(hosts).Run(); }

}  // namespace cw::fleet
