// SPDX-License-Identifier: Apache-2.0
//
// A snapshot in which every metric occurs, and the text format read back, for the tests of metrics.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "userspace/metrics/snapshot.h"

namespace cw::metrics {

struct FilledSpec {
  int nics = 1;
  int peers = 2;
  int addresses = 1;   // of each peer
  bool chosen = true;  // worst paths and top flows
};
Snapshot Filled(const FilledSpec& spec = {});

// hw_counters as these drivers name them.
const std::vector<std::string>& Mlx5Counters();
const std::vector<std::string>& BnxtReCounters();
const std::vector<std::string>& RxeCounters();

struct Sample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

// One reading of /metrics. Fails the test on a line that it does not understand.
struct Reading {
  explicit Reading(const std::string& text);

  std::vector<Sample> samples;
  std::map<std::string, std::string> types, helps;  // by family

  // The family that a series of this name belongs to, "" when there is none.
  std::string FamilyOf(const std::string& name) const;
  // Of the one series with that name and these labels among its own; fails the test when there is not exactly one.
  double Value(const std::string& name, const std::map<std::string, std::string>& labels = {}) const;
};

}  // namespace cw::metrics
