// SPDX-License-Identifier: Apache-2.0
//
// --host of the reading verbs: the real cwctl against a fleet service on the loopback that is as old as it is told.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tests/unit/cli_run.h"
#include "tests/unit/tls_files.h"
#include "userspace/api/fleet.grpc.pb.h"

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
    return grpc::Status::OK;
  }
};

// The same with a job of two ranks, and events.
class FleetWithAJob : public FakeFleet {
 public:
  std::atomic<int64_t> from_ns = 0, to_ns = 0;  // of the last question for events
  grpc::Status Events(grpc::ServerContext*, const v1::FleetEventsRequest* request, v1::FleetEventsReply*) override {
    from_ns = request->from_ns();
    to_ns = request->to_ns();
    return grpc::Status::OK;
  }
  grpc::Status Work(grpc::ServerContext*, const v1::FleetWorkRequest* request, v1::FleetWorkReply* reply) override {
    reply->mutable_coverage()->set_hosts(2);
    reply->mutable_coverage()->add_missing("h2: not connected");
    if (request->flows()) {
      v1::FleetFlow& flow = *reply->add_flows();
      flow.set_host(request->host());
      flow.set_peer("h2");
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

std::string TextOf(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class CwctlFleet : public ::testing::Test {
 protected:
  void SetUp() override {
    const tls::Files files = site_.Host("fleet1");
    grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = TextOf(files.ca);
    options.pem_key_cert_pairs = {{TextOf(files.key), TextOf(files.cert)}};
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port_);
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
  run = Run({"owd"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("has no answer to owd"), HasSubstr("--server HOST:PORT owd")));
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
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("2026-05-01T12:00:00"), HasSubstr("13.50 GPU-hours lost, 12.50 of them to the network"),
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
