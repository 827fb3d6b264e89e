// SPDX-License-Identifier: Apache-2.0
//
// What a lab run leaves behind: one JSON document and one self-contained HTML page made of the same data.
// Times are seconds since the run's start. Pure; value types.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"

namespace cw::lab {

struct Series {
  std::string name;            // "leaf0 to spine1"; "h0 to h1 path 3"
  std::vector<double> at_s;    // one per value; where two are far apart the line has a gap
  std::vector<double> values;  // unit of the chart
  std::vector<double> low;     // a band, drawn behind the line; one per value, or empty for none ...
  std::vector<double> high;    // ... and its upper edge
};

struct Chart {
  std::string title;
  std::string unit;            // "Mbit/s", "µs"
  std::vector<Series> series;  // the first six have colours and names, those after them are grey
};

// Something that happened: drawn as a vertical line in the charts of its phase and listed below them.
struct Mark {
  double at_s = 0;
  std::string kind;  // "fault", "dead", "move", "recovered", "drift"
  std::string text;
};

// One stretch of the run under one system: "plain ECMP, seed 3".
struct Phase {
  std::string name;
  std::vector<Chart> charts;
  std::vector<Mark> marks;
};

// The same figure of several systems side by side, on one scale. Zeroes between a series' values are marked as stalls.
struct Comparison {
  struct Panel {
    std::string name;  // of the system
    Chart chart;
    std::vector<Mark> marks;
  };
  std::string title;
  std::vector<Panel> panels;  // charts of one unit
};

// A cell is text as it shall be shown, unit included.
struct Table {
  std::string title;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

struct Report {
  std::string title;
  std::string headline;            // what came of it, in one sentence; "" for none
  std::vector<std::string> notes;  // what was run, in a sentence each
  std::vector<Comparison> comparisons;
  std::vector<Table> tables;
  std::vector<Phase> phases;
};

// What lies between two moments, with times counted from `zero_s` on.
Chart StretchOf(const Chart& chart, double from_s, double until_s, double zero_s);
std::vector<Mark> StretchOf(const std::vector<Mark>& marks, double from_s, double until_s, double zero_s);

nlohmann::json ToJson(const Report& report);
// The page needs no network and no file beside it.
std::string ToHtml(const Report& report);
// For a terminal: aligned columns.
std::string ToText(const Table& table);
// Writes through a temporary file, so that a reader never sees half a page.
absl::Status WriteFile(const std::string& path, const std::string& content);

}  // namespace cw::lab
