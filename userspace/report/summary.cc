// SPDX-License-Identifier: Apache-2.0
#include "userspace/report/summary.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "userspace/model/regular_file.h"

namespace cw::report {
namespace {

std::vector<std::string> KeysOf(const Item& item, By by) {
  switch (by) {
    case By::kKind:
      return {item.kind};
    case By::kJob:
      return {item.job.empty() ? "(not known)" : item.job};
    case By::kPair:
      return {item.pair};
    case By::kLink:
      break;
  }
  if (item.links.empty()) return {"(not known)"};
  const std::set<std::string> once(item.links.begin(), item.links.end());
  return {once.begin(), once.end()};
}

struct Sum {
  Group group;
  std::set<std::string> flows;
  void Add(const Item& item) {
    group.decisions += item.times;
    if (!item.flow.empty()) flows.insert(item.flow);
    if (item.stall_ms) group.stall_ms += *item.stall_ms;
    group.stall_longest_ms = std::max(group.stall_longest_ms, item.stall_ms.value_or(0));
    if (item.goodput_share) {
      group.goodput_share += (*item.goodput_share - group.goodput_share) / static_cast<double>(++group.goodput_items);
    }
    group.unknown += !item.stall_ms && !item.goodput_share;
    if (group.first_unix_ns == 0) group.first_unix_ns = item.time_unix_ns;
    group.last_unix_ns = std::max(group.last_unix_ns, item.time_unix_ns);
  }
};

}  // namespace

void Read(std::istream& in, Items& out) {
  std::map<std::tuple<int64_t, std::string, std::string>, size_t> where;
  for (size_t i = 0; i < out.items.size(); ++i) {
    where[{out.items[i].time_unix_ns, out.items[i].kind, out.items[i].flow}] = i;
  }
  std::string line;
  while (std::getline(in, line)) {
    if (line.empty()) continue;
    std::optional<Item> item = FromLine(line);
    if (!item) {
      ++out.torn;
      continue;
    }
    const auto [at, fresh] = where.try_emplace({item->time_unix_ns, item->kind, item->flow}, out.items.size());
    if (fresh) {
      out.items.push_back(*std::move(item));
    } else {
      out.items[at->second] = *std::move(item);
    }
  }
  std::stable_sort(out.items.begin(), out.items.end(),
                   [](const Item& a, const Item& b) { return a.time_unix_ns < b.time_unix_ns; });
}

absl::StatusOr<Items> ReadFiles(const std::string& file) {
  Items items;
  bool any = false;
  for (const std::string& name : {file + ".1", file}) {
    const absl::Status good = CheckRegularFile(name);
    if (absl::IsInvalidArgument(good)) return good;
    std::ifstream in(name);
    if (!good.ok() || !in) continue;
    any = true;
    Read(in, items);
  }
  if (!any)
    return absl::NotFoundError(absl::StrCat("cannot read ", file, "; is log.report_file set, and may you read it?"));
  return items;
}

std::vector<Group> Summarise(const Items& items, int64_t since_unix_ns, By by) {
  std::map<std::string, Sum> sums;
  for (const Item& item : items.items) {
    if (item.time_unix_ns < since_unix_ns) continue;
    for (const std::string& key : KeysOf(item, by)) sums[key].Add(item);
  }
  std::vector<Group> groups;
  for (auto& [key, sum] : sums) {
    sum.group.key = key;
    sum.group.flows = sum.flows.size();
    groups.push_back(sum.group);
  }
  std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    return std::tuple(-a.stall_ms, -a.goodput_share * static_cast<double>(a.goodput_items)) <
           std::tuple(-b.stall_ms, -b.goodput_share * static_cast<double>(b.goodput_items));
  });
  return groups;
}

}  // namespace cw::report
