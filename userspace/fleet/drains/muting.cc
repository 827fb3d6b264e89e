// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/drains/muting.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cw::fleet {
namespace {

bool CanBeOfAPart(Cause cause) {
  switch (cause) {
    case Cause::kLinkDead:
    case Cause::kLinkGrey:
    case Cause::kSwitchDead:
    case Cause::kHostDown:
    case Cause::kAgentGone:
    case Cause::kNicDown:
    case Cause::kFlapping:
    case Cause::kSwapped:
      return true;
    case Cause::kCongestion:
    case Cause::kIncast:
    case Cause::kSlowReceiver:
    case Cause::kSlowSender:
    case Cause::kClock:
      break;
  }
  return false;
}

}  // namespace

bool Explains(const cwfabric::v1::FleetDrain& drain, const Finding& f) {
  const auto drained = [&](const Addr& address) {
    const auto& all = drain.addresses();
    return std::find(all.begin(), all.end(), address.ToString()) != all.end();
  };
  const bool host = drain.kind() == "host";
  if (host && f.scope == absl::StrCat("host ", drain.name())) return true;  // it may be off, its clock with it
  if (!CanBeOfAPart(f.cause)) return false;
  if (host && absl::EndsWith(f.scope, absl::StrCat(" of ", drain.name()))) return true;  // "NIC eth0 of node17"
  if (drain.kind() == "switch" && f.scope == absl::StrCat("switch ", drain.name())) return true;
  for (const std::string& address : drain.addresses()) {
    if (f.scope == absl::StrCat("NIC ", address)) return true;
  }
  const bool whole = drain.kind() != "link";
  return !f.links.empty() && std::all_of(f.links.begin(), f.links.end(), [&](const LinkId& link) {
    return drained(link.second) || (whole && drained(link.first));
  });
}

}  // namespace cw::fleet
