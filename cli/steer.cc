// SPDX-License-Identifier: Apache-2.0
//
// cwctl steer show | set | clear | lock.
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "cli/flow_table.h"
#include "cli/format.h"
#include "cli/session.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

struct SteerOptions {
  std::string flow;
  uint32_t path = 0;
  uint32_t port = 0;
  uint32_t lag_port = 0;
  bool native = false;
  bool force = false;
  bool all = false;
  bool hard = false;
  bool none = false;
  std::string for_text;
  bool path_given = false;
  bool port_given = false;
};

absl::StatusOr<int> Done(Session& session, const absl::StatusOr<v1::ActionReply>& reply) {
  if (!reply.ok()) return reply.status();
  session.ShowAction(*reply);
  return kOk;
}

absl::StatusOr<int> Show(Session& session, const SteerOptions& options) {
  v1::SteerShowRequest request;
  request.set_flow(options.flow);
  absl::StatusOr<v1::SteerShowReply> reply = session.Agent().SteerShow(request);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    std::cout << "mode " << ModeText(reply->mode()) << '\n';
    if (reply->flows().empty()) {
      std::cout << "every flow is on its native port, none is locked\n";
    } else {
      SteeringTable(reply->flows()).Print(std::cout, session.Colour());
    }
  });
  return kOk;
}

absl::StatusOr<int> Set(Session& session, const SteerOptions& options) {
  absl::StatusOr<double> for_s = ParseFor(options.for_text);
  if (!for_s.ok()) return for_s.status();
  v1::SteerSetRequest request;
  request.set_flow(options.flow);
  if (options.path_given) request.set_path(options.path);
  if (options.port_given) request.set_port(options.port);
  if (options.native) request.set_native(true);
  request.set_lag_port(options.lag_port);
  request.set_force(options.force);
  request.set_for_s(*for_s);
  return Done(session, session.Agent().SteerSet(request));
}

absl::StatusOr<int> Clear(Session& session, const SteerOptions& options) {
  if (options.all != options.flow.empty()) {
    return absl::InvalidArgumentError("give either a FLOW or --all; see cwctl steer show");
  }
  v1::SteerClearRequest request;
  request.set_flow(options.flow);
  request.set_all(options.all);
  return Done(session, session.Agent().SteerClear(request));
}

absl::StatusOr<int> Lock(Session& session, const SteerOptions& options) {
  absl::StatusOr<double> for_s = ParseFor(options.for_text);
  if (!for_s.ok()) return for_s.status();
  v1::SteerLockRequest request;
  request.set_flow(options.flow);
  request.set_lock(options.none ? v1::LOCK_NONE : (options.hard ? v1::LOCK_HARD : v1::LOCK_SOFT));
  request.set_for_s(*for_s);
  return Done(session, session.Agent().SteerLock(request));
}

absl::StatusOr<int> ShowBreaker(Session& session, const SteerOptions&) {
  absl::StatusOr<v1::StatusReply> status = session.Agent().Status();
  if (!status.ok()) return status.status();
  const v1::BreakerStatus& breaker = status->breaker();
  session.Show(breaker, [&] {
    if (!breaker.enabled()) {
      std::cout << "there is no breaker (steering.breaker)\n";
      return;
    }
    std::cout << (breaker.tripped() ? "tripped: " + breaker.text() : std::string("armed")) << '\n';
    if (breaker.rearms_s() > 0) std::cout << "armed again in " << DurationText(breaker.rearms_s()) << '\n';
    std::cout << "moves judged in the last minute: " << breaker.judged() << ", harmful: " << breaker.harmful()
              << "; trips since the agent's start: " << breaker.trips() << '\n';
  });
  return kOk;
}

absl::StatusOr<int> ResetBreaker(Session& session, const SteerOptions&) {
  return Done(session, session.Agent().BreakerReset());
}

using SteerVerb = absl::StatusOr<int> (*)(Session&, const SteerOptions&);

CLI::App* AddSteer(CLI::App& group, Session& session, const char* name, const char* text,
                   const std::shared_ptr<SteerOptions>& options, SteerVerb run) {
  CLI::App* verb = group.add_subcommand(name, text);
  verb->callback(
      [&session, options, run] { session.action = [&session, options, run] { return run(session, *options); }; });
  return verb;
}

CLI::Option* AddFlow(CLI::App& verb, const std::shared_ptr<SteerOptions>& options) {
  return verb.add_option("flow", options->flow, "Its id, NIC/qp0x1a2b, or a QPN that only one flow has")
      ->type_name("FLOW");
}

void AddFor(CLI::App& verb, const std::shared_ptr<SteerOptions>& options) {
  verb.add_option("--for", options->for_text, "The agent reverts it after this time, such as 30m");
}

void AddSet(CLI::App& group, Session& session) {
  auto options = std::make_shared<SteerOptions>();
  CLI::App* set = AddSteer(group, session, "set", "Put a flow on a path", options, Set);
  AddFlow(*set, options)->required();
  CLI::Option_group* target = set->add_option_group("target", "Where to");
  target->add_option_function<uint32_t>(
      "--path",
      [options](uint32_t path) {
        options->path = path;
        options->path_given = true;
      },
      "Number of a path; see cwctl paths");
  target->add_option_function<uint32_t>(
      "--port",
      [options](uint32_t port) {
        options->port = port;
        options->port_given = true;
      },
      "UDP source port");
  target->add_flag("--native", options->native, "The port that the NIC chose");
  target
      ->add_option("--lag-port", options->lag_port,
                   "Port of its bond that it leaves by, from 1; where its owner's library can choose it")
      ->check(CLI::Range(1u, 255u));
  target->require_option(1);
  set->add_flag("--force", options->force, "At once, at the price of one go-back-N");
  AddFor(*set, options);
}

}  // namespace

void AddSteerVerbs(CLI::App& app, Session& session) {
  CLI::App* steer = app.add_subcommand("steer", "Which path flows take, by hand");
  steer->require_subcommand(1);

  auto shown = std::make_shared<SteerOptions>();
  AddFlow(*AddSteer(*steer, session, "show", "Flows that are steered, locked or about to move", shown, Show), shown);

  AddSet(*steer, session);

  auto cleared = std::make_shared<SteerOptions>();
  CLI::App* clear = AddSteer(*steer, session, "clear", "End a placement and lock by hand", cleared, Clear);
  AddFlow(*clear, cleared);
  clear->add_flag("--all", cleared->all, "Of every flow");

  auto none = std::make_shared<SteerOptions>();
  CLI::App* breaker = steer->add_subcommand("breaker", "What ends moves for balance that do harm");
  breaker->require_subcommand(1);
  AddSteer(*breaker, session, "show", "Armed or tripped, and why", none, ShowBreaker);
  AddSteer(*breaker, session, "reset", "Moves for balance are made again", none, ResetBreaker);

  auto locked = std::make_shared<SteerOptions>();
  CLI::App* lock =
      AddSteer(*steer, session, "lock", "Keep a flow where it is; it still leaves a dead path", locked, Lock);
  AddFlow(*lock, locked)->required();
  CLI::Option* hard = lock->add_flag("--hard", locked->hard, "Even when its path is dead");
  lock->add_flag("--none", locked->none, "Unlock")->excludes(hard);
  AddFor(*lock, locked);
}

}  // namespace cw::cli
