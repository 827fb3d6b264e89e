// SPDX-License-Identifier: Apache-2.0
//
// The real cwctl binary against the real server, over a unix socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli_cwctl_rig.h"
#include "userspace/api/path_ref.h"
#include "userspace/config/config.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(Cwctl, TheSocketIsForRootAndItsGroup) {
  struct stat info {};
  ASSERT_EQ(stat(socket_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
  ASSERT_EQ(stat((folder_ + "/run").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0750u);
}

TEST_F(Cwctl, ASecondAgentIsRefusedAndALeftSocketIsReplaced) {
  api::FakeAgent other;
  EXPECT_EQ(api::Server::Start(socket_, other).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Run({"status"}).exit_code, 0);
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(socket_));
  std::ofstream(socket_) << "left by a crash";
  Start();
  EXPECT_EQ(Run({"status"}).exit_code, 0);
}

TEST_F(Cwctl, LinksNameSuspectsAndQueues) {
  const std::string text = Run({"links"}).out;
  EXPECT_THAT(text, ContainsRegex("10.0.0.1 +10.1.1.0 +– +1 +1 +4-9 +0 % +– +– +0 +suspect +this one or 10.1.1.3"));
  EXPECT_THAT(text, ContainsRegex("10.1.0.3 +10.0.1.10 +node2 +2 +0 +0 +2.10 % +251 µs +3.00 µs +12.0 s +up"));
  EXPECT_THAT(text, ContainsRegex("10.0.0.1 +10.1.2.0 .*gone +no path takes it, the last one 40.0 s ago"));
  EXPECT_THAT(Run({"links", "-o", "to,loss"}).out, HasSubstr("10.0.1.10  2.10 %\n"));
  const json reply = RunJson({"links", "--window", "60"});
  EXPECT_EQ(reply["window_s"], 60);
  EXPECT_EQ(reply["links"][1]["queue_ns"], 251000);
  EXPECT_EQ(reply["links"][0]["flaps_1h"], 9);
  EXPECT_EQ(reply["links"][0]["flaps_1h_certain"], 4);
}

TEST_F(Cwctl, EveryReadingVerbSpeaksBothForms) {
  const std::vector<std::vector<std::string>> verbs = {{"status"},
                                                       {"doctor"},
                                                       {"paths"},
                                                       {"paths", "node2"},
                                                       {"qps"},
                                                       {"owd"},
                                                       {"links"},
                                                       {"links", "--window", "1"},
                                                       {"steer", "show"},
                                                       {"mode"},
                                                       {"counters"},
                                                       {"events"},
                                                       {"why", "0b5c91fe"},
                                                       {"why", "node2/1"},
                                                       {"drain", "list"},
                                                       {"jobs"},
                                                       {"nics"},
                                                       {"label", "list"},
                                                       {"collectives"},
                                                       {"collectives", "--job", "train", "--slow", "--last", "5"},
                                                       {"clock", "tracking"},
                                                       {"clock", "sources"},
                                                       {"clock", "mesh"},
                                                       {"clock", "bound"}};
  for (const std::vector<std::string>& verb : verbs) {
    SCOPED_TRACE(verb[0]);
    const RunResult text = Run(verb);
    EXPECT_EQ(text.exit_code, 0) << text.err;
    EXPECT_EQ(text.err, "");
    EXPECT_FALSE(text.out.empty());
    EXPECT_THAT(text.out, Not(HasSubstr("\033")));
    EXPECT_THAT(text.out, Not(ContainsRegex(" \n")));
    if (verb[0] == "events") continue;  // one document per line: below
    EXPECT_TRUE(RunJson(verb).is_object());
  }
}

TEST_F(Cwctl, JobsNameTheSlowestPeerAndWhatStands) {
  const std::string text = Run({"jobs"}).out;
  EXPECT_THAT(text, ContainsRegex("train.* +00000000000000ab +3/8 +77 +python3 +12.5 +0.92 GB/s +4 .node2. +0b5c91fe "
                                  "+300 µs / 2.00 ms ±20.0 µs"));
  EXPECT_THAT(text, HasSubstr("AllReduce 42 stands: the network to rank 4"));
  EXPECT_THAT(text, HasSubstr("built without NET_PROFILER=1"));
  EXPECT_THAT(text, HasSubstr("3 records were lost"));
  EXPECT_THAT(Run({"jobs", "--job", "nobody"}).out, HasSubstr("NCCL_PROFILER_PLUGIN"));
  const json reply = RunJson({"jobs"});
  EXPECT_EQ(reply["jobs"][0]["slowest_peer"], 4);
  EXPECT_EQ(reply["jobs"][0]["running"]["state"], "stalled");
}

TEST_F(Cwctl, QpsSayHowAPortIsKnownAndWhoIsSlowerThanItsPath) {
  const std::string text = Run({"qps"}).out;
  EXPECT_THAT(text, ContainsRegex("11111111 .* by label "));
  EXPECT_THAT(text, HasSubstr("11111111 is slower than its path: its packets take 37.0 µs"));
  EXPECT_THAT(text, Not(HasSubstr("0b5c91fe is slower")));
}

TEST_F(Cwctl, NicsTellPortsGidsCountersAndFindings) {
  const std::string text = Run({"nics"}).out;
  EXPECT_THAT(text, ContainsRegex("mlx5_0 +physical +mlx5_core +0000:c1:00.0 +28.39.1002 +946d:ae03:00a1:b2c0 +1 +"
                                  "async +eth0"));
  EXPECT_THAT(text, ContainsRegex("mlx5_0 +1 +active +linkup +Ethernet +400 Gbit/s +eth0 +4500 +4096 +3 10.0.0.10"));
  EXPECT_THAT(text, ContainsRegex("mlx5_0 +1 +3 +RoCE v2 +eth0 +0000:0000:.*:0a00:000a +10.0.0.10"));
  EXPECT_THAT(text, ContainsRegex("17 +1,200 +out_of_sequence +packets that"));
  EXPECT_THAT(text, Not(HasSubstr("rx_write_requests"))) << "it did not move";
  EXPECT_THAT(text, HasSubstr("fail  mlx5_1 is DOWN, physically Disabled\n      → check the cable"));
  const json reply = RunJson({"nics"});
  EXPECT_EQ(reply["nics"][0]["ports"][0]["gids"][0]["index"], 3);
  EXPECT_EQ(reply["nics"][0]["ports"][0]["counters"][1]["moved"], 0);
  EXPECT_EQ(reply["findings"][0]["level"], "fail");
}

TEST_F(Cwctl, CollectivesSayWhatTheyWaitedFor) {
  const std::string text = Run({"collectives", "--job", "train", "--slow"}).out;
  EXPECT_EQ(agent_.last_request, "job: \"train\" slow: true");
  EXPECT_THAT(
      text,
      ContainsRegex(
          "train +3/8 +42 +AllReduce +1.00 MiB +RING +SIMPLE +slow +2.00 ms +0.92 GB/s +300 µs / 2.00 ms ±20.0 µs"));
  EXPECT_THAT(text, HasSubstr("stood: train AllReduce 42, rank 3"));
  const json reply = RunJson({"collectives"});
  EXPECT_EQ(reply["collectives"][0]["held_qpn"], 0x21);
  EXPECT_EQ(reply["collectives"][0]["chunk_delay"]["max_ns"], 2.5e6);
  EXPECT_EQ(reply["collectives"][0]["peer"], -1);
}

TEST_F(Cwctl, WhyNamesJobAndCollective) {
  EXPECT_THAT(Run({"why", "0b5c91fe"}).out, HasSubstr("job      AllReduce 42 of job train, rank 3 of 8, 12.0 s ago"));
}

TEST_F(Cwctl, DelaysBelowTheClocksErrorAreNeverNegative) {
  const RunResult text = Run({"paths"});
  EXPECT_THAT(text.out, HasSubstr("5.31 µs"));
  EXPECT_THAT(text.out, HasSubstr("< 0.40 µs"));
  EXPECT_THAT(text.out, Not(ContainsRegex("-[0-9.]+ µs")));
  EXPECT_THAT(text.out, HasSubstr("10.0.0.1 10.1.1.1"));
  EXPECT_THAT(text.out, HasSubstr("a round every 1.00 ms in DSCP 26,"));
  EXPECT_EQ(RunJson({"paths"})["pairs"][0]["dscp"], 26);
  EXPECT_EQ(RunJson({"paths"})["pairs"][0]["dscp_from"], "flows");
  EXPECT_EQ(RunJson({"paths"})["pairs"][0]["clock"]["offset_ns"], -1000000123);
}

TEST_F(Cwctl, OwdKeepsTheWindowAskedFor) {
  const json reply = RunJson({"owd", "--window", "60"});
  const json& windows = reply["pairs"][0]["paths"][0]["windows"];
  ASSERT_EQ(windows.size(), 1u);
  EXPECT_EQ(windows[0]["seconds"], 60);
  EXPECT_EQ(reply["flows"].size(), 4u);
  const RunResult text = Run({"owd"});
  EXPECT_THAT(text.out, HasSubstr("last 10 s"));
  EXPECT_THAT(text.out, HasSubstr("forward"));
  EXPECT_THAT(text.out, HasSubstr("peer's 1")) << "the reverse direction is over the peer's own paths";
  EXPECT_THAT(text.out, HasSubstr("production packets"));
}

TEST_F(Cwctl, QpsNamesQueuePairsAndHidesControlCharacters) {
  const RunResult text = Run({"qps"});
  EXPECT_THAT(text.out, HasSubstr("rxe0/qp0x11"));
  EXPECT_THAT(text.out, HasSubstr("0x21"));
  EXPECT_THAT(text.out, HasSubstr("51234→49152"));
  EXPECT_THAT(text.out, HasSubstr("ib_write?[31m[4711]"));
  EXPECT_THAT(text.out, HasSubstr("1.25 Gbit/s"));
  EXPECT_THAT(text.out, Not(HasSubstr("33333333")));
  EXPECT_THAT(Run({"qps", "--received"}).out, HasSubstr("33333333"));
  EXPECT_EQ(RunJson({"qps", "rxe0/qp0x11"})["flows"].size(), 1u);
}

TEST_F(Cwctl, QpsTellsWhatOwnersCount) {
  EXPECT_THAT(
      Run({"qps"}).out,
      HasSubstr("11111111 by its owner: 12,345 messages, 790,080 bytes, completed after 8.50 µs (p50), at most "
                "41.0 µs; placed when it connected; its packets are not seen here; can be moved, on udp-port 49152; "
                "leaves by "
                "port 2 of its bond; moved 3 times; refused 1 time, the last: Device or resource busy (errno 16)\n"));
  const auto flows = RunJson({"qps"})["flows"];
  EXPECT_TRUE(flows[0]["owner"].is_null());
  EXPECT_EQ(flows[1]["owner"]["messages"], 12345);
  EXPECT_EQ(flows[1]["owner"]["completion_samples"], 9);
  EXPECT_EQ(flows[1]["owner"]["can_move"], true);
  EXPECT_EQ(flows[1]["owner"]["udp_port"], 49152);
  EXPECT_EQ(flows[1]["owner"]["last_refusal"], "Device or resource busy (errno 16)");
  EXPECT_EQ(flows[1]["owner"]["moves"]["done"], 3);
}

TEST_F(Cwctl, WhyTellsPlaceHoldsRuleAndEvents) {
  const std::string text = Run({"why", "rxe0/qp0x11"}).out;
  EXPECT_THAT(text, HasSubstr("flow     0b5c91fe, rxe0/qp0x11 to node2, mode protect\n"));
  EXPECT_THAT(text, HasSubstr("now      it left a dead path: path 0, udp-port 49152, 3.00 s ago\n"));
  EXPECT_THAT(text, HasSubstr("path     node2/0, udp-port 49152"));
  EXPECT_THAT(text, HasSubstr("held     locked by an operator: it leaves a dead path only, for another 1.50 min\n"));
  EXPECT_THAT(text, HasSubstr("balance  its path is congested, but no other promises 1.25 times the rate\n"));
  EXPECT_THAT(text, HasSubstr("congested for 4 windows in a row, 2 are wanted, above 10.0 µs"));
  EXPECT_THAT(text, HasSubstr("1.50 times the rate expected, with probability 0.30 per window"));
  EXPECT_THAT(text, HasSubstr("lately   12.0 s ago: queue pair moved  [psn 7]\n"));
  const json reply = RunJson({"why", "0b5c91fe"});
  EXPECT_EQ(reply["placement"], "left_dead_path");
  EXPECT_EQ(reply["rule"]["candidates"][0]["gain"], 1.5);
  EXPECT_EQ(reply["holds"][0]["kind"], "lock");
  EXPECT_THAT(Run({"why", "33333333"}).out, HasSubstr("it arrives here"));
}

TEST_F(Cwctl, WhyOfAPathIsFoundByPeerAndNumber) {
  for (const char* name : {"node2/1", "10.0.1.10/1"}) {
    const std::string text = Run({"why", name}).out;
    EXPECT_THAT(text, HasSubstr("path     node2/1, udp-port 49153")) << name;
    EXPECT_THAT(text, HasSubstr("3 in the last hour"));
    EXPECT_THAT(text, HasSubstr("penalty 1800"));
    EXPECT_THAT(text, HasSubstr("flows    0b5c91fe\n"));
  }
  EXPECT_TRUE(RunJson({"why", "node2/1"})["flow"].is_null());
  const RunResult none = Run({"why", "node2/7"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("no path 7 to node2"));
  EXPECT_THAT(Run({"why", "node9/1"}).err, HasSubstr("no flow is called \"node9/1\""));
  EXPECT_EQ(Run({"why"}).exit_code, 2);
}

TEST(PathRef, APeerBehindTwoNicsIsNamedWithTheNic) {
  v1::PathsReply paths;
  for (uint32_t index = 0; index < 2; ++index) {
    v1::Pair& pair = *paths.add_pairs();
    pair.set_index(index);
    pair.set_nic(index == 0 ? "eth0" : "eth1");
    pair.set_peer("node2");
    pair.set_remote_address(index == 0 ? "10.0.1.10" : "10.0.1.11");
    pair.add_paths()->set_slot(3);
  }
  const absl::Status ambiguous = api::ResolvePath(paths, "node2/3").status();
  EXPECT_TRUE(absl::IsInvalidArgument(ambiguous));
  EXPECT_THAT(ambiguous.ToString(), HasSubstr("eth1:10.0.1.11/3"));
  for (const char* name : {"eth1:node2/3", "10.0.1.11/3", "eth1:10.0.1.11/3"}) {
    const absl::StatusOr<api::PathRef> path = api::ResolvePath(paths, name);
    ASSERT_TRUE(path.ok()) << name << ": " << path.status();
    EXPECT_EQ(path->pair, 1u);
    EXPECT_EQ(path->slot, 3u);
    EXPECT_EQ(api::PathName(paths, *path), "eth1:10.0.1.11/3");
  }
  EXPECT_TRUE(absl::IsNotFound(api::ResolvePath(paths, "10.0.1.11/4").status()));
  for (const char* flow : {"rxe0/qp0x11", "rxe0/17", "0b5c91fe", "/", ""})
    EXPECT_TRUE(absl::IsUnimplemented(api::ResolvePath(paths, flow).status())) << flow;
}

TEST_F(Cwctl, ReplayNamesWhatIsNoRecording) {
  const std::string file = folder_ + "/recording";
  EXPECT_EQ(Run({"replay", file}).exit_code, 1);
  std::ofstream(file) << "something else";
  const RunResult other = Run({"replay", file});
  EXPECT_NE(other.exit_code, 0);
  EXPECT_THAT(other.err, HasSubstr("offset 0: not a file of observations"));
}

TEST_F(Cwctl, CountersAreNumbersAndZerosAreHiddenFromPeople) {
  EXPECT_THAT(Run({"counters"}).out, HasSubstr("18,000,000,000,000,000,001  gso_frames"));
  EXPECT_THAT(Run({"counters"}).out, Not(HasSubstr("ip_options")));
  EXPECT_THAT(Run({"counters", "--all"}).out, HasSubstr("ip_options"));
  EXPECT_EQ(RunJson({"counters"})["counters"][0]["value"], 18000000000000000001u);
}

TEST_F(Cwctl, ExitCodesAndErrorsAsJson) {
  json error = RunJson({"paths", "nobody"}, 1);
  EXPECT_EQ(error["error"]["code"], "NOT_FOUND");
  EXPECT_EQ(error["error"]["message"], "there is no peer \"nobody\"; known: node2 (10.0.1.10)");
  EXPECT_EQ(RunJson({"steer", "set", "17", "--path", "9"}, 1)["error"]["code"], "FAILED_PRECONDITION");
  EXPECT_EQ(RunJson({"steer", "set", "17", "--path", "10"}, 4)["error"]["code"], "UNIMPLEMENTED");
  EXPECT_EQ(RunJson({"steer", "set", "17"}, 2)["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(RunJson({"steer", "set", "17", "--path", "1", "--native"}, 2)["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(RunJson({"steer", "set", "17", "--path", "1", "--for", "5"}, 2)["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(RunJson({"steer", "set", "17", "--port", "70000"}, 2)["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(RunJson({"steer", "clear"}, 2)["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(RunJson({"mode", "fast"}, 2)["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(RunJson({"mode", "protect", "observe"}, 2)["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(RunJson({"mode", "balance=protect"}, 2)["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(RunJson({"mode", "colour=act"}, 2)["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(RunJson({"status", "--watch=soon"}, 2)["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(RunJson({"nonsense"}, 2)["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(RunJson({}, 2)["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(Run({"--help"}).exit_code, 0);
  EXPECT_EQ(Run({"steer", "set", "--help"}).exit_code, 0);
  EXPECT_EQ(Run({"--version"}).exit_code, 0);
}

TEST_F(Cwctl, UnknownNamesAreErrorsThatListTheKnownOnes) {
  for (const std::vector<std::string>& typed : std::vector<std::vector<std::string>>{
           {"paths", "h9"}, {"owd", "h9"}, {"qps", "--remote", "h9"}, {"events", "--type", "job", "--peer", "h9"}}) {
    const RunResult text = Run(typed);
    EXPECT_EQ(text.exit_code, 1) << typed[0];
    EXPECT_EQ(text.out, "") << typed[0];
    EXPECT_THAT(text.err, HasSubstr("there is no peer \"h9\"; known: node2 (10.0.1.10)")) << typed[0];
  }
  EXPECT_EQ(Run({"qps", "--remote", "10.0.1.10"}).exit_code, 0);
  const RunResult type = Run({"events", "--type", "pth"});
  EXPECT_EQ(type.exit_code, 2);
  EXPECT_THAT(type.err, HasSubstr("did you mean path? Known: path, decision, trial, "));
}

TEST_F(Cwctl, AMistypedVerbGetsTheNearestOne) {
  EXPECT_THAT(Run({"pahts"}).err, HasSubstr("there is no verb \"pahts\"; did you mean paths? Known: status, counters"));
  EXPECT_THAT(Run({"clock"}).err, HasSubstr("cwctl clock needs a verb: tracking, sources, mesh, nics, bound"));
  EXPECT_THAT(Run({"clock", "mash"}).err, HasSubstr("there is no cwctl clock verb \"mash\"; did you mean mesh?"));
  EXPECT_EQ(Run({"pahts"}).exit_code, 2);
}

TEST_F(Cwctl, AnIntervalWithoutItsEqualsSignIsNoPeer) {
  for (const char* verb : {"owd", "paths"}) {
    const RunResult text = Run({verb, "--watch", "2"});
    EXPECT_EQ(text.exit_code, 2) << verb;
    EXPECT_THAT(text.err, HasSubstr("--watch=2s")) << verb;
  }
}

TEST_F(Cwctl, WhatWasNotWrittenIsAFailure) {
  for (const char* verb : {"status", "paths", "qps", "events", "counters", "doctor", "nics", "--help", "off"}) {
    const RunResult text = RunProgram("/bin/sh", {"-c", std::string(CWCTL_PATH " ") + verb + " >/dev/full"},
                                      {{"CWFABRIC_SOCKET", socket_}});
    EXPECT_EQ(text.exit_code, 1) << verb;
    EXPECT_THAT(text.err, HasSubstr("standard output")) << verb;
  }
  const RunResult as_json =
      RunProgram("/bin/sh", {"-c", CWCTL_PATH " status --json >/dev/full"}, {{"CWFABRIC_SOCKET", socket_}});
  EXPECT_EQ(as_json.exit_code, 1);
  // Who has seen enough closes the pipe.
  EXPECT_EQ(RunProgram("/bin/sh", {"-c", "set -e; { " CWCTL_PATH " status; echo $? >&2; } | true"},
                       {{"CWFABRIC_SOCKET", socket_}})
                .err,
            "0\n");
}

TEST_F(Cwctl, PathsShowTheColumnsThatAreAskedFor) {
  EXPECT_THAT(Run({"paths", "-o", "path,state,hops"}).out, HasSubstr("  PATH  STATE  HOPS\n     0  up     10.0.0.1"));
  EXPECT_THAT(Run({"paths", "-o", "forward-p99"}).out, HasSubstr("  FORWARD P99\n"));
  EXPECT_EQ(Run({"paths", "-o", "wide"}).out, Run({"paths"}).out) << "a pipe gets all";
  const RunResult wrong = Run({"paths", "-o", "stat"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("there is no column \"stat\"; did you mean state? Known: path, port"));
}

TEST_F(Cwctl, NoAgent) {
  server_.reset();
  const RunResult text = Run({"status"});
  EXPECT_EQ(text.exit_code, 3);
  EXPECT_EQ(text.out, "");
  EXPECT_THAT(text.err, HasSubstr("no agent answers on " + socket_));
  EXPECT_EQ(RunJson({"events", "--follow"}, 3)["error"]["code"], "UNAVAILABLE");
  // The socket given does not tell whose pins to change.
  EXPECT_THAT(std::string(RunJson({"off"}, 3)["error"]["message"]), HasSubstr("add --instance"));
}

TEST_F(Cwctl, DoctorWorksWithoutAnAgent) {
  server_.reset();
  const json reply = json::parse(Run({"doctor", "--json"}).out);
  std::map<std::string, std::string> results;
  for (const json& check : reply["checks"]) results[check["name"]] = check["result"];
  EXPECT_EQ(results["agent"], "warn");
  EXPECT_EQ(results["fabric hashing"], "unknown");
  for (const char* name : {"kernel BTF", "bpffs", "capabilities", "BPF JIT", "real time"}) {
    EXPECT_EQ(results.count(name), 1u) << name;
  }
}

TEST_F(Cwctl, DoctorFailsWhenACheckDoes) {
  EXPECT_EQ(Run({"doctor"}).exit_code, 0);
  v1::Check& check = *agent_.doctor.add_checks();
  check.set_name("BPF JIT");
  check.set_result(v1::Check::RESULT_FAIL);
  check.set_seen("off");
  check.set_todo("sysctl -w net.core.bpf_jit_enable=1");
  const RunResult text = Run({"doctor"});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.out, HasSubstr("fail     BPF JIT  off\n                  → sysctl"));
}

// Read as its configuration by the agent's own parser.
TEST_F(Cwctl, FleetJoinPrintsWhatTheAgentTakes) {
  const std::vector<std::string> verb = {"fleet", "join",   "node17",   "--fleet", "fleet1:9480", "--ca",
                                         "/keys", "--also", "10.0.0.5", "--allow", "drain"};
  const RunResult text = Run(verb);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("cwctl certs host node17 --ca /keys --also 10.0.0.5\n"));
  EXPECT_THAT(text.out, HasSubstr("systemctl reload cwfabric-agent"));
  const json printed = RunJson(verb);
  const absl::StatusOr<config::Config> config =
      config::ParseConfig("[[nic]]\nname = \"eth0\"\n" + printed["config"].get<std::string>(), "cwagentd.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->fleet.endpoints, std::vector<std::string>{"fleet1:9480"});
  EXPECT_EQ(config->fleet.tls_key, "/etc/cwfabric/node17.key");
  EXPECT_EQ(config->fleet.allow, std::vector<std::string>{"drain"});
  EXPECT_NE(Run({"fleet", "join", "node17"}).exit_code, 0) << "no service is named";
  EXPECT_NE(Run({"fleet", "join", "a b;c", "--fleet", "f:1"}).exit_code, 0);
}

}  // namespace
}  // namespace cw::cli
