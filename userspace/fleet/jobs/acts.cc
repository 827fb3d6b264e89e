// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/jobs/acts.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

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

std::string FlowsText(size_t n) {
  return absl::StrCat(n >= ActBook::kMostFlows ? "at least " : "", Counted(n, "flow"));
}

// False: it is no act.
bool Read(const HostEvent& event, FlowAct& act) {
  if (event.flow.empty() || event.alert) return false;  // an alert: it was refused
  act = {.host = event.host, .peer = event.peer, .flow = event.flow, .time_ns = event.time_ns, .dry = event.dry};
  act.back = event.type == "return";
  if (act.back) return !Has(event, "taken_back", "1");
  if (event.type != "move") return false;
  for (const auto& [name, value] : event.evidence) {
    uint32_t port = 0;
    if (name == "udp_port_before" && absl::SimpleAtoi(value, &port) && port <= UINT16_MAX)
      act.port_before = static_cast<uint16_t>(port);
  }
  return true;
}

}  // namespace

void ActBook::Take(const HostEvent& event) {
  FlowAct act;
  if (!Read(event, act)) return;
  if (acts_.size() >= 4 * kMost) return;  // hosts that flood: those behind the oldest go with it
  std::deque<Record*>& own = of_host_[act.host];
  if (own.size() >= kMostOfHost || (acts_.size() >= kMost && own.size() >= kAlways)) {
    own.front()->dropped = true;
    own.pop_front();
  }
  acts_.push_back({.number = ++number_, .act = std::move(act), .way = std::nullopt});
  own.push_back(&acts_.back());  // stays where it is: a deque grows and shrinks at its ends
}

void ActBook::Age(int64_t now_ns) {
  looks_ = 0;
  const int64_t old_ns = now_ns - absl::ToInt64Nanoseconds(kLately);
  while (!acts_.empty() && (acts_.front().dropped || acts_.front().act.time_ns < old_ns)) {
    if (!acts_.front().dropped) {
      const auto own = of_host_.find(acts_.front().act.host);
      own->second.pop_front();
      if (own->second.empty()) of_host_.erase(own);
    }
    acts_.pop_front();
  }
  const int64_t unasked_ns = now_ns - absl::ToInt64Nanoseconds(kComesBack);
  std::erase_if(done_, [&](const auto& entry) { return entry.second.asked_ns < unasked_ns; });
}

ActBook::Place ActBook::PlaceOf(const Finding& finding, const Topology& topology) {
  Place place;
  absl::string_view what = finding.scope;
  if (absl::ConsumePrefix(&what, "host ")) {
    place.host = std::string(what);
  } else if (absl::ConsumePrefix(&what, "NIC ")) {
    if (const absl::StatusOr<Addr> nic = Addr::Parse(what); nic.ok()) place.nics.insert(*nic);
  } else if (absl::ConsumePrefix(&what, "switch ")) {
    for (const Switch& s : topology.switches) {
      if (s.name == what) place.ports.insert(s.addresses.begin(), s.addresses.end());
    }
  } else {
    for (const LinkId& link : finding.links) place.ports.insert(link.second);
  }
  return place;
}

bool ActBook::Left(const Record& record, const Place& place) {
  const auto any = [](const std::vector<Addr>& of, const absl::flat_hash_set<Addr>& in) {
    return !in.empty() && std::any_of(of.begin(), of.end(), [&](const Addr& a) { return in.contains(a); });
  };
  return (!place.host.empty() && record.act.peer == place.host) || any(record.way->ports, place.ports) ||
         any(record.way->nics, place.nics);
}

// Whether it is one more.
bool ActBook::Count(Done& done, const FlowAct& act) const {
  Flow flow{act.host, act.flow};
  if (act.back) return done.moved.contains(flow) && done.back.insert(std::move(flow)).second;
  std::set<Flow>& flows = act.dry ? done.dry : done.moved;
  if (!act.dry) {
    done.first_ns = done.first_ns == 0 ? act.time_ns : std::min(done.first_ns, act.time_ns);
    done.last_ns = std::max(done.last_ns, act.time_ns);
    done.back.erase(flow);
  }
  return flows.size() < kMostFlows && flows.insert(std::move(flow)).second;
}

bool ActBook::Look(const Finding& finding, const Topology& topology, int64_t now_ns, WayOf way_of) {
  Done& done = done_[finding.id];
  done.asked_ns = now_ns;
  const int64_t from_ns = finding.start_ns - absl::ToInt64Nanoseconds(kBefore);
  auto record = std::upper_bound(acts_.begin(), acts_.end(), done.through,
                                 [](uint64_t number, const Record& r) { return number < r.number; });
  if (record != acts_.end()) {
    const Place place = PlaceOf(finding, topology);
    for (; record != acts_.end() && looks_ < kMostLooks; ++record, ++looks_) {
      done.through = record->number;
      if (record->dropped || record->act.time_ns < from_ns) continue;
      if (!record->act.back) {
        if (!record->way) record->way = way_of(record->act);
        if (!Left(*record, place)) continue;
      }
      done.news |= Count(done, record->act);
    }
  }
  if (!done.news || (done.told_ns != 0 && absl::Nanoseconds(now_ns - done.told_ns) < kTellAgain)) return false;
  done.told_ns = now_ns;
  done.news = false;
  return true;
}

std::vector<std::string> ActBook::Did(uint64_t finding) const {
  const auto at = done_.find(finding);
  std::vector<std::string> did;
  if (at == done_.end()) return did;
  const Done& done = at->second;
  if (!done.moved.empty())
    did.push_back(absl::StrFormat("%s of %s left it, %s to %s UTC", FlowsText(done.moved.size()),
                                  Counted(HostsOf(done.moved), "host"), ClockText(done.first_ns),
                                  ClockText(done.last_ns)));
  if (!done.back.empty()) did.push_back(absl::StrCat(FlowsText(done.back.size()), " went back"));
  if (!done.dry.empty())
    did.push_back(absl::StrFormat("%s of %s would have left it, but the mode is observe", FlowsText(done.dry.size()),
                                  Counted(HostsOf(done.dry), "host")));
  return did;
}

}  // namespace cw::fleet
