// SPDX-License-Identifier: Apache-2.0
//
// cwctl qps.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>

#include "absl/strings/str_format.h"
#include "cli/columns.h"
#include "cli/flow_table.h"
#include "cli/format.h"
#include "cli/session.h"
#include "userspace/model/counted.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

struct QpOptions {
  std::string flow;
  std::string remote;
  bool received = false;
  std::string columns;  // "" those that fit
  Session::Watch watch;
};

// Of a queue pair that only its owner's library could move while it is connected.
std::string MovesText(const v1::OwnerReport& owner) {
  const v1::OwnerMoves& moves = owner.moves();
  std::string text = owner.can_move() ? absl::StrFormat("; can be moved, on udp-port %d", owner.udp_port())
                                      : "; cannot be moved: " + owner.cannot_move();
  if (moves.lag_port() > 0) absl::StrAppendFormat(&text, "; leaves by port %d of its bond", moves.lag_port());
  if (moves.done() > 0) absl::StrAppendFormat(&text, "; moved %s", Counted(moves.done(), "time"));
  if (moves.to_port() >= 0) absl::StrAppendFormat(&text, "; on its way to udp-port %d", moves.to_port());
  if (moves.refused() > 0)
    absl::StrAppendFormat(&text, "; refused %s, the last: %s", Counted(moves.refused(), "time"), owner.last_refusal());
  return text;
}

std::string OwnerText(const v1::OwnerReport& owner) {
  std::string text = absl::StrFormat("%s messages, %s bytes", CountText(owner.messages()), CountText(owner.bytes()));
  if (owner.completion_samples() > 0) {
    absl::StrAppendFormat(&text, ", completed after %s (p50), at most %s", DelayText(owner.completion_p50_ns(), 0),
                          DelayText(owner.completion_max_ns(), 0));
  }
  if (owner.errors() > 0) absl::StrAppendFormat(&text, ", %d completions with an error", owner.errors());
  text += owner.placed() ? "; placed when it connected" : "; not placed: " + owner.not_placed();
  if (owner.packets_seen()) return text;
  return text + "; its packets are not seen here" + MovesText(owner);
}

// Which flows are slow, and why. Senders that bring little are no fault of the network, and may be all of them: many
// are one line.
void ShowCauses(const google::protobuf::RepeatedPtrField<v1::Flow>& flows, bool colour) {
  constexpr auto kFew = 3;
  const auto sends_little = [](const v1::Flow& flow) { return flow.cause() == "slow sender"; };
  const auto little = std::count_if(flows.begin(), flows.end(), sends_little);
  for (const v1::Flow& flow : flows) {
    if (flow.cause_text().empty() || (little > kFew && sends_little(flow))) continue;
    std::cout << flow.id() << Paint(" is slow: " + flow.cause(), Tone::kWarn, colour) << ", " << flow.cause_text()
              << '\n';
  }
  if (little > kFew)
    std::cout << little
              << " queue pairs send less than their NIC could give them, and nothing holds them up on the way "
              << "(slow sender)\n";
}

void ShowGaps(const google::protobuf::RepeatedPtrField<v1::Flow>& flows, bool colour) {
  for (const v1::Flow& flow : flows) {
    if (flow.gap().finding())
      std::cout << flow.id() << Paint(" is slower than its path", Tone::kWarn, colour) << ": "
                << Printable(flow.gap().text()) << '\n';
  }
}

absl::StatusOr<int> Qps(Session& session, const QpOptions& options) {
  v1::QpsRequest request;
  request.set_flow(options.flow);
  request.set_remote(options.remote);
  request.set_received(options.received);
  absl::StatusOr<v1::QpsReply> reply = session.Agent().Qps(request);
  if (!reply.ok()) return reply.status();
  const absl::StatusOr<Table> table = Chosen(FlowTable(reply->flows()), FlowColumns(), options.columns);
  if (!table.ok()) return table.status();
  session.Show(*reply, [&] {
    if (reply->flows().empty()) {
      std::cout << "no queue pair has sent to a peer" << (options.received ? ", or received" : "") << " yet\n";
    } else {
      table->Print(std::cout, session.Colour());
      if (options.columns.empty() && table->Widths().size() < FlowColumns().size())
        std::cout << "more columns: -o wide\n";
      ShowCauses(reply->flows(), session.Colour());
      ShowGaps(reply->flows(), session.Colour());
      for (const v1::Flow& flow : reply->flows()) {
        if (flow.has_owner()) std::cout << flow.id() << " by its owner: " << OwnerText(flow.owner()) << '\n';
      }
    }
  });
  return kOk;
}

}  // namespace

void AddQpVerbs(CLI::App& app, Session& session) {
  CLI::App* verb = app.add_subcommand("qps", "Queue pairs: owner, path, delay of their own packets, rate, losses");
  auto options = std::make_shared<QpOptions>();
  verb->add_option("flow", options->flow, "Its id, NIC/qp0x1a2b, or a QPN; all without it")->type_name("FLOW");
  verb->add_option("--remote", options->remote, "Only to this peer (name or address)");
  verb->add_flag("--received", options->received, "Also the flows that arrive here");
  verb->add_option("-o,--columns", options->columns, ColumnsHelp(FlowColumns()))->type_name("COL,...");
  Session::AddWatch(*verb, options->watch);
  verb->callback([&session, options] {
    session.action = [&session, options] {
      return session.Repeat(options->watch, [&] { return Qps(session, *options); });
    };
  });
}

}  // namespace cw::cli
