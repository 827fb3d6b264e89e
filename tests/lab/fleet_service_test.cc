// SPDX-License-Identifier: Apache-2.0
// Real agents on the lab's fabric, and a real cwfleetd that they tell what they see: it is there, and what happens
// while the service is gone comes later, whole and once.
#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "tests/lab/fleet_service_rig.h"
#include "userspace/lab/host_fault.h"

namespace cw::lab {
namespace {

using nlohmann::json;

class FleetServiceTest : public FleetServiceRig {
 protected:
  void SetUp() override {
    TestbedSpec spec = Spec("fleetsvc", 1);
    spec.adjust = [](int, config::Config& config) {
      config.metrics.listen = "0.0.0.0:9477";
      config.metrics.allow_remote = true;
    };
    Up(spec, "", "[alerts]\nalertmanager = [\"http://127.0.0.1:9093\"]\n[metrics]\nlisten = \"127.0.0.1:9481\"\n");
  }
  ~FleetServiceTest() override {
    for (ProcessId* process : {&alertmanager_, &prometheus_}) {
      if (process->pid != 0) EndProcess(*process).IgnoreError();
    }
  }

  // The real one, with no target but the service's list.
  void StartPrometheus() {
    std::ofstream(folder_ + "/prometheus.yml")
        << "global: {scrape_interval: 1s}\nscrape_configs: [{job_name: cwfabric, http_sd_configs: "
           "[{url: 'http://127.0.0.1:9481/sd', refresh_interval: 1s}]}]\n";
    const absl::StatusOr<ProcessId> started =
        StartProcess(bed_->OnHost0({"prometheus", "--config.file=" + folder_ + "/prometheus.yml",
                                    "--storage.tsdb.path=" + folder_ + "/tsdb", "--web.listen-address=127.0.0.1:9090"}),
                     folder_ + "/prometheus.log");
    ASSERT_TRUE(started.ok()) << started.status();
    prometheus_ = *started;
  }
  // What it answers, as "host" → value.
  std::map<std::string, std::string> Query(const std::string& expression) const {
    std::map<std::string, std::string> by_host;
    const absl::StatusOr<std::string> text =
        RunTool(bed_->OnHost0({"promtool", "query", "instant", "--format=json", "http://127.0.0.1:9090", expression}));
    const json reply = text.ok() ? json::parse(*text, nullptr, false) : json{};
    for (const json& series : reply.is_array() ? reply : json::array())
      by_host[series["metric"].value("host", "")] = series["value"][1].get<std::string>();
    return by_host;
  }

  // The real one; beside the service.
  void StartAlertmanager() {
    std::ofstream(folder_ + "/alertmanager.yml") << "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n";
    const absl::StatusOr<ProcessId> started =
        StartProcess(bed_->OnHost0({"prometheus-alertmanager", "--config.file=" + folder_ + "/alertmanager.yml",
                                    "--storage.path=" + folder_ + "/alerts", "--web.listen-address=127.0.0.1:9093",
                                    "--cluster.listen-address="}),
                     folder_ + "/alertmanager.log");
    ASSERT_TRUE(started.ok()) << started.status();
    alertmanager_ = *started;
    ASSERT_TRUE(Eventually([&] { return Alerts().is_array(); }));
  }
  json Alerts() const {
    const absl::StatusOr<std::string> text =
        RunTool(bed_->OnHost0({"amtool", "--alertmanager.url=http://127.0.0.1:9093", "alert", "query", "-o", "json"}));
    return text.ok() ? json::parse(*text, nullptr, false) : json{};
  }

  // Hosts that an answer does not cover.
  std::vector<std::string> Missing(const std::vector<std::string>& verb) const {
    std::vector<std::string> names;
    const json reply = Ask(verb);
    if (!reply.contains("coverage")) return {reply.dump()};
    for (const json& missing : reply["coverage"]["missing"]) {
      const auto text = missing.get<std::string>();
      names.push_back(text.substr(0, text.find(':')));
    }
    return names;
  }

