// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/link_file.h"

#include <deque>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "userspace/model/boot_file.h"

namespace cw::agent {
namespace {

using nlohmann::json;

constexpr int kLinkFileVersion = 1;

}  // namespace

absl::Status LoadLinkBook(const std::string& file, const std::string& boot, control::LinkBook& book) {
  return BootFile(file, boot, kLinkFileVersion).Load([&book](const json& state) {
    std::deque<control::LinkOutage> outages;
    for (const json& each : state.at("outages")) {
      control::LinkOutage outage;
      outage.links = each.at("links").get<std::vector<std::string>>();
      outage.began_ns = each.at("began_ns").get<int64_t>();
      for (const json& name : each.at("seen_by")) outage.seen_by.push_back({0, name.get<std::string>()});
      outages.push_back(std::move(outage));
    }
    book.Restore(std::move(outages));
  });
}

absl::Status SaveLinkBook(const std::string& file, const std::string& boot, const control::LinkBook& book) {
  json outages = json::array();
  for (const control::LinkOutage& outage : book.outages()) {
    json seen_by = json::array();
    for (const control::LinkOutage::Witness& witness : outage.seen_by) seen_by.push_back(witness.name);
    outages.push_back({{"links", outage.links}, {"began_ns", outage.began_ns}, {"seen_by", seen_by}});
  }
  return BootFile(file, boot, kLinkFileVersion).Save({{"outages", outages}});
}

}  // namespace cw::agent
