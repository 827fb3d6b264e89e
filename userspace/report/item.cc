// SPDX-License-Identifier: Apache-2.0
#include "userspace/report/item.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace cw::report {
namespace {

using nlohmann::ordered_json;

}  // namespace

std::string ToLine(const Item& item) {
  ordered_json j;
  j["t"] = item.time_unix_ns;
  j["kind"] = item.kind;
  if (!item.flow.empty()) j["flow"] = item.flow;
  j["pair"] = item.pair;
  j["peer"] = item.peer;
  if (item.slot >= 0) j["path"] = item.slot;
  if (item.to_slot >= 0) j["to_path"] = item.to_slot;
  if (!item.links.empty()) j["links"] = item.links;
  if (!item.job.empty()) j["job"] = item.job;
  j["text"] = item.text;
  ordered_json evidence = ordered_json::object();
  for (const auto& [name, value] : item.evidence) evidence[name] = value;
  j["evidence"] = std::move(evidence);
  if (item.stall_ms) j["stall_ms"] = *item.stall_ms;
  if (item.goodput_share) j["goodput_share"] = *item.goodput_share;
  if (!item.how.empty()) j["how"] = item.how;
  if (item.times != 1) j["times"] = item.times;
  if (item.window >= 0) {
    j["recording"] = item.recording_unix_ns;
    j["window"] = item.window;
  }
  return j.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::optional<Item> FromLine(absl::string_view line) {
  try {
    const ordered_json j = ordered_json::parse(line.begin(), line.end());
    Item item;
    item.time_unix_ns = j.at("t").get<int64_t>();
    item.kind = j.at("kind").get<std::string>();
    item.flow = j.value("flow", "");
    item.pair = j.at("pair").get<std::string>();
    item.peer = j.at("peer").get<std::string>();
    item.slot = j.value("path", -1);
    item.to_slot = j.value("to_path", -1);
    item.links = j.value("links", std::vector<std::string>());
    item.job = j.value("job", "");
    item.text = j.at("text").get<std::string>();
    for (const auto& [name, value] : j.at("evidence").items())
      item.evidence.emplace_back(name, value.get<std::string>());
    if (j.contains("stall_ms")) item.stall_ms = j.at("stall_ms").get<double>();
    if (j.contains("goodput_share")) item.goodput_share = j.at("goodput_share").get<double>();
    item.how = j.value("how", "");
    item.times = j.value("times", 1u);
    item.recording_unix_ns = j.value("recording", int64_t{0});
    item.window = j.value("window", int64_t{-1});
    return item;
  } catch (const ordered_json::exception&) {
    return std::nullopt;
  }
}

uint32_t Repeats::Tell(int64_t now_ns) {
  ++merged;
  if (told_ns != 0 && now_ns - told_ns < kAgainNs) return 0;
  told_ns = now_ns;
  return std::exchange(merged, 0);
}

}  // namespace cw::report
