// SPDX-License-Identifier: Apache-2.0
#include "userspace/metrics/link_flaps.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace cw::metrics {
namespace {

constexpr size_t kMostKept = 4096;  // per link; more say nothing more

}  // namespace

void LinkFlaps::Observe(int64_t now_ns, const std::string& nic, const LinkReading& reading) {
  Link& link = links_[nic];
  const bool anew = !link.seen || reading.downs < link.last.downs;  // or the device was made anew
  if (anew) link.flaps = Completed(reading);
  for (; link.flaps < Completed(reading); ++link.flaps) {
    if (link.flaps_ns.size() < kMostKept) link.flaps_ns.push_back(now_ns);
  }
  const int64_t oldest_ns = now_ns - absl::ToInt64Nanoseconds(kWindow);
  while (!link.flaps_ns.empty() && link.flaps_ns.front() <= oldest_ns) link.flaps_ns.pop_front();
  changed_ |= anew || reading.downs != link.last.downs || reading.up != link.last.up;
  link.seen = true;
  link.last = reading;
}

std::vector<LinkState> LinkFlaps::States(int64_t now_ns) const {
  std::vector<LinkState> out;
  const int64_t oldest_ns = now_ns - absl::ToInt64Nanoseconds(kWindow);
  for (const auto& [nic, link] : links_) {
    const auto recent =
        std::count_if(link.flaps_ns.begin(), link.flaps_ns.end(), [&](int64_t at_ns) { return at_ns > oldest_ns; });
    out.push_back(
        {.nic = nic, .up = link.last.up, .downs = link.last.downs, .flaps_1h = static_cast<uint64_t>(recent)});
  }
  return out;
}

absl::Status LinkFlaps::Save(const std::string& file, const std::string& boot) {
  if (!changed_) return absl::OkStatus();
  nlohmann::json j = {{"boot", boot}, {"links", nlohmann::json::object()}};
  for (const auto& [nic, link] : links_)
    j["links"][nic] = {
        {"up", link.last.up}, {"downs", link.last.downs}, {"flaps", link.flaps}, {"flaps_ns", link.flaps_ns}};
  const std::string fresh = file + ".new";
  std::ofstream out(fresh, std::ios::trunc);
  out << j.dump() << "\n";
  out.close();
  if (!out || std::rename(fresh.c_str(), file.c_str()) != 0)
    return absl::UnavailableError(absl::StrCat("cannot write ", file, ": flaps before a restart will be forgotten"));
  changed_ = false;
  return absl::OkStatus();
}

absl::Status LinkFlaps::Load(const std::string& file, const std::string& boot) {
  std::ifstream in(file);
  if (!in) return absl::NotFoundError(absl::StrCat("there is no ", file));
  const nlohmann::json j = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (j.is_discarded() || !j.is_object()) return absl::InvalidArgumentError(absl::StrCat(file, " is not JSON"));
  std::map<std::string, Link> links;
  try {
    if (boot.empty() || j.value("boot", "") != boot)
      return absl::NotFoundError(absl::StrCat(file, " is of an earlier boot"));
    for (const auto& [nic, told] : j.at("links").items()) {
      Link& link = links[nic];
      link.seen = true;
      link.last = {.up = told.at("up").get<bool>(), .downs = told.at("downs").get<uint64_t>()};
      link.flaps = told.at("flaps").get<uint64_t>();
      link.flaps_ns = told.at("flaps_ns").get<std::deque<int64_t>>();
    }
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", error.what()));
  }
  links_ = std::move(links);
  return absl::OkStatus();
}

}  // namespace cw::metrics
