// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/link_file.h"

#include <cerrno>
#include <cstdio>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cw::agent {
namespace {

using nlohmann::json;

constexpr int kLinkFileVersion = 1;

}  // namespace

absl::Status LoadLinkBook(const std::string& file, const std::string& boot, control::LinkBook& book) {
  std::ifstream in(file);
  if (!in) return absl::NotFoundError(absl::StrCat("there is no ", file));
  std::deque<control::LinkOutage> outages;
  try {
    const json state = json::parse(in);
    if (state.at("boot").get<std::string>() != boot)
      return absl::NotFoundError(absl::StrCat(file, " is of an earlier boot"));
    if (state.at("version").get<int>() != kLinkFileVersion)
      return absl::InvalidArgumentError(absl::StrCat(file, " is of another version"));
    for (const json& each : state.at("outages")) {
      control::LinkOutage outage;
      outage.links = each.at("links").get<std::vector<std::string>>();
      outage.began_ns = each.at("began_ns").get<int64_t>();
      for (const json& name : each.at("seen_by")) outage.seen_by.push_back({0, name.get<std::string>()});
      outages.push_back(std::move(outage));
    }
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", error.what()));
  }
  book.Restore(std::move(outages));
  return absl::OkStatus();
}

absl::Status SaveLinkBook(const std::string& file, const std::string& boot, const control::LinkBook& book) {
  json state = {{"version", kLinkFileVersion}, {"boot", boot}, {"outages", json::array()}};
  for (const control::LinkOutage& outage : book.outages()) {
    json seen_by = json::array();
    for (const control::LinkOutage::Witness& witness : outage.seen_by) seen_by.push_back(witness.name);
    state["outages"].push_back({{"links", outage.links}, {"began_ns", outage.began_ns}, {"seen_by", seen_by}});
  }
  const std::string fresh = file + ".new";
  std::ofstream out(fresh, std::ios::trunc);
  out << state.dump() << '\n';
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", fresh));
  if (std::rename(fresh.c_str(), file.c_str()) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("write ", file));
  return absl::OkStatus();
}

}  // namespace cw::agent
