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

nlohmann::json ToJson(const Phase& phase) {
  nlohmann::json charts = nlohmann::json::array();
  for (const Chart& chart : phase.charts) charts.push_back(ToJson(chart));
  nlohmann::json marks = nlohmann::json::array();
  for (const Mark& mark : phase.marks) marks.push_back({{"at_s", mark.at_s}, {"kind", mark.kind}, {"text", mark.text}});
  return {{"name", phase.name}, {"charts", charts}, {"marks", marks}};
}

}  // namespace

nlohmann::json ToJson(const Report& report) {
  nlohmann::json tables = nlohmann::json::array();
  for (const Table& table : report.tables) tables.push_back(ToJson(table));
  nlohmann::json phases = nlohmann::json::array();
  for (const Phase& phase : report.phases) phases.push_back(ToJson(phase));
  return {{"title", report.title}, {"notes", report.notes}, {"tables", tables}, {"phases", phases}};
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
    width[c] = table.header[c].size();
    for (const auto& row : table.rows) width[c] = std::max(width[c], c < row.size() ? row[c].size() : 0);
  }
  auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (size_t c = 0; c < cells.size(); ++c) {
      // The first column names the row; figures stand to the right.
      out += c == 0 ? absl::StrFormat("%-*s", width[c], cells[c]) : absl::StrFormat("  %*s", width[c], cells[c]);
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
