// SPDX-License-Identifier: Apache-2.0
#include "userspace/deadlines/deadlines.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace cw::deadlines {
namespace {

using nlohmann::json;

constexpr int kDeadlinesVersion = 1;

json ToJson(const absl::flat_hash_map<FlowKey, int64_t>& flows) {
  json list = json::array();
  for (const auto& [flow, at_ns] : flows) {
    list.push_back(
        {{"source", flow.src.ToString()}, {"destination", flow.dst.ToString()}, {"qpn", flow.dqpn}, {"at_ns", at_ns}});
  }
  return list;
}

// Throws what json throws; Load catches.
absl::flat_hash_map<FlowKey, int64_t> FlowsFrom(const json& list) {
  absl::flat_hash_map<FlowKey, int64_t> flows;
  for (const json& entry : list) {
    absl::StatusOr<Addr> source = Addr::Parse(entry.at("source").get<std::string>());
    absl::StatusOr<Addr> destination = Addr::Parse(entry.at("destination").get<std::string>());
    if (!source.ok() || !destination.ok()) continue;
    const FlowKey flow{.src = *source, .dst = *destination, .dqpn = entry.at("qpn").get<uint32_t>()};
    flows[flow] = entry.at("at_ns").get<int64_t>();
  }
  return flows;
}

json PlacesToJson(const absl::flat_hash_map<FlowKey, Deadlines::Place>& places) {
  json list = json::array();
  for (const auto& [flow, place] : places) {
    list.push_back({{"source", flow.src.ToString()},
                    {"destination", flow.dst.ToString()},
                    {"qpn", flow.dqpn},
                    {"slot", place.slot},
                    {"port", place.port}});
  }
  return list;
}

absl::flat_hash_map<FlowKey, Deadlines::Place> PlacesFrom(const json& list) {
  absl::flat_hash_map<FlowKey, Deadlines::Place> places;
  for (const json& entry : list) {
    absl::StatusOr<Addr> source = Addr::Parse(entry.at("source").get<std::string>());
    absl::StatusOr<Addr> destination = Addr::Parse(entry.at("destination").get<std::string>());
    if (!source.ok() || !destination.ok()) continue;
    const FlowKey flow{.src = *source, .dst = *destination, .dqpn = entry.at("qpn").get<uint32_t>()};
    places[flow] = {.slot = entry.at("slot").get<uint8_t>(), .port = entry.at("port").get<uint16_t>()};
  }
  return places;
}

// {"mode": "protect", "word": …}; the name alone is what earlier releases wrote.
json ToJson(Allowed allowed) { return {{"mode", std::string(ModeName(allowed.mode()))}, {"word", allowed.word()}}; }

Allowed AllowedFrom(const json& entry) {
  if (entry.is_object()) return Allowed(entry.at("word").get<uint32_t>());
  const std::optional<Mode> mode = ParseMode(entry.get<std::string>());
  if (!mode) throw json::other_error::create(0, "no such mode", nullptr);
  return Allowed(*mode);
}

}  // namespace

Deadlines::Deadlines(std::string file, std::string boot) : file_(std::move(file), std::move(boot), kDeadlinesVersion) {}

absl::Status Deadlines::Load() {
  absl::Status read = file_.Load([this](const json& state) {
    Flows placements = FlowsFrom(state.at("placements"));
    Flows locks = FlowsFrom(state.at("locks"));
    // Earlier releases did not write it.
    auto before = PlacesFrom(state.value("before", json::array()));
    if (const auto mode = state.find("mode"); mode != state.end()) {
      mode_ = ModeEnd{AllowedFrom(mode->at("set")), AllowedFrom(mode->at("after")), mode->at("at_ns").get<int64_t>()};
    }
    placements_ = std::move(placements);
    locks_ = std::move(locks);
    before_ = std::move(before);
  });
  changed_ = !read.ok();
  return read;
}

absl::Status Deadlines::Save() {
  if (!changed_) return absl::OkStatus();
  absl::Status saved;
  if (size() == 0 && before_.empty()) {
    saved = file_.Remove();
  } else {
    json state = {{"placements", ToJson(placements_)}, {"locks", ToJson(locks_)}, {"before", PlacesToJson(before_)}};
    if (mode_) state["mode"] = {{"set", ToJson(mode_->set)}, {"after", ToJson(mode_->after)}, {"at_ns", mode_->at_ns}};
    saved = file_.Save(std::move(state));
  }
  changed_ = !saved.ok();
  return saved;
}

void Deadlines::Forget() {
  placements_.clear();
  locks_.clear();
  before_.clear();
  mode_.reset();
  changed_ = true;
}

void Deadlines::Set(Flows& flows, const FlowKey& flow, int64_t at_ns) {
  if (at_ns != 0) {
    flows[flow] = at_ns;
  } else if (flows.erase(flow) == 0) {
    return;
  }
  changed_ = true;
}

void Deadlines::RememberPlace(const FlowKey& flow, const Place& before) {
  changed_ = before_.emplace(flow, before).second || changed_;
}

std::optional<Deadlines::Place> Deadlines::TakePlace(const FlowKey& flow) {
  const auto found = before_.find(flow);
  if (found == before_.end()) return std::nullopt;
  const Place place = found->second;
  before_.erase(found);
  changed_ = true;
  return place;
}

void Deadlines::ForgetPlacesUnless(const std::function<bool(const FlowKey&)>& wanted) {
  changed_ = absl::erase_if(before_, [&](const auto& each) { return !wanted(each.first); }) > 0 || changed_;
}

void Deadlines::SetMode(const std::optional<ModeEnd>& end) {
  if (end == mode_) return;
  mode_ = end;
  changed_ = true;
}

double Deadlines::FlowSecondsLeft(const FlowKey& flow, int64_t now_ns) const {
  double left = 0;
  for (const Flows* flows : {&placements_, &locks_}) {
    const auto it = flows->find(flow);
    if (it != flows->end()) left = std::max({left, static_cast<double>(it->second - now_ns) / 1e9, 0.001});
  }
  return left;
}

std::vector<FlowKey> Deadlines::Take(Flows& flows, int64_t now_ns) {
  std::vector<FlowKey> due;
  for (const auto& [flow, at_ns] : flows) {
    if (at_ns <= now_ns) due.push_back(flow);
  }
  for (const FlowKey& flow : due) flows.erase(flow);
  changed_ = changed_ || !due.empty();
  return due;
}

Deadlines::Due Deadlines::TakeDue(int64_t now_ns) {
  Due due{.placements = Take(placements_, now_ns), .locks = Take(locks_, now_ns), .mode = std::nullopt};
  if (mode_ && mode_->at_ns <= now_ns) {
    due.mode = mode_;
    SetMode(std::nullopt);
  }
  return due;
}

}  // namespace cw::deadlines
