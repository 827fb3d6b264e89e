// SPDX-License-Identifier: Apache-2.0
#include "cli/off_proof.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/format.h"
#include "userspace/model/counted.h"

namespace cw::cli {

uint64_t OffProof::Total() const {
  uint64_t total = 0;
  for (const auto& [port, count] : packets) total += count;
  return total;
}

OffProof ProveOff(const cwfabric::v1::QpsReply& before, const cwfabric::v1::QpsReply& after) {
  std::map<std::string, uint64_t> earlier;
  for (const auto& flow : before.flows()) earlier[flow.id()] = flow.packets();
  OffProof proof;
  for (const auto& flow : after.flows()) {
    // Of those whose packets the kernel does not see there is no proof: their owner's library moves them.
    if (flow.received() || flow.port_from() != "packets") continue;
    const auto was = earlier.find(flow.id());
    const uint64_t sent = was == earlier.end() ? flow.packets() : flow.packets() - std::min(was->second, flow.packets());
    if (sent == 0) continue;
    if (flow.udp_port() != flow.udp_port_native()) proof.still_steered.push_back(flow.id());
    if (flow.udp_port() == flow.udp_port_native()) proof.packets[flow.udp_port_native()] += sent;
  }
  return proof;
}

std::string ProofText(const OffProof& proof, double seconds) {
  constexpr size_t kMost = 16;
  std::string text;
  if (!proof.still_steered.empty())
    text = absl::StrCat("NOT off: still on other ports: ", absl::StrJoin(proof.still_steered, ", "), "\n");
  if (proof.packets.empty())
    return absl::StrCat(text, "proof: no packet of a flow left in ", DurationText(seconds), "; look again: cwctl qps\n");
  std::vector<std::string> ports;
  for (const auto& [port, count] : proof.packets) {
    if (ports.size() < kMost) ports.push_back(absl::StrCat(port, ": ", CountText(count)));
  }
  if (proof.packets.size() > kMost)
    ports.push_back(absl::StrCat("and ", Counted(proof.packets.size() - kMost, "more port")));
  absl::StrAppendFormat(&text, "proof: in %s %s %s left by native ports (port: packets): %s\n", DurationText(seconds),
                        CountText(proof.Total()), proof.Total() == 1 ? "packet" : "packets", absl::StrJoin(ports, ", "));
  return text;
}

}  // namespace cw::cli
