// SPDX-License-Identifier: Apache-2.0
//
// Makes families: a series joins the family of its name, which is made when the name occurs first. Thread rule: plain
// values.
#pragma once

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>
#include <prometheus/metric_type.h>

#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "userspace/metrics/snapshot.h"

namespace cw::metrics {

class FamilyBuilder {
 public:
  using Labels = std::vector<prometheus::ClientMetric::Label>;

  // name: without "cwfabric_".
  void Gauge(const std::string& name, const std::string& help, double value, Labels labels = {}) {
    Add(name, help, prometheus::MetricType::Gauge, std::move(labels)).gauge.value = value;
  }
  // name: with "_total".
  void Counter(const std::string& name, const std::string& help, double value, Labels labels = {}) {
    Add(name, help, prometheus::MetricType::Counter, std::move(labels)).counter.value = value;
  }
  void Histogram(const std::string& name, const std::string& help, const DelayHistogram& delays, Labels labels) {
    prometheus::ClientMetric::Histogram& out =
        Add(name, help, prometheus::MetricType::Histogram, std::move(labels)).histogram;
    out.sample_count = delays.count();
    out.sample_sum = delays.sum_ns() / 1e9;
    for (size_t i = 0; i < DelayHistogram::kBounds; ++i)
      out.bucket.push_back({delays.Cumulative(i), static_cast<double>(DelayHistogram::BoundNs(i)) / 1e9});
  }
  // One of several states holds: a series per state, 1 for the one.
  void StateSet(const std::string& name, const std::string& help, const std::string& label,
                std::initializer_list<std::pair<const char*, bool>> states) {
    for (const auto& [state, holds] : states) Gauge(name, help, holds ? 1 : 0, {{label, state}});
  }

  std::vector<prometheus::MetricFamily> Take() {
    std::vector<prometheus::MetricFamily> out;
    for (auto& [name, family] : families_) out.push_back(std::move(family));
    families_.clear();
    return out;
  }

 private:
  prometheus::ClientMetric& Add(const std::string& name, const std::string& help, prometheus::MetricType type,
                                Labels labels) {
    prometheus::MetricFamily& family = families_["cwfabric_" + name];
    if (family.name.empty()) {
      family.name = "cwfabric_" + name;
      family.help = help;
      family.type = type;
    }
    family.metric.emplace_back();
    family.metric.back().label = std::move(labels);
    return family.metric.back();
  }
  std::map<std::string, prometheus::MetricFamily> families_;
};

// The parts of Families.
void AddNics(const Snapshot& snapshot, FamilyBuilder& out);
void AddPathTotals(const PathTotals& totals, FamilyBuilder& out);
void AddHwCounters(const HwCounters& rdma, FamilyBuilder& out);
void AddClock(const v1::ClockReply& clock, FamilyBuilder& out);
void AddWorst(const Snapshot& snapshot, FamilyBuilder& out);

}  // namespace cw::metrics
