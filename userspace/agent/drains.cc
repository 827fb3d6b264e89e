// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/drains.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/statusor.h"

namespace cw::agent {
namespace {

using nlohmann::json;

constexpr int64_t kSecondNs = 1'000'000'000;

uint16_t MaskOf(const std::map<uint32_t, uint16_t>& masks, uint32_t pair) {
  const auto found = masks.find(pair);
  return found == masks.end() ? uint16_t{0} : found->second;
}

[[noreturn]] void Refuse(const char* why) { throw json::other_error::create(0, why, nullptr); }

Addr AddrFrom(const json& text) {
  absl::StatusOr<Addr> addr = Addr::Parse(text.get<std::string>());
  if (!addr.ok()) Refuse("no address");
  return *addr;
}

json DrainToJson(const DrainEntry& entry) {
  json ports = json::array(), moved = json::array();
  for (const auto& [pair, list] : entry.ports) {
    ports.push_back({{"local", pair.local.ToString()}, {"remote", pair.remote.ToString()}, {"ports", list}});
  }
  for (const auto& [flow, move] : entry.moved) {
    moved.push_back({{"source", flow.src.ToString()},
                     {"destination", flow.dst.ToString()},
                     {"qpn", flow.dqpn},
                     {"from", move.from},
                     {"to", move.to}});
  }
  return {{"kind", control::DrainKindName(entry.kind)},
          {"what", entry.what},
          {"since_ns", entry.since_ns},
          {"until_ns", entry.until_ns},
          {"now", entry.now},
          {"ports", ports},
          {"moved", moved}};
}

// Throws what json throws; Load catches.
DrainEntry EntryFrom(const json& from) {
  DrainEntry entry;
  const auto kind = control::ParseDrainKind(from.at("kind").get<std::string>());
  if (!kind) Refuse("no such kind");
  entry.kind = *kind;
  entry.what = from.at("what").get<std::string>();
  entry.since_ns = from.at("since_ns").get<int64_t>();
  entry.until_ns = from.at("until_ns").get<int64_t>();
  entry.now = from.at("now").get<bool>();
  for (const json& pair : from.at("ports")) {
    entry.ports[{AddrFrom(pair.at("local")), AddrFrom(pair.at("remote"))}] = pair.at("ports").get<std::set<uint16_t>>();
  }
  for (const json& flow : from.at("moved")) {
    const FlowKey key{.src = AddrFrom(flow.at("source")),
                      .dst = AddrFrom(flow.at("destination")),
                      .dqpn = flow.at("qpn").get<uint32_t>()};
    entry.moved[key] = {.from = flow.at("from").get<uint16_t>(), .to = flow.at("to").get<uint16_t>()};
  }
  return entry;
}

}  // namespace

void DrainEntry::Sent(int64_t now_ns, uint64_t bytes) {
  if (bytes > 0) {
    sent.emplace_back(now_ns, bytes);
    last_sent_ns = now_ns;
    told_safe = false;
  }
  while (!sent.empty() && sent.front().first <= now_ns - kSecondNs) sent.pop_front();
}

void DrainEntry::SentUnseen(int64_t now_ns) {
  last_sent_ns = now_ns;
  told_safe = false;
}

uint16_t DrainEntry::CrossingOf(uint32_t pair) const { return MaskOf(crossing, pair); }
uint16_t DrainEntry::UnknownOf(uint32_t pair) const { return MaskOf(unknown, pair); }

uint64_t DrainEntry::BytesLastSecond(int64_t now_ns) const {
  uint64_t sum = 0;
  for (const auto& [at_ns, bytes] : sent) sum += at_ns > now_ns - kSecondNs ? bytes : 0;
  return sum;
}

double DrainEntry::QuietS(int64_t now_ns) const {
  return static_cast<double>(now_ns - std::max(since_ns, last_sent_ns)) / 1e9;
}

absl::Status Drains::Load() {
  absl::Status loaded = file_.Load([this](const json& state) {
    std::map<std::string, DrainEntry> entries;
    for (const json& entry : state.at("drains")) {
      DrainEntry read = EntryFrom(entry);
      const std::string what = read.what;
      entries[what] = std::move(read);
    }
    entries_ = std::move(entries);
  });
  changed_ = !loaded.ok();
  return loaded;
}

absl::Status Drains::Save() {
  if (!changed_) return absl::OkStatus();
  json list = json::array();
  for (const auto& [what, entry] : entries_) list.push_back(DrainToJson(entry));
  const absl::Status saved = list.empty() ? file_.Remove() : file_.Save({{"drains", list}});
  changed_ = !saved.ok();
  return saved;
}

}  // namespace cw::agent
