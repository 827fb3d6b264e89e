// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/drains.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace cw::agent {
namespace {

using nlohmann::json;

constexpr int kDrainsVersion = 1;
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
  std::ifstream file(file_);
  if (!file) return absl::NotFoundError(absl::StrCat("there is no ", file_));
  std::ostringstream text;
  text << file.rdbuf();
  try {
    const json state = json::parse(text.str());
    if (state.at("boot").get<std::string>() != boot_) {
      changed_ = true;
      return absl::NotFoundError(absl::StrCat(file_, " is of an earlier boot"));
    }
    if (state.at("version").get<int>() != kDrainsVersion) Refuse("other version");
    std::map<std::string, DrainEntry> entries;
    for (const json& entry : state.at("drains")) {
      DrainEntry read = EntryFrom(entry);
      const std::string what = read.what;
      entries[what] = std::move(read);
    }
    entries_ = std::move(entries);
  } catch (const json::exception& error) {
    changed_ = true;
    return absl::InvalidArgumentError(absl::StrCat(file_, ": ", error.what()));
  }
  return absl::OkStatus();
}

absl::Status Drains::Save() {
  if (!changed_) return absl::OkStatus();
  if (entries_.empty()) {
    if (unlink(file_.c_str()) != 0 && errno != ENOENT)
      return absl::ErrnoToStatus(errno, absl::StrCat("remove ", file_));
    changed_ = false;
    return absl::OkStatus();
  }
  json state = {{"version", kDrainsVersion}, {"boot", boot_}, {"drains", json::array()}};
  for (const auto& [what, entry] : entries_) state["drains"].push_back(DrainToJson(entry));
  // As in Deadlines: a rename, so that a killed agent leaves the old file or the new one.
  const std::string fresh = file_ + ".new";
  std::ofstream out(fresh, std::ios::trunc);
  out << state.dump(2) << '\n';
  out.close();
  if (!out) return absl::InternalError(absl::StrCat("cannot write ", fresh));
  if (std::rename(fresh.c_str(), file_.c_str()) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("write ", file_));
  changed_ = false;
  return absl::OkStatus();
}

}  // namespace cw::agent
