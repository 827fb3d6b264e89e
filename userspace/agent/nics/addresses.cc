// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/addresses.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "userspace/agent/nic_address.h"

namespace cw::agent {
namespace {

constexpr uint32_t kLoopback = 1;  // its ifindex in each network namespace

}  // namespace

// A device that is gone took its address along: its removal is the event.
void Addresses::LookAtAll() {
  absl::StatusOr<std::vector<HostAddress>> addresses = asks_.addresses();
  if (!addresses.ok()) return;
  HostNet net{.addresses = *std::move(addresses)};
  const auto is_expected = [&net](const NicState& nic) {
    return net.HasAddressOn(nic.ifindex, nic.address) || net.HasAddressOn(kLoopback, nic.address);
  };
  if (!std::all_of(nics_.begin(), nics_.end(), is_expected)) {
    absl::StatusOr<std::vector<HostLink>> links = asks_.links();
    if (!links.ok()) return;
    net.links = *std::move(links);
  }
  for (NicState& nic : nics_) {
    if (nic.removed) continue;
    Take(nic, is_expected(nic) ? "" : WhyNoAddress(net, nic.ifindex, nic.device, nic.address));
  }
}

void Addresses::Take(NicState& nic, std::string why) {
  if (why == nic.no_address) return;
  nic.no_address = std::move(why);
  const bool back = nic.no_address.empty();
  telemetry::Event event{.type = "nic"};
  event.severity = back ? telemetry::Severity::kNotice : telemetry::Severity::kAlert;
  event.text =
      absl::StrCat("NIC ", nic.config.name, ": ",
                   back ? absl::StrCat("address ", nic.address.ToString(), " is there again") : nic.no_address);
  event.evidence = {{"nic", nic.config.name}, {"device", nic.device}, {"address", nic.address.ToString()}};
  events_.Log(std::move(event));
}

}  // namespace cw::agent
