// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/losses.h"

#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/lab/netns.h"

namespace cw::bench {
namespace {

struct Field {
  uint64_t Losses::*value;
  const char* name;
};
constexpr Field kFields[] = {{&Losses::naks, "NAKs"},
                             {&Losses::duplicates, "packets that came twice"},
                             {&Losses::out_of_order, "packets out of order"},
                             {&Losses::timeouts, "timeouts"},
                             {&Losses::icrc_errors, "wrong ICRCs"},
                             {&Losses::retransmissions, "packets sent again"},
                             {&Losses::interface_drops, "packets dropped by interfaces"},
                             {&Losses::died, "queue pairs died"},
                             {&Losses::emulator_drops, "packets that the emulator had no room for"}};

absl::StatusOr<uint64_t> InterfaceDrops(const lab::Fabric& fabric) {
  std::vector<std::string> places;
  for (int i = 0; i < fabric.hosts(); ++i) places.push_back(fabric.HostNetns(i));
  for (int i = 0; i < fabric.spec().leaves; ++i) places.push_back(fabric.LeafNetns(i));
  for (int i = 0; i < fabric.spec().spines; ++i) places.push_back(fabric.SpineNetns(i));
  uint64_t drops = 0;
  for (const std::string& place : places) {
    const absl::Status status = lab::RunInNetns(place, [&] {
      std::ostringstream text;
      text << std::ifstream("/proc/thread-self/net/dev").rdbuf();
      drops += DropsIn(text.str());
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
  }
  return drops;
}

}  // namespace

Losses Losses::operator-(const Losses& earlier) const {
  Losses difference;
  for (const Field& field : kFields) difference.*field.value = this->*field.value - earlier.*field.value;
  return difference;
}

Losses Losses::operator+(const Losses& other) const {
  Losses sum;
  for (const Field& field : kFields) sum.*field.value = this->*field.value + other.*field.value;
  return sum;
}

std::string Losses::Text() const {
  std::vector<std::string> parts;
  for (const Field& field : kFields) {
    if (this->*field.value > 0) parts.push_back(absl::StrCat(this->*field.value, " ", field.name));
  }
  return parts.empty() ? "nothing" : absl::StrJoin(parts, ", ");
}

absl::StatusOr<Losses> ReadLosses(const lab::Fabric& fabric, const lab::Emulator& emulator) {
  Losses losses;
  const lab::Snapshot snapshot = emulator.TakeSnapshot();
  for (const lab::FlowReport& flow : snapshot.flows) {
    for (const lab::QpCounters* end : {&flow.requester, &flow.responder}) {
      losses.naks += end->naks_received;
      losses.duplicates += end->duplicates;
      losses.out_of_order += end->out_of_order;
      losses.timeouts += end->timeouts;
      losses.retransmissions += end->retransmissions;
    }
  }
  const lab::PortCounters ports = snapshot.Total();
  losses.icrc_errors = ports.icrc_errors;
  losses.emulator_drops = ports.ring_drops + ports.send_errors;
  losses.died = static_cast<uint64_t>(snapshot.FlowsDied());
  const absl::StatusOr<uint64_t> drops = InterfaceDrops(fabric);
  if (!drops.ok()) return drops.status();
  losses.interface_drops = *drops;
  return losses;
}

uint64_t DropsIn(const std::string& proc_net_dev) {
  uint64_t drops = 0;
  std::istringstream lines(proc_net_dev);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;  // the heading
    const std::string name = line.substr(line.find_first_not_of(' '), colon - line.find_first_not_of(' '));
    if (name == "lo" || absl::StartsWith(name, "mgmt")) continue;
    // Received: bytes, packets, errors, dropped, …; sent, from the ninth on, alike.
    std::istringstream fields(line.substr(colon + 1));
    uint64_t value = 0;
    for (int at = 0; fields >> value; ++at) drops += at == 3 || at == 11 ? value : 0;
  }
  return drops;
}

}  // namespace cw::bench
