// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/flow_ref.h"

#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace cw::api {
namespace {

using cwfabric::v1::Flow;
using Candidates = std::vector<const Flow*>;

constexpr size_t kShownCandidates = 10;

std::optional<uint32_t> ParseQpn(absl::string_view text) {
  absl::ConsumePrefix(&text, "qp");
  uint32_t qpn = 0;
  const bool ok = absl::StartsWith(text, "0x") ? absl::SimpleHexAtoi(text, &qpn) : absl::SimpleAtoi(text, &qpn);
  if (!ok || qpn == 0 || qpn > 0xFFFFFF) return std::nullopt;
  return qpn;
}

template <typename Predicate>
Candidates Select(const cwfabric::v1::QpsReply& flows, Predicate fits) {
  Candidates sent, received;
  for (const Flow& flow : flows.flows()) {
    if (fits(flow)) (flow.received() ? received : sent).push_back(&flow);
  }
  return sent.empty() ? received : sent;
}

Candidates Matches(const cwfabric::v1::QpsReply& flows, absl::string_view text) {
  Candidates by_id = Select(flows, [&](const Flow& flow) { return absl::EqualsIgnoreCase(flow.id(), text); });
  if (!by_id.empty()) return by_id;

  const size_t slash = text.rfind('/');
  const bool has_nic = slash != absl::string_view::npos;
  const std::string nic(has_nic ? text.substr(0, slash) : "");
  const std::optional<uint32_t> qpn = ParseQpn(has_nic ? text.substr(slash + 1) : text);
  if (!qpn) return {};
  auto on_nic = [&](const Flow& flow) { return !has_nic || flow.nic() == nic || flow.device() == nic; };
  Candidates local = Select(flows, [&](const Flow& flow) { return on_nic(flow) && flow.local_qpn() == *qpn; });
  if (!local.empty()) return local;
  return Select(flows, [&](const Flow& flow) { return on_nic(flow) && flow.remote_qpn() == *qpn; });
}

std::string Describe(const Flow& flow) {
  const std::string name = QpName(flow);
  return absl::StrFormat("%s (%s%s%s, remote QPN 0x%x)", flow.id(), name, name.empty() ? "" : ", ",
                         flow.received() ? "from " + flow.remote_address() : "to " + flow.remote_address(),
                         flow.remote_qpn());
}

}  // namespace

std::string QpName(const Flow& flow) {
  if (flow.local_qpn() == 0) return "";
  return absl::StrFormat("%s/qp0x%x", flow.nic(), flow.local_qpn());
}

absl::StatusOr<std::string> ResolveFlow(const cwfabric::v1::QpsReply& flows, absl::string_view text) {
  const Candidates matches = Matches(flows, text);
  if (matches.size() == 1) return matches.front()->id();
  if (matches.empty()) {
    return absl::NotFoundError(
        absl::StrFormat("no flow is called \"%s\"; see cwctl qps for ids and NIC/qp names", text));
  }
  std::vector<std::string> lines;
  for (const Flow* flow : matches) {
    if (lines.size() == kShownCandidates) break;
    lines.push_back("  " + Describe(*flow));
  }
  if (matches.size() > lines.size()) {
    lines.push_back(absl::StrFormat("  and %d more", matches.size() - lines.size()));
  }
  return absl::InvalidArgumentError(absl::StrFormat("\"%s\" is ambiguous; use the id (or NIC/qp name) of one of:\n%s",
                                                    text, absl::StrJoin(lines, "\n")));
}

}  // namespace cw::api
