// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/report.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "report_page.h"  // made from report_page.html by CMake: kReportPage

namespace cw::lab {
namespace {

nlohmann::json ToJson(const Table& table) {
  return {{"title", table.title}, {"header", table.header}, {"rows", table.rows}};
}

nlohmann::json ToJson(const Chart& chart) {
  nlohmann::json series = nlohmann::json::array();
  for (const Series& s : chart.series) {
    nlohmann::json one = {{"name", s.name}, {"at_s", s.at_s}, {"values", s.values}};
    if (!s.low.empty()) one.update({{"low", s.low}, {"high", s.high}});
    series.push_back(std::move(one));
  }
  return {{"title", chart.title}, {"unit", chart.unit}, {"series", series}};
}

nlohmann::json ToJson(const std::vector<Mark>& marks) {
  nlohmann::json all = nlohmann::json::array();
  for (const Mark& mark : marks) all.push_back({{"at_s", mark.at_s}, {"kind", mark.kind}, {"text", mark.text}});
  return all;
}

nlohmann::json ToJson(const Phase& phase) {
  nlohmann::json charts = nlohmann::json::array();
  for (const Chart& chart : phase.charts) charts.push_back(ToJson(chart));
  return {{"name", phase.name}, {"charts", charts}, {"marks", ToJson(phase.marks)}};
}

nlohmann::json ToJson(const Comparison& comparison) {
  nlohmann::json panels = nlohmann::json::array();
  for (const Comparison::Panel& panel : comparison.panels)
    panels.push_back({{"name", panel.name}, {"chart", ToJson(panel.chart)}, {"marks", ToJson(panel.marks)}});
  return {{"title", comparison.title}, {"panels", panels}};
}

// Of UTF-8 text without combining characters.
size_t Letters(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

Chart StretchOf(const Chart& chart, double from_s, double until_s, double zero_s) {
  Chart out{.title = chart.title, .unit = chart.unit, .series = {}};
  for (const Series& series : chart.series) {
    Series cut{.name = series.name, .at_s = {}, .values = {}};
    for (size_t i = 0; i < series.values.size(); ++i) {
      if (series.at_s[i] < from_s || series.at_s[i] > until_s) continue;
      cut.at_s.push_back(series.at_s[i] - zero_s);
      cut.values.push_back(series.values[i]);
      if (series.low.empty()) continue;
      cut.low.push_back(series.low[i]);
      cut.high.push_back(series.high[i]);
    }
    out.series.push_back(std::move(cut));
  }
  return out;
}

std::vector<Mark> StretchOf(const std::vector<Mark>& marks, double from_s, double until_s, double zero_s) {
  std::vector<Mark> out;
  for (const Mark& mark : marks) {
    if (mark.at_s >= from_s && mark.at_s <= until_s) out.push_back({mark.at_s - zero_s, mark.kind, mark.text});
  }
  return out;
}

nlohmann::json ToJson(const Report& report) {
  nlohmann::json tables = nlohmann::json::array();
  for (const Table& table : report.tables) tables.push_back(ToJson(table));
  nlohmann::json phases = nlohmann::json::array();
  for (const Phase& phase : report.phases) phases.push_back(ToJson(phase));
  nlohmann::json comparisons = nlohmann::json::array();
  for (const Comparison& comparison : report.comparisons) comparisons.push_back(ToJson(comparison));
  return {{"title", report.title}, {"headline", report.headline},
          {"notes", report.notes}, {"comparisons", comparisons},
          {"tables", tables},      {"phases", phases}};
}

std::string ToHtml(const Report& report) {
  // "</" inside a script element would end it; JSON allows the escaped form.
  std::string data = ToJson(report).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  for (size_t at = data.find("</"); at != std::string::npos; at = data.find("</", at + 3)) data.replace(at, 2, "<\\/");
  std::string page(kReportPage);
  const std::string placeholder = "/*REPORT*/null";
  page.replace(page.find(placeholder), placeholder.size(), data);
  return page;
}

std::string ToText(const Table& table) {
  std::vector<size_t> width(table.header.size());
  for (size_t c = 0; c < width.size(); ++c) {
    width[c] = Letters(table.header[c]);
    for (const auto& row : table.rows) width[c] = std::max(width[c], c < row.size() ? Letters(row[c]) : 0);
  }
  auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (size_t c = 0; c < cells.size(); ++c) {
      const std::string rest(width[c] - Letters(cells[c]), ' ');
      // The first column names the row; figures stand to the right.
      absl::StrAppend(&out, c == 0 ? "" : "  ", c == 0 ? "" : rest, cells[c], c == 0 ? rest : "");
    }
    return out + "\n";
  };
  std::string out = table.title + "\n" + line(table.header);
  for (const auto& row : table.rows) out += line(row);
  return out;
}

absl::Status WriteFile(const std::string& path, const std::string& content) {
  const std::string temporary = path + ".tmp";
  {
    std::ofstream file(temporary, std::ios::trunc | std::ios::binary);
    file << content;
    if (!file.flush()) return absl::UnavailableError(absl::StrCat("cannot write ", temporary));
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot rename ", temporary, " to ", path));
  }
  return absl::OkStatus();
}

}  // namespace cw::lab
