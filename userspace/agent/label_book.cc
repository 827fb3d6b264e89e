// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/label_book.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cw::agent {
namespace {
constexpr size_t kStartField = 19;  // of /proc/PID/stat, counted from behind the name: starttime is field 22
}  // namespace

absl::Status LabelBook::Check(const std::string& label) const {
  if (label.empty() || label.size() > kLongest)
    return absl::InvalidArgumentError(absl::StrCat("a label has 1 to ", kLongest, " bytes"));
  if (by_pid_.size() + by_cgroup_.size() >= kMost)
    return absl::ResourceExhaustedError(absl::StrCat("there are ", kMost, " labels: clear some (cwctl label list)"));
  return absl::OkStatus();
}

uint64_t LabelBook::StartedOf(uint32_t pid) const {
  const std::string text = host::ReadTrimmed(absl::StrCat(roots_.proc, "/", pid, "/stat")).value_or("");
  const size_t name_end = text.rfind(") ");  // the name may have blanks and brackets
  if (name_end == std::string::npos) return 0;
  const std::vector<std::string> fields = absl::StrSplit(text.substr(name_end + 2), ' ');
  uint64_t started = 0;
  return fields.size() > kStartField && absl::SimpleAtoi(fields[kStartField], &started) ? started : 0;
}

std::string LabelBook::CgroupOf(uint32_t pid) const {
  const std::string text = host::ReadTrimmed(absl::StrCat(roots_.proc, "/", pid, "/cgroup")).value_or("");
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "0::")) return std::string(line.substr(3));
  }
  return "";
}

absl::Status LabelBook::SetPid(uint32_t pid, const std::string& label) {
  if (absl::Status status = Check(label); !status.ok()) return status;
  const uint64_t started = StartedOf(pid);
  if (started == 0) return absl::NotFoundError(absl::StrCat("there is no process ", pid, " on this host"));
  by_pid_[pid] = {.label = {.pid = pid, .cgroup = "", .label = label}, .started = started};
  return absl::OkStatus();
}

absl::Status LabelBook::SetCgroup(const std::string& cgroup, const std::string& label) {
  if (absl::Status status = Check(label); !status.ok()) return status;
  if (cgroup.size() < 2 || cgroup[0] != '/' || cgroup.back() == '/')
    return absl::InvalidArgumentError("a control group is named as in /proc/PID/cgroup: /system.slice/job7");
  by_cgroup_[cgroup] = {.pid = 0, .cgroup = cgroup, .label = label};
  return absl::OkStatus();
}

size_t LabelBook::ClearPid(uint32_t pid) { return by_pid_.erase(pid); }
size_t LabelBook::ClearCgroup(const std::string& cgroup) { return by_cgroup_.erase(cgroup); }

size_t LabelBook::ClearAll() {
  const size_t all = by_pid_.size() + by_cgroup_.size();
  by_pid_.clear();
  by_cgroup_.clear();
  return all;
}

const Label* LabelBook::Of(uint32_t pid) {
  if (pid == 0) return nullptr;
  if (const auto own = by_pid_.find(pid); own != by_pid_.end()) return &own->second.label;
  if (by_cgroup_.empty()) return nullptr;
  const auto [at, added] = cgroups_.try_emplace(pid);
  if (added) at->second = CgroupOf(pid);
  for (std::string group = at->second; !group.empty(); group.resize(group.rfind('/'))) {
    if (const auto found = by_cgroup_.find(group); found != by_cgroup_.end()) return &found->second;
  }
  return nullptr;
}

std::vector<Label> LabelBook::All() const {
  std::vector<Label> all;
  for (const auto& [pid, entry] : by_pid_) all.push_back(entry.label);
  for (const auto& [cgroup, label] : by_cgroup_) all.push_back(label);
  return all;
}

void LabelBook::Refresh() {
  cgroups_.clear();
  for (auto at = by_pid_.begin(); at != by_pid_.end();) {
    at = StartedOf(at->first) == at->second.started ? std::next(at) : by_pid_.erase(at);
  }
}

}  // namespace cw::agent
