// SPDX-License-Identifier: Apache-2.0
//
// What changes something through cwctl: steer, drain, label, mode, off.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli_cwctl_rig.h"
#include "userspace/api/client.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST_F(Cwctl, LabelsAreGivenTakenAwayAndListed) {
  EXPECT_THAT(Run({"label", "set", "--pid", "77", "train"}).out, HasSubstr("process 77 is train"));
  EXPECT_EQ(agent_.last_request, "pid: 77 label: \"train\"");
  Run({"label", "set", "--cgroup", "/system.slice/job_7", "job 7"});
  EXPECT_EQ(agent_.last_request, "cgroup: \"/system.slice/job_7\" label: \"job 7\"");
  Run({"label", "clear", "--pid", "77"});
  EXPECT_EQ(agent_.last_request, "pid: 77");
  EXPECT_EQ(Run({"label", "clear"}).exit_code, 2) << "all only where that is meant";
  EXPECT_EQ(Run({"label", "set", "train"}).exit_code, 2);
  EXPECT_EQ(Run({"label", "set", "--pid", "77", "--cgroup", "/x", "train"}).exit_code, 2);
  EXPECT_THAT(Run({"label", "list"}).out, ContainsRegex("– +/system.slice/job_7 +job 7"));
  EXPECT_EQ(RunJson({"label", "list"})["labels"][0]["label"], "job 7");
}

