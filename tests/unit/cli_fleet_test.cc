// SPDX-License-Identifier: Apache-2.0
//
// --host of the reading verbs: the real cwctl against a fleet service on the loopback that is as old as it is told.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/unit/cli_run.h"
#include "tests/unit/tls_files.h"
#include "tests/unit/tls_grpc.h"
#include "userspace/api/fleet.grpc.pb.h"
#include "userspace/fleet/topology/fleet_file.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Knows h1 and h2, and a link of each. An old one does not see for which host it is asked.
class FakeFleet : public v1::Fleet::Service {
 public:
  std::atomic<bool> old = false;

  grpc::Status Hosts(grpc::ServerContext*, const v1::FleetHostsRequest* request, v1::FleetHostsReply* reply) override {
    for (const char* name : {"h1", "h2"}) {
      if (!old && request->host() != name) continue;
      reply->add_hosts()->set_host(name);
      reply->mutable_coverage()->add_missing(absl::StrCat(name, ": not connected"));
    }
    reply->mutable_coverage()->set_hosts(static_cast<uint32_t>(reply->hosts_size()));
    return grpc::Status::OK;
  }
  grpc::Status Topology(grpc::ServerContext*, const v1::FleetTopologyRequest* request,
                        v1::FleetTopologyReply* reply) override {
    for (const char* name : {"h1", "h2"}) {
      if (old || request->host() == name) reply->add_links()->set_from(absl::StrCat("leaf-of-", name));
    }
    if (!old) reply->set_host(request->host());
    if (request->host().empty()) AddFabric(*reply);
    return grpc::Status::OK;
  }

 private:
  static void AddFabric(v1::FleetTopologyReply& reply) {
    for (const char* name : {"spine1", "10.9.0.1"}) {
      v1::FleetSwitch& s = *reply.add_switches();
      s.set_name(name);
      s.set_named(std::string(name) == "spine1");
      s.add_addresses(s.named() ? "10.9.0.0" : name);
      s.set_plane(2);
      s.set_rack("row \"3\"");
    }
    const auto link = [&](const char* from, const char* to, const char* port) {
      v1::FleetLink& l = *reply.add_links();
      l.set_from(from);
      l.set_to(to);
      l.set_port(port);
    };
    link("spine1", "10.9.0.1", "10.9.0.1");
    link("10.9.0.1", "10.0.0.1", "10.0.0.1");
    link("10.0.0.1", "10.9.0.1", "10.9.0.3");
  }
};

