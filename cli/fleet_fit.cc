// SPDX-License-Identifier: Apache-2.0
//
// cwctl fleet fit: may a host take a place in a job? docs/fleet.md.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "cli/fleet.h"
#include "cli/format.h"
#include "cli/table.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

struct FitOptions {
  std::string host, job, instead_of;
};

Cell AnswerCell(const std::string& answer) {
  return {answer, answer == "yes" ? Tone::kGood : answer == "no" ? Tone::kBad : Tone::kWarn};
}

absl::StatusOr<int> ShowFit(Session& session, const FitOptions& options) {
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  v1::FleetFitRequest request;
  request.set_host(options.host);
  request.set_job(options.job);
  request.set_instead_of(options.instead_of);
  const absl::StatusOr<v1::FleetFitReply> reply = (*client)->Fit(request);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    const bool colour = session.Colour();
    const Cell answer = AnswerCell(reply->answer());
    std::cout << Printable(options.host) << " in " << Printable(options.job) << ": "
              << Paint(Printable(reply->answer()), answer.tone, colour) << "\n\n";
    Table table({"WHAT", "MEETS IT", "WHY"});
    for (const v1::FleetFitCheck& check : reply->checks())
      table.Add({check.what(), AnswerCell(check.answer()), check.text()});
    table.Print(std::cout, colour);
    ShowCoverage(reply->coverage(), colour);
  });
  return reply->answer() == "yes" ? kOk : kFailed;
}

}  // namespace

void AddFleetFitVerbs(CLI::App& fleet, Session& session) {
  auto options = std::make_shared<FitOptions>();
  CLI::App* fit = fleet.add_subcommand("fit", "May a host take a place in a job? Yes or no, and why; 0: yes, 1: not");
  fit->add_option("host", options->host, "The host that would join")->required();
  fit->add_option("job", options->job, "Label or communicator (cwctl fleet jobs)")->required();
  fit->add_option("--instead-of", options->instead_of,
                  "The job's host that leaves: its place counts, its delays do not");
  fit->callback([&session, options] { session.action = [&session, options] { return ShowFit(session, *options); }; });
}

}  // namespace cw::cli