TEST_F(Cwctl, DrainTellsItsEffectAndWatchesUntilSilent) {
  const RunResult text = Run({"drain", "spine", "10.1.1.1", "--for", "30m", "--now"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(agent_.last_request, HasSubstr("kind: DRAIN_KIND_SPINE what: \"10.1.1.1\" for_s: 1800 now: true"));
  EXPECT_THAT(text.out, HasSubstr("undrain 10.1.1.1"));
  EXPECT_THAT(text.out, HasSubstr("4.00 KiB/s over it, 1 flow on it, 1 moved: not yet; stay: 11111111"));
  EXPECT_THAT(text.out, HasSubstr("0 flows on it, 2 moved: safe to pull (as far as this host is concerned)"));
  EXPECT_THAT(Run({"drain", "list"}).out, HasSubstr("spine 10.1.1.1"));
  EXPECT_EQ(RunJson({"drain", "list"})["drains"][0]["safe"], true);
  EXPECT_EQ(RunJson({"drain", "path", "node2/1", "--no-wait"})["undo"], "undrain node2/1");
  EXPECT_EQ(RunJson({"undrain", "10.1.1.1"})["effect"], "10.1.1.1 may be used again");
  EXPECT_EQ(Run({"undrain"}).exit_code, 2);
  agent_.mode = v1::MODE_OBSERVE;
  EXPECT_THAT(Run({"drain", "nic", "eth0"}).err, HasSubstr("first: cwctl mode protect"));
}

TEST_F(Cwctl, SteerSetTakesEveryFormOfFlowAndTellsEffectAndUndo) {
  const RunResult text = Run({"steer", "set", "eth0/qp0x11", "--path", "1", "--for", "30m"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(agent_.last_request, "flow: \"0b5c91fe\" path: 1 for_s: 1800");
  EXPECT_THAT(text.out, HasSubstr("flow 0b5c91fe goes to path 1"));
  EXPECT_THAT(text.out, HasSubstr("undo: cwctl --socket " + socket_ + " steer set 0b5c91fe --path 0"));
  EXPECT_THAT(text.out, HasSubstr("reverts by itself in 30.0 min"));
  EXPECT_THAT(text.out, HasSubstr("pending"));
  for (const char* flow : {"0B5C91FE", "rxe0/qp17", "17", "0x11", "qp0x11", "0x21"}) {
    EXPECT_EQ(Run({"steer", "set", flow, "--port", "50000", "--force"}).exit_code, 0) << flow;
    EXPECT_EQ(agent_.last_request, "flow: \"0b5c91fe\" port: 50000 force: true") << flow;
  }
  EXPECT_EQ(RunJson({"steer", "set", "0b5c91fe", "--native"})["flows"][0], "0b5c91fe");
  EXPECT_EQ(agent_.last_request, "flow: \"0b5c91fe\" native: true");
}

TEST_F(Cwctl, OtherActionsReachTheAgent) {
  EXPECT_EQ(Run({"steer", "lock", "0b5c91fe", "--hard", "--for", "90s"}).exit_code, 0);
  EXPECT_EQ(agent_.last_request, "flow: \"0b5c91fe\" lock: LOCK_HARD for_s: 90");
  EXPECT_EQ(Run({"steer", "lock", "0b5c91fe", "--none"}).exit_code, 0);
  EXPECT_EQ(agent_.last_request, "flow: \"0b5c91fe\"");
  EXPECT_EQ(Run({"steer", "clear", "--all"}).exit_code, 0);
  EXPECT_EQ(agent_.last_request, "all: true");
  EXPECT_EQ(Run({"mode", "optimize", "--for", "1h"}).exit_code, 0);
  EXPECT_EQ(agent_.last_request, "mode: MODE_OPTIMIZE for_s: 3600");
  EXPECT_THAT(Run({"mode"}).out, HasSubstr("optimize\nCAPABILITY  MAY      BY THE MODE\n"));
  EXPECT_EQ(Run({"mode", "balance=observe", "failover=act", "nic=mode"}).exit_code, 0);
  EXPECT_EQ(
      agent_.last_request,
      "allowed { capability: \"balance\" allow: ALLOW_OBSERVE } allowed { capability: \"failover\" allow: ALLOW_ACT } "
      "allowed { capability: \"nic\" }");
  EXPECT_EQ(Run({"mode", "protect", "balance=act", "--for", "30m"}).exit_code, 0);
  EXPECT_EQ(agent_.last_request, "mode: MODE_PROTECT for_s: 1800 allowed { capability: \"balance\" allow: ALLOW_ACT }");
  EXPECT_EQ(Run({"off", "--for", "10m", "--timeout", "60"}).exit_code, 0);
  EXPECT_EQ(agent_.last_request, "for_s: 600");
}

TEST_F(Cwctl, AmbiguousFlowsAreAUsageErrorWithCandidates) {
  const RunResult text = Run({"steer", "set", "0x22", "--path", "1"});
  EXPECT_EQ(text.exit_code, 2);
  EXPECT_EQ(text.out, "");
  EXPECT_THAT(text.err, HasSubstr("\"0x22\" is ambiguous"));
  EXPECT_THAT(text.err, HasSubstr("11111111 (rxe0/qp0x12, to 10.0.1.10, remote QPN 0x22)"));
  EXPECT_THAT(text.err, HasSubstr("22222222"));
  EXPECT_EQ(agent_.last_request, "");
  EXPECT_EQ(RunJson({"steer", "set", "0x22", "--path", "1"}, 2)["error"]["code"], "INVALID_ARGUMENT");
}

// An emergency off for another instance must not switch this one off.
TEST_F(Cwctl, ATypedInstanceCountsForMoreThanTheSocketInTheEnvironment) {
  for (const char* verb : {"off", "status"}) {
    const RunResult text =
        RunProgram(CWCTL_PATH, {"--instance", "no-such-instance", verb}, {{"CWFABRIC_SOCKET", socket_}});
    EXPECT_EQ(text.exit_code, 3) << verb << text.out;
    EXPECT_THAT(text.err, HasSubstr("/run/cwfabric/no-such-instance/agent.sock")) << verb;
  }
}

TEST_F(Cwctl, OffEndsWithAProof) {
  const RunResult text = Run({"off"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("every flow is on its native port\n"));
  EXPECT_THAT(text.out,
              ContainsRegex("proof: in [0-9.]+ s [0-9,]+ packets left by native ports .port: packets.: 51234: "));
  EXPECT_EQ(RunJson({"off"})["effect"], "every flow is on its native port");
  agent_.off_sticks = true;
  const RunResult stuck = Run({"off"});
  EXPECT_EQ(stuck.exit_code, 1);
  EXPECT_THAT(stuck.out, HasSubstr("NOT off: still on other ports: 0b5c91fe, 22222222\n"));
}

// Requests that cwctl would not send: other clients may.
TEST_F(Cwctl, TheServerChecksWhatItIsAsked) {
  api::Client client(socket_);
  v1::SteerSetRequest set;
  set.set_flow("0b5c91fe");
  EXPECT_EQ(client.SteerSet(set).status().code(), absl::StatusCode::kInvalidArgument);
  set.set_path(1);
  set.set_for_s(-1);
  EXPECT_EQ(client.SteerSet(set).status().code(), absl::StatusCode::kInvalidArgument);
  set.set_for_s(0);
  set.clear_flow();
  EXPECT_EQ(client.SteerSet(set).status().code(), absl::StatusCode::kInvalidArgument);
  v1::SetModeRequest mode;
  EXPECT_EQ(client.SetMode(mode).status().code(), absl::StatusCode::kInvalidArgument);
  v1::OwdRequest owd;
  owd.set_window_s(7);
  EXPECT_EQ(client.Owd(owd).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(agent_.last_request, "");
}

}  // namespace
}  // namespace cw::cli