// The same with a job of two ranks, and events.
class FleetWithAJob : public FakeFleet {
 public:
  std::atomic<int64_t> from_ns = 0, to_ns = 0;  // of the last question for events
  grpc::Status Events(grpc::ServerContext*, const v1::FleetEventsRequest* request,
                      v1::FleetEventsReply* reply) override {
    from_ns = request->from_ns();
    to_ns = request->to_ns();
    for (const char* peer : {"h2", "h7"}) {
      v1::Event& event = *reply->add_events()->mutable_event()->mutable_event();
      event.set_peer(peer);
      event.set_text(absl::StrCat("path 3 to ", peer, " is dead"));
    }
    return grpc::Status::OK;
  }
  grpc::Status Paths(grpc::ServerContext*, const v1::FleetPathsRequest*, v1::FleetPathsReply* reply) override {
    v1::FleetPath& path = *reply->add_paths();
    path.set_local("10.0.0.1");
    path.set_remote("10.0.1.1");
    path.set_udp_port(50000);
    path.set_state(v1::PATH_STATE_UP);
    path.set_base_ns(5'000);
    path.set_queue_p99_ns(7'000);
    return grpc::Status::OK;
  }
  grpc::Status Findings(grpc::ServerContext*, const v1::FleetFindingsRequest*, v1::FleetFindingsReply* reply) override {
    for (const char* scope : {"switch spine1", "switch spine2"}) {
      v1::FleetFinding& finding = *reply->add_findings();
      finding.set_id(std::string(scope) == "switch spine1" ? "00ab" : "00cd");
      finding.set_cause("switch dead");
      finding.set_scope(scope);
      finding.add_did("4 flows of 2 hosts left it");
    }
    return grpc::Status::OK;
  }
  grpc::Status Work(grpc::ServerContext*, const v1::FleetWorkRequest* request, v1::FleetWorkReply* reply) override {
    reply->mutable_coverage()->set_hosts(2);
    reply->mutable_coverage()->add_missing("h2: not connected");
    if (request->flows()) {
      v1::FleetFlow& flow = *reply->add_flows();
      flow.set_host(request->host());
      flow.set_peer("h2");
      flow.set_local("10.0.0.1");
      flow.set_remote("10.0.1.1");
      flow.set_qpn(0x11);
      flow.set_peer_qpn(0x22);
      flow.set_udp_port(50000);
      flow.add_hops("10.9.0.0");
      flow.set_process("python3");
      flow.set_pid(7);
      flow.set_bytes_per_s(5e9);
      flow.set_delay_samples(3);
      flow.set_delay_p50_ns(94'000);
      reply->add_others()->set_flows(3);
    }
    if (request->jobs()) AddRank(*reply->add_jobs(), request->job());
    if (request->collectives()) {
      v1::Collective& c = *reply->add_collectives()->mutable_collective();
      c.set_function("AllReduce");
      c.set_seq(42);
      c.set_peer(-1);
      c.set_state(v1::Collective::STATE_STALLED);
      c.set_held("rank 0 sent nothing");
    }
    return grpc::Status::OK;
  }
  grpc::Status Jobs(grpc::ServerContext*, const v1::FleetJobsRequest* request, v1::FleetJobsReply* reply) override {
    if (request->job() == "none") return {grpc::StatusCode::NOT_FOUND, "no job none at that time"};
    v1::FleetJob& job = *reply->add_jobs();
    job.set_name("train");
    job.set_ranks(4);
    job.set_ranks_known(2);
    job.add_hosts("h1");
    job.add_held_up("AllReduce 42 stands for 31 s: rank 1 (h2) waits for rank 0 (h1)");
    if (request->job().empty()) return grpc::Status::OK;
    AddRank(*job.add_rank_list(), "train");
    v1::FleetJobPair& pair = *job.add_pairs();
    pair.set_from("h1");
    pair.set_to("h2");
    pair.set_bytes_per_s(12.5e9);
    job.add_links()->mutable_link()->set_to("10.1.0.1");
    job.add_findings("00ab");
    reply->mutable_coverage()->add_missing("h2: not connected");
    return grpc::Status::OK;
  }
  grpc::Status DiffJobs(grpc::ServerContext*, const v1::FleetDiffJobsRequest* request,
                        v1::FleetDiffJobsReply* reply) override {
    reply->set_summary(absl::StrCat(request->first().job(), " ", request->first().at_ns(), " ", request->second().job(),
                                    " ", request->second().at_ns()));
    reply->add_changes()->set_text("h5 > h6: 45 Gbit/s, then 5 Gbit/s");
    return grpc::Status::OK;
  }
  grpc::Status Cost(grpc::ServerContext*, const v1::FleetCostRequest* request, v1::FleetCostReply* reply) override {
    reply->set_from_ns(request->from_ns());
    reply->set_to_ns(request->to_ns());
    v1::FleetCost& cost = *reply->add_costs();
    cost.set_job(request->job());
    cost.set_where("link grey: link x");
    cost.set_network(true);
    cost.set_gpu_hours(12.5);
    cost.set_avoidable_gpu_hours(7.25);
    reply->add_costs()->set_gpu_hours(1);
    return grpc::Status::OK;
  }
  grpc::Status Fit(grpc::ServerContext*, const v1::FleetFitRequest* request, v1::FleetFitReply* reply) override {
    reply->set_answer(request->host() == "h1" ? "yes" : "no");
    v1::FleetFitCheck& check = *reply->add_checks();
    check.set_what("place");
    check.set_answer(reply->answer());
    check.set_text(absl::StrCat("in ", request->job(), " for ", request->instead_of()));
    return grpc::Status::OK;
  }

 private:
  static void AddRank(v1::FleetRank& rank, const std::string& label) {
    rank.set_host("h1");
    rank.mutable_job()->set_label(label);
    rank.mutable_job()->set_ranks(4);
    rank.mutable_job()->set_slowest_peer(3);
    rank.mutable_job()->set_slowest_peer_host("h2");
  }
};

class CwctlFleet : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", tls::ServerOf(site_.Host("fleet1")), &port_);
    builder.RegisterService(&fleet_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  RunResult Run(std::vector<std::string> arguments) {
    const tls::Files& me = user_;
    arguments.insert(arguments.end(),
                     {"--fleet", absl::StrCat("127.0.0.1:", port_), "--cert", me.cert, "--key", me.key, "--ca", me.ca});
    return RunProgram(CWCTL_PATH, arguments, {});
  }

  tls::Site site_;
  tls::Files user_ = site_.User("alice", "read");
  FleetWithAJob fleet_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(CwctlFleet, StatusIsOfTheHostAloneOfAnOldServiceToo) {
  for (const bool old : {false, true}) {
    fleet_.old = old;
    const RunResult text = Run({"status", "--host", "h2"});
    EXPECT_EQ(text.exit_code, 0) << text.err;
    EXPECT_THAT(text.out, AllOf(HasSubstr("h2"), Not(HasSubstr("h1"))));
    const nlohmann::json reply = nlohmann::json::parse(Run({"status", "--host", "h2", "--json"}).out, nullptr, false);
    ASSERT_TRUE(reply.is_object()) << old;
    EXPECT_EQ(reply["hosts"].size(), 1u);
    EXPECT_EQ(reply["coverage"]["hosts"], 1);
    EXPECT_EQ(reply["coverage"]["missing"], nlohmann::json::array({"h2: not connected"}));
  }
  const RunResult none = Run({"status", "--host", "h3"});
  EXPECT_NE(none.exit_code, 0);
  EXPECT_THAT(none.err, HasSubstr("knows no host h3"));
}

// Otherwise one's own host would be read for the fleet.
TEST_F(CwctlFleet, AServiceThatIsNamedIsNotPassedOver) {
  RunResult run = Run({"paths"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("--host HOST"), HasSubstr("cwctl fleet hosts")));
  EXPECT_THAT(Run({"events"}).err, HasSubstr("cwctl fleet events"));
  run = Run({"nics"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("has no answer to nics"), HasSubstr("--server HOST:PORT nics")));
  EXPECT_THAT(Run({"clock", "sources"}).err, HasSubstr("has no answer to clock sources"));
}

TEST_F(CwctlFleet, WhyShowsAHostsFlowItsWayAndWhatIsWrongThere) {
  for (const char* what : {"h2", "10.0.1.1", "0x11", "34"}) {
    const RunResult run = Run({"why", what, "--host", "h1"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_THAT(run.out, AllOf(HasSubstr("h1 to h2"), HasSubstr("udp-port 50000: up"), HasSubstr("findings 00ab"),
                               HasSubstr("path 3 to h2 is dead"), HasSubstr("partial")));
    EXPECT_THAT(run.out, AllOf(Not(HasSubstr("00cd")), Not(HasSubstr("h7")))) << "another way, another peer";
  }
  const nlohmann::json reply = nlohmann::json::parse(Run({"why", "h2", "--host", "h1", "--json"}).out, nullptr, false);
  ASSERT_TRUE(reply.is_object());
  EXPECT_EQ(reply["flows"][0]["findings"][0]["id"], "00ab");
  EXPECT_EQ(reply["flows"][0]["path"]["base_ns"], 5000);
  const RunResult none = Run({"why", "h9", "--host", "h1"});
  EXPECT_NE(none.exit_code, 0);
  EXPECT_THAT(none.err, HasSubstr("h1 told of no flow h9"));
}

TEST_F(CwctlFleet, DelaysAndClockOfAHost) {
  const RunResult owd = Run({"owd", "10.0.1.1", "--host", "h1"});
  EXPECT_EQ(owd.exit_code, 0) << owd.err;
  EXPECT_THAT(owd.out, AllOf(HasSubstr("5.00 µs"), HasSubstr("12.0 µs"))) << "base, and the queues on top";
  const RunResult clock = Run({"clock", "tracking", "--host", "h1"});
  EXPECT_EQ(clock.exit_code, 0) << clock.err;
  EXPECT_THAT(clock.out, HasSubstr("it told nothing of its clock"));
}

TEST_F(CwctlFleet, AFindingSaysWhatWasDoneAndAFabricIsItsOwnPlan) {
  EXPECT_THAT(Run({"fleet", "topology"}).out, HasSubstr("PLANE"));
  const RunResult run = Run({"fleet", "topology", "--plan", "--numeric"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const absl::StatusOr<fleet::FleetFile> plan = fleet::ReadFleetFile(run.out, "plan");
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->switches.size(), 2u);
  EXPECT_EQ(plan->switches[0].name, "spine1");
  EXPECT_EQ(plan->switches[0].rack, "row \"3\"");
  ASSERT_EQ(plan->cables.size(), 1u);
  EXPECT_EQ(plan->cables[0].from, "spine1");
  ASSERT_EQ(plan->nics.size(), 1u);
  EXPECT_EQ(plan->nics[0].leaf, "10.9.0.1");
}

TEST_F(CwctlFleet, EventsOfASpanAndHostsThatAreWatched) {
  RunResult run = Run({"fleet", "events", "--from", "2026-05-01T12:00:00Z", "--to", "2026-05-01T12:10:00Z"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(fleet_.from_ns, 1'777'636'800'000'000'000);
  EXPECT_EQ(fleet_.to_ns - fleet_.from_ns, 600'000'000'000);
  run = Run({"fleet", "events", "--from", "yesterday"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("--from yesterday"));
  run = Run({"fleet", "links", "--watch=100ms", "--count", "2", "--json"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 2) << run.out;
}

TEST_F(CwctlFleet, HostsOfNowAreNotShownAsOfThen) {
  for (const std::vector<std::string>& verb : std::vector<std::vector<std::string>>{
           {"status", "--host", "h2", "--at=-10m"}, {"fleet", "hosts", "--at=-10m"}}) {
    const RunResult run = Run(verb);
    EXPECT_NE(run.exit_code, 0);
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr("upgrade cwfleetd"));
  }
}

TEST_F(CwctlFleet, LinksOfAllAreNotShownAsAHosts) {
  const RunResult well = Run({"links", "--host", "h2"});
  EXPECT_EQ(well.exit_code, 0) << well.err;
  EXPECT_THAT(well.out, AllOf(HasSubstr("leaf-of-h2"), Not(HasSubstr("leaf-of-h1"))));
  fleet_.old = true;
  const RunResult old = Run({"links", "--host", "h2"});
  EXPECT_NE(old.exit_code, 0);
  EXPECT_EQ(old.out, "");
  EXPECT_THAT(old.err, HasSubstr("upgrade cwfleetd"));
}

TEST_F(CwctlFleet, JobsOverAllHostsAndOne) {
  RunResult run = Run({"fleet", "jobs"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("train"), HasSubstr("2 of 4"), HasSubstr("AllReduce 42 stands for 31 s")));
  EXPECT_THAT(run.out, Not(HasSubstr("partial")));
  run = Run({"fleet", "jobs", "train", "--watch=100ms", "--count", "1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("held up   AllReduce 42"), HasSubstr("cwctl fleet findings 00ab"),
                    HasSubstr("100 Gbit/s"), HasSubstr("> 10.1.0.1"), HasSubstr("3 (h2)"), HasSubstr("partial")));
  const auto json = nlohmann::json::parse(Run({"fleet", "jobs", "train", "--json"}).out);
  EXPECT_EQ(json["jobs"][0]["pairs"][0]["to"], "h2");
  run = Run({"fleet", "jobs", "none"});
  EXPECT_NE(run.exit_code, 0);
  EXPECT_THAT(run.err, HasSubstr("no job none"));
}

TEST_F(CwctlFleet, TwoRunsAreNamedWithTheirTimes) {
  const RunResult run = Run({"fleet", "jobs", "diff", "a@b@2026-05-01T12:00:00Z", "train"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("a@b 1777636800000000000 train 0"), HasSubstr("45 Gbit/s, then 5 Gbit/s")));
  const RunResult bad = Run({"fleet", "jobs", "diff", "train@yesterday", "train"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("behind the @ a time"));
}

TEST_F(CwctlFleet, WhatJobsLostIsSummedAndSplit) {
  const RunResult run = Run({"fleet", "cost", "train", "--from", "2026-05-01T12:00:00Z"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("2026-05-01T12:00:00"),
                             HasSubstr("13.50 GPU-hours lost, 12.50 of them to the network; agents that act "
                                       "instead of observing would have saved 7.25"),
                             HasSubstr("link grey: link x")));
  EXPECT_EQ(Run({"fleet", "cost", "--from", "yesterday"}).exit_code, 2);
}

TEST_F(CwctlFleet, WhetherAHostFitsIsItsExitCode) {
  const RunResult yes = Run({"fleet", "fit", "h1", "train", "--instead-of", "h2"});
  EXPECT_EQ(yes.exit_code, 0) << yes.err;
  EXPECT_THAT(yes.out, AllOf(HasSubstr("h1 in train: yes"), HasSubstr("in train for h2")));
  const RunResult no = Run({"fleet", "fit", "h7", "train", "--json"});
  EXPECT_EQ(no.exit_code, 1);
  EXPECT_EQ(nlohmann::json::parse(no.out)["answer"], "no");
  EXPECT_EQ(Run({"fleet", "fit", "h1"}).exit_code, 2);
}

TEST_F(CwctlFleet, QueuePairsRanksAndCollectivesOfAHost) {
  RunResult run = Run({"qps", "--host", "h1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("python3[7]"), HasSubstr("40.0 Gbit/s"), HasSubstr("94"),
                             HasSubstr("3 queue pairs that sent less"), HasSubstr("partial")));
  run = Run({"jobs", "--host", "h1", "--job", "train", "--at=-5m"});
  EXPECT_THAT(run.out, AllOf(HasSubstr("train"), HasSubstr("3 (h2)")));
  run = Run({"collectives", "--host", "h1", "--slow"});
  EXPECT_THAT(run.out, AllOf(HasSubstr("42"), HasSubstr("stalled"), HasSubstr("rank 0 sent nothing")));
  run = Run({"qps", "--host", "h1", "--received"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("--received is answered by the host's agent alone"));
}

}  // namespace
}  // namespace cw::cli
