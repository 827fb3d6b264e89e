// SPDX-License-Identifier: Apache-2.0
#include "userspace/model/cpu_list.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cw {
namespace {

// Digits alone: no sign, no space.
bool Number(absl::string_view text, int& out) {
  return std::all_of(text.begin(), text.end(), absl::ascii_isdigit) && absl::SimpleAtoi(text, &out) && out < kMaxCpus;
}

}  // namespace

absl::StatusOr<std::vector<int>> ParseCpuList(const std::string& text) {
  std::set<int> cpus;
  if (text.empty()) return std::vector<int>();
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
    int first = 0, last = 0;
    if (!Number(ends.front(), first) || !Number(ends.back(), last) || last < first) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", text, "\" is no list of processors; write it like \"0-1,8\""));
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
  }
  return std::vector<int>(cpus.begin(), cpus.end());
}

std::string CpuListText(const std::vector<int>& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ",", cpus[i]);
    if (last > i) absl::StrAppend(&text, "-", cpus[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace cw
