// SPDX-License-Identifier: Apache-2.0
#include "userspace/metrics/hw_counters.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/host/hw_counter_names.h"
#include "userspace/host/rdma_tree.h"
#include "userspace/host/roots.h"

namespace cw::metrics {
namespace {

void ReadPort(const std::string& folder, const std::string& device, const std::string& port, HwCounters& out) {
  for (const auto& [name, value] : host::ReadCounters(folder)) {
    if (out.counters.size() < kMaxHwCounters) {
      out.counters.push_back({device, port, name, value});
    } else {
      ++out.left_out;
    }
  }
}

}  // namespace

HwCounters ReadHwCounters(const std::string& sys_root) {
  HwCounters out;
  const std::string devices = sys_root + "/class/infiniband";
  for (const std::string& device : host::ListFolder(devices)) {
    const std::string ports = absl::StrCat(devices, "/", device, "/ports");
    for (const std::string& port : host::ListFolder(ports))
      ReadPort(absl::StrCat(ports, "/", port, "/hw_counters"), device, port, out);
  }
  return out;
}

bool IsHwGauge(const std::string& name) {
  return absl::StartsWith(name, "active_") || absl::StartsWith(name, "watermark_");
}

std::string HwMetricName(const std::string& name) {
  std::string out;
  for (const char c : name) out += absl::ascii_isalnum(c) ? absl::ascii_tolower(c) : '_';
  return IsHwGauge(name) || absl::EndsWith(out, "_total") ? out : out + "_total";
}

std::string HwMetricHelp(const std::string& name) {
  const std::string known = host::HwCounterMeaning(name);
  const std::string what = absl::StrCat("hw_counter ", name, " of an RDMA port, as its driver tells it");
  return known.empty() ? absl::StrCat(what, ".") : absl::StrCat(what, ": ", known, ".");
}

}  // namespace cw::metrics
