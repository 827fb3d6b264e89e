// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/control_cause_sim.h"

#include "absl/strings/str_format.h"
#include "tests/unit/control_cause_fabric.h"
#include "tests/unit/control_cause_setup.h"

namespace cw::control {
namespace {

using cause_sim::Fabric;
using cause_sim::FlowSpec;
using cause_sim::kInjectS;
using cause_sim::kWindowS;
using cause_sim::Setup;

std::string Describe(const Setup& s, const std::string& found, double share) {
  const FlowSpec& f = s.flows[0];
  return absl::StrFormat(
      "line %.0fM, %d spines, probes every %.0f ms, %d flows, window %d, ack every %d; demand %.2f burst %d; serve "
      "%.2f "
      "rnr %d stall %.0f/%.0f ms; fault %.3f/%.3f; rate share %.2f; %s",
      s.line_bps / 1e6, s.spines, s.probe_s * 1e3, s.flows.size(), f.window, f.ack_every, s.slow_demand, s.slow_burst,
      s.serve_share, s.rnr_message, s.stall_s * 1e3, s.stall_every_s * 1e3, s.fault_forward, s.fault_back, share,
      found);
}

}  // namespace

CauseResult SimulateCause(const CauseScenario& scenario, const CauseRules& rules) {
  const Setup setup = cause_sim::DrawSetup(scenario.injected, scenario.seed);
  Fabric control(setup, false, scenario.seed * 2, rules);
  control.Run(kInjectS + 1.5);
  Fabric run(setup, true, scenario.seed * 2 + 1, rules);
  run.Run(kInjectS + setup.windows * kWindowS);
  CauseResult out{.found = run.Verdict().cause};
  const double share = run.VictimBps() / control.VictimBps();
  out.detail = Describe(setup, run.RawText(), share);
  if (control.VictimBps() < 0.85 * setup.line_bps) return out;  // slow before anything was done
  switch (scenario.injected) {
    case Cause::kNone:
      out.valid = share > 0.9 || setup.nic_shared;
      break;
    case Cause::kOneDirection:
    case Cause::kGreyLoss:
    case Cause::kReordering:
      out.valid = run.Lost() >= 5;
      out.truth = scenario.injected;
      break;
    default:
      out.valid = share < 0.85 || share > 0.95;
      out.truth = share < 0.85 ? scenario.injected : Cause::kNone;
  }
  return out;
}

}  // namespace cw::control
