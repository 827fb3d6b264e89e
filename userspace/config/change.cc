// SPDX-License-Identifier: Apache-2.0
#include "userspace/config/change.h"

#include <openssl/sha.h>

#include <algorithm>
#include <iterator>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cw::config {
namespace {

// A key, or all of a table with a dot at its end. What is not here shapes maps, sockets, threads or files that the
// agent opens once.
constexpr absl::string_view kLive[] = {
    "mode",
    "scope",
    "peer",
    "peers_file",
    "peers_dir",
    "keys.",
    "probe.active_interval",
    "probe.idle_interval",
    "probe.clock_interval",
    "probe.budget_pps",
    "probe.discovery_pps",
    "probe.pause_dscp",
    "liveness.",
    "samples.",
    "steering.assign_new_flows",
    "steering.repair_tails",
    "steering.move_gap",
    "steering.lease",
    "steering.queueing_floor",
    "steering.queueing_factor",
    "steering.target_factor",
    "steering.path_gbps",
    "steering.moves_per_second",
    "steering.find_causes",
    "steering.loss_limit",
    "steering.return_step",
    "steering.breaker_hold",
    "steering.allow.",
    "inproc.place",
    "profile.",
    "metrics.",
    "fleet.",
    "log.level",
};

struct Entry {
  std::string key, value;
};

// The lines of ToToml as keys and values.
std::vector<Entry> Flatten(const Config& config) {
  std::vector<Entry> entries;
  std::string table;
  bool array = false;
  for (absl::string_view line : absl::StrSplit(ToToml(config), '\n', absl::SkipEmpty())) {
    array = absl::StartsWith(line, "[[") || (array && !absl::StartsWith(line, "["));
    if (absl::StartsWith(line, "[[")) {
      table = std::string(line.substr(2, line.size() - 4));
      if (entries.empty() || entries.back().key != table) entries.push_back({table, ""});
      absl::StrAppend(&entries.back().value, line, "\n");
    } else if (absl::StartsWith(line, "[")) {
      table = std::string(line.substr(1, line.size() - 2));
    } else if (array) {
      absl::StrAppend(&entries.back().value, line, "\n");
    } else {
      const std::pair<absl::string_view, absl::string_view> split = absl::StrSplit(line, absl::MaxSplits(" = ", 1));
      entries.push_back({table.empty() ? std::string(split.first) : absl::StrCat(table, ".", split.first),
                         std::string(split.second)});
    }
  }
  return entries;
}

std::string Unflatten(const std::vector<Entry>& entries) {
  std::string text, table;
  for (const Entry& entry : entries) {
    if (absl::StartsWith(entry.value, "[[")) {
      absl::StrAppend(&text, entry.value);
      continue;
    }
    const size_t dot = entry.key.rfind('.');
    const std::string in = dot == std::string::npos ? "" : entry.key.substr(0, dot);
    if (in != table) absl::StrAppend(&text, "[", in, "]\n");
    table = in;
    absl::StrAppend(&text, entry.key.substr(dot == std::string::npos ? 0 : dot + 1), " = ", entry.value, "\n");
  }
  return text;
}

std::string ValueOf(const std::vector<Entry>& entries, absl::string_view key) {
  const auto at = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.key == key; });
  return at == entries.end() ? "" : at->value;
}

// `first`, and behind it the arrays that only `second` has.
std::vector<Entry> WithKeysOf(std::vector<Entry> first, const std::vector<Entry>& second) {
  for (const Entry& entry : second) {
    const bool has = std::any_of(first.begin(), first.end(), [&](const Entry& e) { return e.key == entry.key; });
    if (!has) first.push_back({entry.key, ""});
  }
  return first;
}

}  // namespace

bool TakenLive(absl::string_view key) {
  return std::any_of(std::begin(kLive), std::end(kLive), [&](absl::string_view live) {
    return absl::EndsWith(live, ".") ? absl::StartsWith(key, live) : key == live;
  });
}

std::vector<Change> Changes(const Config& running, const Config& fresh) {
  const std::vector<Entry> before = Flatten(running), after = Flatten(fresh);
  std::vector<Change> changes;
  for (const Entry& entry : WithKeysOf(before, after)) {
    std::string to = ValueOf(after, entry.key);
    if (entry.value != to) changes.push_back({entry.key, entry.value, std::move(to), TakenLive(entry.key)});
  }
  return changes;
}

absl::StatusOr<Config> MergeLive(const Config& running, const Config& fresh) {
  const std::vector<Entry> after = Flatten(fresh);
  std::vector<Entry> merged = WithKeysOf(Flatten(running), after);
  for (Entry& entry : merged) {
    if (TakenLive(entry.key)) entry.value = ValueOf(after, entry.key);
  }
  std::erase_if(merged, [](const Entry& entry) { return entry.value.empty(); });
  absl::StatusOr<Config> both = ParseConfig(Unflatten(merged), "what runs, with what is taken at once");
  if (both.ok()) return both;
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(both.status().message()), "; restart the agent to take all of the file"));
}

std::string Fingerprint(const Config& config) {
  const std::string text = ToToml(config);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), 8));
}

}  // namespace cw::config
