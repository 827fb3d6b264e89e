// SPDX-License-Identifier: Apache-2.0
#include "userspace/metrics/link_flaps.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/model/boot_file.h"

namespace cw::metrics {
namespace {

constexpr int kFileVersion = 1;
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
  nlohmann::json links = nlohmann::json::object();
  for (const auto& [nic, link] : links_)
    links[nic] = {{"up", link.last.up}, {"downs", link.last.downs}, {"flaps", link.flaps}, {"flaps_ns", link.flaps_ns}};
  const absl::Status saved = BootFile(file, boot, kFileVersion).Save({{"links", links}});
  if (!saved.ok())
    return absl::Status(saved.code(), absl::StrCat(saved.message(), ": flaps before a restart will be forgotten"));
  changed_ = false;
  return absl::OkStatus();
}

absl::Status LinkFlaps::Load(const std::string& file, const std::string& boot) {
  return BootFile(file, boot, kFileVersion).Load([this](const nlohmann::json& state) {
    std::map<std::string, Link> links;
    for (const auto& [nic, told] : state.at("links").items()) {
      Link& link = links[nic];
      link.seen = true;
      link.last = {.up = told.at("up").get<bool>(), .downs = told.at("downs").get<uint64_t>()};
      link.flaps = told.at("flaps").get<uint64_t>();
      link.flaps_ns = told.at("flaps_ns").get<std::deque<int64_t>>();
    }
    links_ = std::move(links);
  });
}

}  // namespace cw::metrics
