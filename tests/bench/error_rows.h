// SPDX-License-Identifier: Apache-2.0
//
// Errors of clocks as rows of a result and as lines for who watches the run. Threads: one.
#pragma once

#include <string>
#include <vector>

#include "userspace/lab/bench_result.h"

namespace cw::bench {

inline constexpr char kProduct[] = "cwfabric";

double Mean(const std::vector<double>& values);
std::vector<double> Absolute(std::vector<double> values);
// Of each `count` in a row: what a user of an unfiltered offset would take first.
std::vector<double> Medians(const std::vector<double>& values, size_t count);
void AddPercent(const std::string& bench_case, const std::string& system, const std::string& metric, size_t part,
                size_t whole, Report& report);
// A line on standard error; more: what to append to it.
void PrintErrors(const std::string& what, const std::vector<double>& signed_ns, const std::string& more = "");
// shares: of each link direction's rate.
void AddLoad(const std::string& bench_case, const std::vector<double>& shares, Report& report);

}  // namespace cw::bench
