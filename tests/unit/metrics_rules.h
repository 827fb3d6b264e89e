// SPDX-License-Identifier: Apache-2.0
//
// Rules and dashboards held against what a page of metrics exports: by promtool, and name by name.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/metrics_filled.h"

namespace cw::metrics {

struct Ran {
  int status = -1;
  std::string output;
};
Ran Promtool(const std::string& arguments);
// Of a text in a file that is there meanwhile: `promtool ARGUMENTS FILE`.
Ran PromtoolOf(const std::string& arguments, const std::string& text);

std::string TextOf(const std::string& path);

struct Exports {
  explicit Exports(const std::string& page);
  // Every metric, label and value of a label that a text names; what is wrong, "" when nothing is.
  std::string Unknown(const std::string& where) const;
  std::string UnknownLabel(const std::string& family, const std::string& label, const std::string& value) const;

  const Reading read;
  std::map<std::string, std::map<std::string, std::set<std::string>>> labels;  // by family, label
  std::set<std::string> any = {"job", "instance"};                             // labels of any value
};

// Each alert says what to do, and fires in the tests; their number.
int CheckAlerts(const std::string& rules, const std::string& tests);
// Of a dashboard, whose panels are looked at.
std::vector<std::string> ExpressionsOf(const std::string& path);
// What promtool says of them as rules, "" when nothing is wrong.
std::string CheckExpressions(const std::vector<std::string>& expressions);

}  // namespace cw::metrics
