// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/jobs/acts.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::fleet {
namespace {

std::string ClockText(int64_t time_ns) {
  return absl::FormatTime("%H:%M:%E3S", absl::FromUnixNanos(time_ns), absl::UTCTimeZone());
}

bool Has(const HostEvent& event, absl::string_view name, absl::string_view value) {
  return std::any_of(event.evidence.begin(), event.evidence.end(),
                     [&](const auto& e) { return e.first == name && e.second == value; });
}

size_t HostsOf(const std::set<std::pair<std::string, std::string>>& flows) {
  std::set<std::string> hosts;
  for (const auto& [host, flow] : flows) hosts.insert(host);
  return hosts.size();
}

std::string Counted(size_t n, const char* one) { return absl::StrCat(n, " ", one, n == 1 ? "" : "s"); }

}  // namespace

void ActBook::Take(const HostEvent& event) {
  FlowAct act{.host = event.host, .peer = event.peer, .flow = event.flow, .time_ns = event.time_ns, .dry = event.dry};
  if (act.flow.empty() || event.alert) return;  // an alert: it was refused
  if (event.type == "move") {
    for (const auto& [name, value] : event.evidence) {
      uint32_t port = 0;
      if (name == "udp_port_before" && absl::SimpleAtoi(value, &port) && port <= UINT16_MAX)
        act.port_before = static_cast<uint16_t>(port);
    }
    if (act.port_before == 0) return;
  } else if (event.type != "return" || Has(event, "taken_back", "1")) {
    return;
  }
  size_t& of_host = of_host_[act.host];
  if (of_host >= kMostOfHost) return;
  ++of_host;
  acts_.push_back({++number_, std::move(act)});
}

void ActBook::Age(int64_t now_ns) {
  const int64_t old_ns = now_ns - absl::ToInt64Nanoseconds(kLately);
  while (!acts_.empty() && (acts_.size() > kMost || acts_.front().act.time_ns < old_ns)) {
    const auto count = of_host_.find(acts_.front().act.host);
    if (--count->second == 0) of_host_.erase(count);
    acts_.pop_front();
  }
}

bool ActBook::Count(Done& done, const FlowAct& act, absl::FunctionRef<bool(const FlowAct&)> crosses) const {
  Flow flow{act.host, act.flow};
  if (act.port_before == 0) return done.moved.contains(flow) && done.back.insert(std::move(flow)).second;
  std::set<Flow>& flows = act.dry ? done.dry : done.moved;
  if (flows.size() >= kMostFlows || !crosses(act)) return false;
  if (!act.dry) {
    done.first_ns = done.first_ns == 0 ? act.time_ns : std::min(done.first_ns, act.time_ns);
    done.last_ns = std::max(done.last_ns, act.time_ns);
    done.back.erase(flow);
  }
  flows.insert(std::move(flow));
  return true;
}

bool ActBook::Look(const Finding& finding, absl::FunctionRef<bool(const FlowAct&)> crosses) {
  Done& done = done_[finding.id];
  const int64_t from_ns = finding.start_ns - absl::ToInt64Nanoseconds(kBefore);
  const auto first = std::upper_bound(acts_.begin(), acts_.end(), done.through,
                                      [](uint64_t number, const Record& record) { return number < record.number; });
  bool news = false;
  for (auto record = first; record != acts_.end(); ++record) {
    if (record->act.time_ns >= from_ns) news |= Count(done, record->act, crosses);
  }
  done.through = number_;
  return news;
}

std::vector<std::string> ActBook::Did(uint64_t finding) const {
  const auto at = done_.find(finding);
  std::vector<std::string> did;
  if (at == done_.end()) return did;
  const Done& done = at->second;
  if (!done.moved.empty())
    did.push_back(absl::StrFormat("%s of %s left it, %s to %s UTC", Counted(done.moved.size(), "flow"),
                                  Counted(HostsOf(done.moved), "host"), ClockText(done.first_ns),
                                  ClockText(done.last_ns)));
  if (!done.back.empty()) did.push_back(absl::StrCat(Counted(done.back.size(), "flow"), " went back"));
  if (!done.dry.empty())
    did.push_back(absl::StrFormat("%s of %s would have left it, but the mode is observe",
                                  Counted(done.dry.size(), "flow"), Counted(HostsOf(done.dry), "host")));
  return did;
}

void ActBook::Forget(const std::set<uint64_t>& but_these) {
  std::erase_if(done_, [&](const auto& entry) { return !but_these.contains(entry.first); });
}

}  // namespace cw::fleet
