// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/machine_drops.h"

#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace cw::lab {

uint64_t DroppedBySoftnet(absl::string_view softnet_stat) {
  uint64_t sum = 0;
  for (const absl::string_view line : absl::StrSplit(softnet_stat, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t dropped = 0;
    if (words.size() > 1 && absl::SimpleHexAtoi(words[1], &dropped)) sum += dropped;
  }
  return sum;
}

uint64_t MachineDrops() {
  std::ifstream file("/proc/net/softnet_stat");
  return DroppedBySoftnet(std::string(std::istreambuf_iterator<char>(file), {}));
}

std::string MachineDropsText(uint64_t drops) {
  if (drops == 0) return "";
  return absl::StrFormat(
      "this machine is too small for that: its own processors lost %d packets on the links of the lab, which agents "
      "call "
      "losses; send less, or fewer hosts\n",
      drops);
}

}  // namespace cw::lab
