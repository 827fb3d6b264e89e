// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/findings/event_book.h"

#include "absl/strings/string_view.h"
#include "userspace/model/utf8.h"

namespace cw::fleet {
namespace {

std::string ValueOf(const HostEvent& event, absl::string_view name) {
  for (const auto& [key, value] : event.evidence) {
    if (key == name) return CutUtf8(value, 256);
  }
  return "";
}

template <typename Map, typename Value>
void Put(Map& map, const std::string& key, Value value) {
  if (map.size() < EventBook::kMostOfHost || map.contains(key)) map[key] = std::move(value);
}

void TakeNic(const HostEvent& event, EventBook::Host& host) {
  const std::string nic = ValueOf(event, "nic"), carrier = ValueOf(event, "carrier");
  if (nic.empty() || carrier.empty()) return;  // of a pair, or of a device
  if (carrier == "up" && ValueOf(event, "rdma_port") != "down") {
    host.nics_down.erase(nic);
  } else if (!host.nics_down.contains(nic)) {
    Put(host.nics_down, nic, EventBook::NicWord{event.time_ns, carrier == "up"});
  }
}

void TakeCause(const HostEvent& event, EventBook::Host& host) {
  if (event.flow.empty()) return;  // of a pair: its paths tell more
  const std::string cause = ValueOf(event, "cause");
  if (cause == "slow receiver" || cause == "slow sender") {
    Put(host.slow, event.flow, EventBook::SlowWord{cause, event.peer, ValueOf(event, "job"), event.time_ns});
  } else {
    host.slow.erase(event.flow);
  }
}

void TakeClock(const HostEvent& event, EventBook::Host& host) {
  if (event.peer.empty() || ValueOf(event, "disagreement_ns").empty()) return;
  if (event.alert) {
    Put(host.false_tickers, event.peer, event.time_ns);
  } else {
    host.false_tickers.erase(event.peer);
  }
}

void TakeLink(const HostEvent& event, EventBook::Host& host) {
  const std::string link = ValueOf(event, "link");
  // Several: that host cannot tell which.
  if (!event.alert || link.empty() || link.find(' ') != std::string::npos) return;
  Put(host.flapping, link, EventBook::FlapWord{ValueOf(event, "flaps"), event.time_ns});
}

}  // namespace

void EventBook::Take(const HostEvent& event) {
  if (hosts_.size() >= kMostHosts && !hosts_.contains(event.host)) return;
  Host& host = hosts_[event.host];
  // A new agent begins without flows and neighbours; what it says of NICs it says anew.
  if (host.run != event.run) host = {.run = event.run, .flapping = std::move(host.flapping)};
  if (event.type == "nic") TakeNic(event, host);
  if (event.type == "cause") TakeCause(event, host);
  if (event.type == "clock") TakeClock(event, host);
  if (event.type == "link") TakeLink(event, host);
}

}  // namespace cw::fleet