  ProcessId alertmanager_, prometheus_;
};

TEST_F(FleetServiceTest, PrometheusReadsAllAgentsFromTheServicesList) {
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_NO_FATAL_FAILURE(StartPrometheus());
  const std::map<std::string, std::string> both = {{"h0", "1"}, {"h1", "1"}};
  EXPECT_TRUE(Eventually([&] { return Query("up{job=\"cwfabric\"}") == both; })) << Why();
  EXPECT_EQ(Query("cwfabric_agent_uptime_seconds > bool 0"), both) << "each host's own page under its name";
  EXPECT_EQ(Ask({"hosts"})["hosts"][1]["metrics_address"], "192.168.77.11:9477");

  const absl::StatusOr<std::string> live = RunTool(bed_->OnHost0(
      {"bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/9481; printf 'GET /live HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"}));
  EXPECT_THAT(live.value_or(""), testing::HasSubstr("200 OK")) << live.status();

  // One that is gone stays a target, so that somebody is told.
  ASSERT_TRUE(EndAgent(*testbed_, 1, SIGTERM).ok());
  const std::map<std::string, std::string> one = {{"h0", "1"}, {"h1", "0"}};
  EXPECT_TRUE(Eventually([&] { return Query("up{job=\"cwfabric\"}") == one; })) << Why();
  ASSERT_TRUE(bed_->End().ok());
  ASSERT_TRUE(bed_->Start(testbed_->fabric()).ok());
  EXPECT_TRUE(Eventually([&] { return bed_->Log().find("h0 is connected") != std::string::npos; })) << Why();
  EXPECT_EQ(Query("up{job=\"cwfabric\"}"), one) << "the list outlives a restart of the service";
}

TEST_F(FleetServiceTest, HoldsWhatAllHostsSeeAndLosesNothingWhileItIsGone) {
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_TRUE(Eventually([&] { return bed_->AllThere(); })) << Why();
  std::printf("both hosts with their paths %.1f s after the service's start\n",
              absl::ToDoubleSeconds(absl::Now() - started_at_));
  const json topology = Ask({"topology"});
  EXPECT_GE(topology["switches"].size(), 4u) << topology.dump(1);
  for (int host = 0; host < 2; ++host) EXPECT_TRUE(Eventually([&] { return SameEvents(host); })) << Why();

  ASSERT_TRUE(bed_->Kill().ok());
  for (int host = 0; host < 2; ++host) Act(host, 6);
  // The spool outlives its agent, too.
  ASSERT_TRUE(EndAgent(*testbed_, 1, SIGTERM).ok());
  ASSERT_TRUE(testbed_->StartAgent(1).ok());
  Act(1, 4);
  ASSERT_TRUE(bed_->Start(testbed_->fabric()).ok());
  const absl::Time again = absl::Now();
  for (int host = 0; host < 2; ++host) {
    EXPECT_TRUE(Eventually([&] { return SameEvents(host); }, absl::Minutes(2)))
        << Why() << "\nwritten " << bed_->Written(testbed_->fabric(), host).size() << ", stored "
        << bed_->Stored(host).size();
  }
  std::printf("all events there %.1f s after the service was started again\n",
              absl::ToDoubleSeconds(absl::Now() - again));
  EXPECT_TRUE(Eventually([&] { return bed_->AllThere(); })) << Why();

  // A time at which the service kept all of h1: how long ago that is depends on the machine.
  std::string whole;
  EXPECT_TRUE(Eventually([&] {
    whole = absl::StrCat("--at=", absl::FormatTime(absl::RFC3339_full, absl::Now(), absl::UTCTimeZone()));
    return !bed_->Ask({"links", "--host", "h1", whole})["links"].empty();
  })) << Why();

  // A partial answer says what it is.
  ASSERT_TRUE(EndAgent(*testbed_, 1, SIGTERM).ok());
  EXPECT_TRUE(Eventually([&] { return Missing({"topology"}) == std::vector<std::string>{"h1"}; })) << Why();
  EXPECT_EQ(Missing({"hosts"}), std::vector<std::string>{"h1"});
  EXPECT_TRUE(Missing({"topology", whole}).empty()) << "as it was then";

  // The reading verbs, of a host that is down.
  EXPECT_FALSE(bed_->Ask({"paths", "--host", "h1", whole})["paths"].empty());
  EXPECT_FALSE(bed_->Ask({"links", "--host", "h1", whole})["links"].empty());
  EXPECT_EQ(bed_->Ask({"events", "--host", "h1", "-n", "2"})["events"].size(), 2u);
  EXPECT_EQ(bed_->Ask({"status", "--host", "h1"})["hosts"][0]["connected"], false);
  const json then = bed_->Ask({"status", "--host", "h1", whole})["hosts"][0];
  EXPECT_EQ(then["connected"], true) << then.dump(1);
  EXPECT_GT(then["up"], 0) << then.dump(1);
  EXPECT_EQ(then["nics"].size(), 1u) << then.dump(1);
  EXPECT_EQ(bed_->Ask({"fleet", "hosts", whole})["hosts"].size(), 2u);
  EXPECT_FALSE(bed_->Ask({"paths", "--host", "h0"})["paths"].empty());
  EXPECT_EQ(Missing({"jobs"}), std::vector<std::string>{"h1"});
  for (const auto& [verb, says] : std::vector<std::pair<std::vector<std::string>, const char*>>{
           {{"paths", "--host", "h7"}, "knows no host h7"},
           {{"paths", "--host", "h0", "--window", "60"}, "--window is answered by the host's agent alone"},
           {{"qps", "--host", "h0", "--received"}, "--received is answered by the host's agent alone"},
           {{"fleet", "jobs", "train"}, "no job train at that time"},
           {{"status", "--host", "h7", "--at=-10s"}, "knows no host h7"}})
    EXPECT_THAT(std::string(bed_->Run(verb).status().message()), testing::HasSubstr(says));

  EXPECT_TRUE(bed_->End().ok()) << "it ends cleanly";
}

// It died and nobody repairs it: first that is a finding, then nobody speaks of it any more.
TEST_F(FleetServiceTest, AHostThatIsRemovedIsMissedNoLonger) {
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_TRUE(Eventually([&] { return SeesAll(); })) << Why();
  const auto refused = bed_->Run({"fleet", "remove", "h1"}, "root0");
  EXPECT_THAT(std::string(refused.status().message()), testing::HasSubstr("h1 is connected"));
  const auto forbidden = bed_->Run({"fleet", "remove", "h1"}, "alice");
  EXPECT_THAT(std::string(forbidden.status().message()), testing::HasSubstr("this takes the role steer"));

  ASSERT_TRUE(EndAgent(*testbed_, 1, SIGTERM).ok());
  EXPECT_TRUE(Eventually([&] { return !Findings().empty(); }, absl::Minutes(2))) << Why();
  EXPECT_TRUE(Eventually([&] { return Missing({"hosts"}) == std::vector<std::string>{"h1"}; })) << Why();
  const auto removed = bed_->Run({"fleet", "remove", "h1"}, "root0");
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(Ask({"hosts"})["hosts"].size(), 1u);
  EXPECT_TRUE(Missing({"hosts"}).empty());
  EXPECT_FALSE(bed_->Stored(1).empty()) << "history stays";
  EXPECT_TRUE(Eventually([&] { return Findings().empty(); }, absl::Minutes(2))) << Findings().dump(1) << Why();

  ASSERT_TRUE(testbed_->StartAgent(1).ok());
  EXPECT_TRUE(Eventually([&] { return bed_->AllThere(); })) << Why();
}

// All four ways over it, without a port that goes down.
TEST_F(FleetServiceTest, ASilentlyCutSpineIsOneFindingThatEndsWhenItHeals) {
  ASSERT_FALSE(HasFatalFailure());
  StartAlertmanager();
  ASSERT_TRUE(Eventually([&] { return SeesAll(); })) << Ask({"topology"}).dump(1) << Why();
  EXPECT_TRUE(Ask({"findings", "--all"})["findings"].empty()) << Ask({"findings", "--all"}).dump(1);

  const auto cut = [&](const Fault& fault) {
    for (int leaf = 0; leaf < 2; ++leaf) EXPECT_TRUE(SetCable(leaf, 1, fault).ok());
  };
  cut(Fault::Drop());
  const absl::Time cut_at = absl::Now();
  EXPECT_TRUE(Eventually([&] { return Findings().size() == 1; })) << Why();
  std::printf("found %.1f s after the cut\n", absl::ToDoubleSeconds(absl::Now() - cut_at));
  const absl::Time found_at = absl::Now();
  ASSERT_TRUE(Eventually([&] { return Alerts().size() == 1; })) << Why();
  std::printf("alert %.1f s after the cut\n", absl::ToDoubleSeconds(absl::Now() - cut_at));
  EXPECT_LT(absl::Now() - found_at, absl::Seconds(3));
  // Between two leaves it may be either cable, until traces show where both are cut.
  const auto is_spine = [&] {
    const json alerts = Alerts();
    return alerts.size() == 1 && alerts[0]["labels"]["scope"] == "switch spine1";
  };
  EXPECT_TRUE(Eventually(is_spine)) << Alerts().dump(1);
  std::printf("known to be the switch %.1f s after the cut\n", absl::ToDoubleSeconds(absl::Now() - cut_at));
  EXPECT_TRUE(Eventually([&] {
    const json told = Ask({"alerts"});
    return told["alerts"].size() == 1 && told["alerts"][0]["result"] == "delivered";
  })) << Ask({"alerts"}).dump(1);
  // Nobody is alarmed by it for a while.
  ASSERT_TRUE(bed_->Run({"fleet", "mute", "switch spine1", "--for", "1h", "--reason", "known"}, "root0").ok());
  EXPECT_TRUE(Eventually([&] { return Alerts().is_array() && Alerts().empty(); })) << Alerts().dump(1);
  EXPECT_EQ(Findings().at(0)["muted_by"], "root0 (known)") << Findings().dump(1);
  ASSERT_TRUE(bed_->Run({"fleet", "unmute", "switch spine1"}, "root0").ok());
  EXPECT_TRUE(Eventually([&] { return Alerts().size() == 1; })) << Why();
  const json found = Findings()[0];
  EXPECT_EQ(found["cause"], "switch dead") << found.dump(1);
  EXPECT_EQ(found["scope"], "switch spine1") << found.dump(1);
  EXPECT_EQ(found["hosts"], (json{"h0", "h1"})) << found.dump(1);
  EXPECT_EQ(Ask({"findings", found["id"].get<std::string>()})["findings"].size(), 1u);

  cut(Fault::None());
  EXPECT_TRUE(Eventually([&] { return Findings().empty(); }, absl::Minutes(2))) << Findings().dump(1) << Why();
  EXPECT_TRUE(Eventually([&] { return Alerts().is_array() && Alerts().empty(); })) << Alerts().dump(1);
  const json all = Ask({"findings", "--all"})["findings"];
  ASSERT_EQ(all.size(), 1u) << all.dump(1);
  EXPECT_EQ(all[0]["id"], found["id"]);
}

}  // namespace
}  // namespace cw::lab
