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

static std::optional<uint64_t> Rewritten(const OffLook& look) {
  for (const auto& counter : look.counters.counters()) {
    if (counter.name() == "rewritten") return counter.value();
  }
  return std::nullopt;
}

OffProof ProveOff(const OffLook& before, const OffLook& after) {
  std::map<std::string, uint64_t> earlier;
  for (const auto& flow : before.flows.flows()) earlier[flow.id()] = flow.packets();
  OffProof proof;
  const std::optional<uint64_t> was_rewritten = Rewritten(before), now_rewritten = Rewritten(after);
  if (was_rewritten && now_rewritten) proof.rewritten = *now_rewritten - std::min(*was_rewritten, *now_rewritten);
  for (const auto& flow : after.flows.flows()) {
    // Of those whose packets the kernel does not see there is no proof: their owner's library moves them.
    if (flow.received() || flow.port_from() != "packets") continue;
    const auto was = earlier.find(flow.id());
    const uint64_t sent =
        was == earlier.end() ? flow.packets() : flow.packets() - std::min(was->second, flow.packets());
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
  if (proof.rewritten.value_or(0) > 0)
    absl::StrAppend(&text, "NOT off: the kernel's program gave ", CountText(*proof.rewritten),
                    *proof.rewritten == 1 ? " packet another port\n" : " packets another port\n");
  if (proof.packets.empty())
    return absl::StrCat(text, "proof: no packet of a flow left in ", DurationText(seconds),
                        "; look again: cwctl qps\n");
  std::vector<std::string> ports;
  for (const auto& [port, count] : proof.packets) {
    if (ports.size() < kMost) ports.push_back(absl::StrCat(port, ": ", CountText(count)));
  }
  if (proof.packets.size() > kMost)
    ports.push_back(absl::StrCat("and ", Counted(proof.packets.size() - kMost, "more port")));
  absl::StrAppendFormat(&text, "proof: in %s %s %s left by native ports (port: packets): %s%s\n", DurationText(seconds),
                        CountText(proof.Total()), proof.Total() == 1 ? "packet" : "packets", absl::StrJoin(ports, ", "),
                        proof.rewritten == 0 ? "; none was given another port" : "");
  return text;
}

}  // namespace cw::cli
