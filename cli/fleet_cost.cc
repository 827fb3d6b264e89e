// SPDX-License-Identifier: Apache-2.0
//
// cwctl fleet cost: GPU-hours that jobs lost, and to what. docs/fleet.md.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "cli/fleet.h"
#include "cli/format.h"
#include "cli/table.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

struct CostOptions {
  std::string job, from, to;
};

void ShowCostTable(const v1::FleetCostReply& reply, bool colour) {
  Table table({"JOB", ">GPU-HOURS", ">AVOIDABLE", ">LOST", ">COLLECTIVES", "WAITED FOR", "FINDING"});
  double gpu_hours = 0, of_network = 0, avoidable = 0;
  for (const v1::FleetCost& cost : reply.costs()) {
    gpu_hours += cost.gpu_hours();
    of_network += cost.network() ? cost.gpu_hours() : 0;
    avoidable += cost.avoidable_gpu_hours();
    table.Add({cost.job(), absl::StrFormat("%.2f", cost.gpu_hours()),
               absl::StrFormat("%.2f", cost.avoidable_gpu_hours()), NsText(cost.lost_s() * 1e9),
               CountText(cost.collectives()), cost.where(), cost.finding().empty() ? kNoValue : cost.finding()});
  }
  std::cout << UtcText(reply.from_ns()) << " to " << UtcText(reply.to_ns()) << ": "
            << absl::StrFormat("%.2f GPU-hours lost, %.2f of them to the network", gpu_hours, of_network);
  if (avoidable > 0)
    std::cout << absl::StrFormat("; agents that act instead of observing would have saved %.2f", avoidable);
  std::cout << '\n';
  if (table.empty()) {
    std::cout << "no collective was slow or stood, as far as processes have the profiler plug-in (docs/nccl.md)\n";
  } else {
    std::cout << '\n';
    table.Print(std::cout, colour);
  }
  ShowCoverage(reply.coverage(), colour);
}

absl::StatusOr<int> ShowCost(Session& session, const CostOptions& options) {
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  const absl::StatusOr<int64_t> from = ParseAt(options.from, "--from"), to = ParseAt(options.to, "--to");
  if (!from.ok()) return from.status();
  if (!to.ok()) return to.status();
  v1::FleetCostRequest request;
  request.set_job(options.job);
  request.set_from_ns(*from);
  request.set_to_ns(*to);
  const absl::StatusOr<v1::FleetCostReply> reply = (*client)->Cost(request);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] { ShowCostTable(*reply, session.Colour()); });
  return kOk;
}

}  // namespace

void AddFleetCostVerbs(CLI::App& fleet, Session& session) {
  auto options = std::make_shared<CostOptions>();
  CLI::App* cost = fleet.add_subcommand(
      "cost", "GPU-hours that jobs lost to slow and standing collectives, why, and what acting would have saved");
  cost->add_option("job", options->job, "This one alone: label or communicator");
  cost->add_option("--from", options->from, "Begin: 2026-05-01T12:00:00Z, or how long ago: --from=-7d; default -24h");
  cost->add_option("--to", options->to, "End, the same; default now");
  cost->callback([&session, options] { session.action = [&session, options] { return ShowCost(session, *options); }; });
}

}  // namespace cw::cli
