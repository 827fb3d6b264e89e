// SPDX-License-Identifier: Apache-2.0
// cwfleetd's configuration, its own figures, and findings as messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/fleet/main/alerts_reply.h"
#include "userspace/fleet/main/fleet_metrics.h"
#include "userspace/fleet/main/fleetd_config.h"
#include "userspace/fleet/main/muter.h"
#include "userspace/fleet/main/service_discovery.h"
#include "userspace/fleet/main/who.h"
#include "userspace/fleet/query/finding_message.h"
#include "userspace/fleet/query/query.h"
#include "userspace/fleet/store/sqlite/sqlite_store.h"
#include "userspace/model/hops_id.h"

namespace cw::fleet {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTls[] = "tls_cert = \"/c\"\ntls_key = \"/k\"\ntls_ca = \"/a\"\n";

TEST(FleetdConfig, TheExampleIsTheDefaultAndEveryKeyOfItIsTaken) {
  const FleetdConfig defaults = *ParseFleetdConfig(kTls, "f");
  EXPECT_THAT(defaults.listen, ElementsAre("0.0.0.0:9480"));
  EXPECT_TRUE(defaults.alerts.alertmanagers.empty());
  EXPECT_EQ(defaults.metrics_listen, "none");
  std::string all = ExampleFleetdToml();
  for (size_t at = 0; (at = all.find("\n#", at)) != std::string::npos; ++at) {
    if (all[at + 2] != ' ') all.erase(at + 1, 1);
  }
  for (const char* key : {"tls_cert", "tls_key", "tls_ca"}) {
    const std::string empty = std::string(key) + " = \"\"";
    all.replace(all.find(empty), empty.size(), std::string(key) + " = \"/x\"");
  }
  const absl::StatusOr<FleetdConfig> read = ParseFleetdConfig(all, "f");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->keep_events, defaults.keep_events);
  EXPECT_EQ(read->store, defaults.store);
}

// packaging/kubernetes: its configuration is one, and its ports, keys and store are where the pod has them.
TEST(FleetdConfig, TheKubernetesManifestsIsTakenAndFitsThePod) {
  std::ifstream file(CW_SOURCE_DIR "/packaging/kubernetes/cwfabric-fleet.yaml");
  const std::string manifest(std::istreambuf_iterator<char>(file), {});
  std::string toml;
  const size_t from = manifest.find("cwfleetd.toml: |\n"), to = manifest.find("\n---");
  ASSERT_NE(from, std::string::npos);
  for (absl::string_view line : absl::StrSplit(manifest.substr(from, to - from), '\n')) {
    if (absl::ConsumePrefix(&line, "    ")) absl::StrAppend(&toml, line, "\n");
  }
  const absl::StatusOr<FleetdConfig> config = ParseFleetdConfig(toml, "cwfabric-fleet.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  for (const std::string& listen : {config->listen.at(0), config->metrics_listen})
    EXPECT_THAT(manifest, HasSubstr("containerPort: " + listen.substr(listen.rfind(':') + 1)));
  const std::string store = std::filesystem::path(config->store).parent_path();
  for (const std::string& folder : {store, std::string("/etc/cwfabric-fleet"), std::string("/etc/cwfabric-fleet-tls")})
    EXPECT_THAT(manifest, HasSubstr("mountPath: " + folder + "\n"));
  for (const std::string& tls : {config->tls_cert, config->tls_key, config->tls_ca}) {
    EXPECT_TRUE(absl::StartsWith(tls, "/etc/cwfabric-fleet-tls/")) << tls;
    EXPECT_THAT(manifest, HasSubstr("--from-file=" + std::filesystem::path(tls).filename().string()));
  }
}

TEST(FleetdConfig, TakesReceiversAndSaysWhatIsNone) {
  const absl::StatusOr<FleetdConfig> config = ParseFleetdConfig(
      std::string(kTls) +
          "rules_file = \"/r\"\n[alerts]\nalertmanager = [\"http://a:9093\", \"https://b\"]\n"
          "webhooks = [\"http://c/x\"]\nrunbook_url = \"https://w\"\n[metrics]\nlisten = \"[::1]:9481\"\n",
      "f");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->alerts.alertmanagers, ElementsAre("http://a:9093", "https://b"));
  EXPECT_EQ(config->runbook_url, "https://w");
  const absl::Status bad =
      ParseFleetdConfig("listen = []\n[alerts]\nwebhooks = [\"ftp://c\"]\n[metrics]\nlisten = \"auto\"\n", "f.toml")
          .status();
  EXPECT_THAT(std::string(bad.message()),
              AllOf(HasSubstr("f.toml:1"), HasSubstr("\"ftp://c\" must be a URL"), HasSubstr("f.toml:3"),
                    HasSubstr("tls_cert is missing"), HasSubstr("f.toml:5")));
}

TEST(FindingMessage, ComesBackAsItWasForEveryCause) {
  for (int c = 1; c <= kFleetCauses; ++c) {
    const Finding f{.id = 0xfedcba9876543210,
                    .cause = static_cast<Cause>(c),
                    .scope = "link a>b",
                    .links = {{*Addr::Parse("10.0.0.1"), *Addr::Parse("fd00::2")}},
                    .start_ns = 5,
                    .end_ns = 6,
                    .evidence = {"one", "two"},
                    .hosts = {"h"},
                    .jobs = {"j"},
                    .did = {"it moved"},
                    .advice = "do"};
    const absl::StatusOr<Finding> back = FindingOf(MessageOf(f));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, f) << CauseName(f.cause);
  }
}

TEST(FindingMessage, ACauseOfANewerReleaseIsSaid) {
  cwfabric::v1::FleetFinding message = MessageOf({.id = 1});
  message.set_cause("cosmic rays");
  EXPECT_THAT(std::string(FindingOf(message).status().message()),
              AllOf(HasSubstr("cosmic rays"), HasSubstr("newer release")));
  message = MessageOf({.id = 1});
  message.set_id("no id");
  EXPECT_FALSE(FindingOf(message).ok());
}

class QueryFindingsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "cw_query_XXXXXX").string();
    folder_ = mkdtemp(name.data());
    store_ = *OpenSqliteStore(folder_ + "/fleet.db");
    Put({.id = 1, .scope = "link a", .start_ns = 100, .end_ns = 200});
    Put({.id = 2, .scope = "link b", .start_ns = 150});
    Know({{.host = "h1", .connected = true}, {.host = "h2"}});
  }
  ~QueryFindingsTest() override {
    query_.reset();
    store_.reset();
    std::filesystem::remove_all(folder_);
  }
  void Put(const Finding& f) {
    ASSERT_TRUE(store_->PutFindings({{f.id, f.start_ns, f.end_ns, MessageOf(f).SerializeAsString()}}).ok());
  }
  // With these hosts from now on.
  void Know(std::vector<LiveHost> hosts) {
    query_ = std::make_unique<Query>(*store_, "one", FleetFile{}, [this, hosts = std::move(hosts)](const auto& look) {
      ++passes_;
      for (const LiveHost& host : hosts) look(host);
    });
  }
  // Scopes, with "+" where they go on.
  std::vector<std::string> Ask(const cwfabric::v1::FleetFindingsRequest& request) {
    std::vector<std::string> out;
    const auto reply = query_->Findings(request);
    if (!reply.ok()) return {std::string(absl::StatusCodeToString(reply.status().code()))};
    for (const auto& f : reply->findings()) out.push_back(f.scope() + (f.end_ns() == 0 ? "+" : ""));
    return out;
  }

  std::string folder_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Query> query_;
  int passes_ = 0;
};

TEST_F(QueryFindingsTest, NowThenAllAndOne) {
  cwfabric::v1::FleetFindingsRequest request;
  EXPECT_THAT(Ask(request), ElementsAre("link b+"));
  request.set_at_ns(120);
  EXPECT_THAT(Ask(request), ElementsAre("link a+")) << "as it was then, it had not ended";
  request.set_at_ns(0);
  request.set_all(true);
  EXPECT_THAT(Ask(request), ElementsAre("link b+", "link a"));
  request.set_id(IdText(1));
  EXPECT_THAT(Ask(request), ElementsAre("link a"));
  request.set_id(IdText(3));
  EXPECT_THAT(Ask(request), ElementsAre("NOT_FOUND"));
  request.set_id("xyz");
  EXPECT_THAT(Ask(request), ElementsAre("INVALID_ARGUMENT"));
}

TEST_F(QueryFindingsTest, AHostsLinksSayWhoseTheyAre) {
  cwfabric::v1::FleetTopologyRequest request;
  EXPECT_EQ(query_->Topology(request)->host(), "");
  request.set_host("h1");
  EXPECT_EQ(query_->Topology(request)->host(), "h1") << "a service that is too old says nothing";
  request.set_host("h9");
  EXPECT_TRUE(absl::IsNotFound(query_->Topology(request).status()));
}

TEST_F(QueryFindingsTest, SaysWhichHostsItKnowsNothingOf) {
  const auto reply = query_->Findings({});
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->coverage().hosts(), 2u);
  EXPECT_THAT(reply->coverage().missing(), ElementsAre(HasSubstr("h2: not connected")));
}

TEST_F(QueryFindingsTest, OfThePastHostsAreMissingThatToldNothingThen) {
  constexpr int64_t kThen = 1'000'000'000'000;
  HostBatch batch{.host = "h2", .run = 1, .sequence = 1};
  batch.paths.push_back(
      {.key = {.local = Addr::FromV4(1), .remote = Addr::FromV4(2), .udp_port = 5}, .time_ns = kThen});
  ASSERT_TRUE(store_->Append({batch}).ok());
  cwfabric::v1::FleetFindingsRequest request;
  request.set_at_ns(kThen);
  const auto reply = query_->Findings(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->coverage().hosts(), 2u);
  EXPECT_THAT(reply->coverage().missing(), ElementsAre(HasSubstr("h1: nothing is kept of that time")));
}

TEST_F(QueryFindingsTest, WhoseHostsPathsCrossWhatIsToldInOnePass) {
  const Addr here = *Addr::Parse("10.0.0.1"), peer = *Addr::Parse("10.0.0.2"), spine1 = *Addr::Parse("10.1.0.1"),
             spine2 = *Addr::Parse("10.1.0.2");
  const HopList over = {.id = HopsId({spine1}), .hops = {spine1}};
  ASSERT_TRUE(store_->Append({{.host = "h1", .run = 1, .sequence = 1, .hop_lists = {over}}}).ok());
  const auto host = [&](const char* name, uint64_t hops, bool reverse) {
    const PathKey key{.local = here, .remote = peer, .udp_port = 5, .reverse = reverse};
    return LiveHost{.host = name, .paths = {{key, {.key = key, .hops = hops}}}};
  };
  Know({host("back", over.id, true), host("h1", over.id, false), host("unknown", 0, false)});
  for (int turn = 0; turn < 2; ++turn) {  // lists are read, and then known
    const auto crossing = query_->Crossing({{spine1}, {spine2}, {peer, spine2}, {}});
    ASSERT_TRUE(crossing.ok()) << crossing.status();
    std::vector<std::set<std::string>> hosts;
    for (const Query::WhoCrosses& who : *crossing) hosts.push_back(who.hosts);
    EXPECT_THAT(hosts, ElementsAre(ElementsAre("h1", "unknown"), ElementsAre("unknown"), ElementsAre("h1", "unknown"),
                                   ElementsAre()));
    EXPECT_EQ((*crossing)[0].strangers.size(), 1u);
    EXPECT_TRUE((*crossing)[0].strangers.contains(peer));
    EXPECT_EQ(passes_, turn + 1);
  }
  // What a drained NIC's peer sends to it, unless that is a host of the fleet.
  EXPECT_TRUE((*query_->Crossing({{here}}))[0].strangers.contains(peer));
  LiveHost other{.host = "h2"};
  other.nics.push_back({.name = "eth0", .address = peer});
  Know({host("h1", over.id, false), other});
  const auto both = query_->Crossing({{spine1}, {here}});
  for (const auto& who : *both) EXPECT_THAT(who.strangers, ElementsAre());
}

TEST_F(QueryFindingsTest, HostsAreAsTheyWereAndOneHasItsNicsAndItsClock) {
  constexpr int64_t kThen = 1'000'000'000'000;
  HostBatch batch{.host = "h1", .run = 1, .sequence = 1};
  batch.paths.push_back({.key = {.local = Addr::FromV4(1), .remote = Addr::FromV4(2), .udp_port = 5},
                         .time_ns = kThen,
                         .state = PathState::kDead});
  cwfabric::v1::Inventory inventory;
  inventory.add_nics()->set_name("eth2");
  cwfabric::v1::ClockState clock;
  clock.set_synced(true);
  batch.documents = {{"clock", kThen, clock.SerializeAsString()}, {"inventory", kThen, inventory.SerializeAsString()}};
  ASSERT_TRUE(store_->Append({batch}).ok());
  cwfabric::v1::FleetHostsRequest request;
  request.set_at_ns(kThen + 1);
  auto reply = query_->Hosts(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->hosts_size(), 2);
  EXPECT_TRUE(reply->hosts(0).connected());
  EXPECT_EQ(reply->hosts(0).dead(), 1u);
  EXPECT_EQ(reply->hosts(0).newest_ns(), kThen);
  EXPECT_EQ(reply->hosts(0).nics_size(), 0) << "of one alone";
  EXPECT_FALSE(reply->hosts(1).connected());
  EXPECT_THAT(reply->coverage().missing(), ElementsAre(HasSubstr("h2: nothing is kept")));
  request.set_host("h1");
  for (const int64_t at_ns : {kThen + 1, int64_t{0}}) {
    request.set_at_ns(at_ns);
    reply = query_->Hosts(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_EQ(reply->hosts_size(), 1);
    ASSERT_EQ(reply->hosts(0).nics_size(), 1);
    EXPECT_EQ(reply->hosts(0).nics(0).name(), "eth2");
    EXPECT_TRUE(reply->hosts(0).clock().synced());
  }
  request.set_at_ns(kThen - 600'000'000'000);
  EXPECT_FALSE(query_->Hosts(request)->hosts(0).connected()) << "not yet";
  request.set_host("h7");
  EXPECT_TRUE(absl::IsNotFound(query_->Hosts(request).status()));
}

// "h2" of the store alone was removed, and so was "h3", which came back.
TEST_F(QueryFindingsTest, AHostThatWasRemovedIsThereInThePastOnly) {
  for (const char* host : {"h1", "h2", "h3"}) {
    HostBatch batch{.host = host, .run = 1, .sequence = 1};
    batch.paths.push_back(
        {.key = {.local = Addr::FromV4(1), .remote = Addr::FromV4(2), .udp_port = 5}, .time_ns = 100});
    ASSERT_TRUE(store_->Append({batch}).ok());
  }
  ASSERT_TRUE(store_->PutHosts({{"h2", "", 1000}, {"h3", "", 1000}}).ok());
  Know({{.host = "h1", .connected = true}, {.host = "h3", .connected = true}});
  const auto names = [&](int64_t at_ns) {
    cwfabric::v1::FleetPathsRequest request;
    request.set_at_ns(at_ns);
    std::set<std::string> found;
    const auto reply = query_->Paths(request);
    for (const auto& path : reply->paths()) found.insert(path.host());
    for (const std::string& missing : reply->coverage().missing()) found.insert(missing.substr(0, missing.find(':')));
    return found;
  };
  EXPECT_EQ(query_->Hosts({})->hosts_size(), 2);
  EXPECT_EQ(query_->Hosts({})->coverage().missing_size(), 0);
  EXPECT_EQ(names(150), (std::set<std::string>{"h1", "h2", "h3"}));
  EXPECT_EQ(names(2000), (std::set<std::string>{"h1", "h3"}));
}

TEST_F(QueryFindingsTest, PeopleMuteForAWhile) {
  const api::Caller alice{.name = "alice"};
  int64_t now_ns = 1000;
  OrderClock clock(0, {.wall_ns = [&] { return now_ns; },
                       .steady = [] { return absl::UnixEpoch(); },
                       .synchronised = [] { return true; }});
  Muter muter(*store_, clock);
  cwfabric::v1::FleetMuteRequest request;
  request.set_what("link b");
  EXPECT_TRUE(absl::IsInvalidArgument(muter.Mute(request, alice).status())) << "for ever";
  request.set_for_s(1e-6);
  request.set_reason("known");
  ASSERT_TRUE(muter.Mute(request, alice).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(muter.Mute(request, alice).status()));
  request.set_what(IdText(1));
  now_ns = 1001;
  ASSERT_TRUE(muter.Mute(request, alice).ok());
  request.set_what(IdText(99));
  EXPECT_TRUE(absl::IsNotFound(muter.Mute(request, alice).status()));
  request.set_what("nothing");
  EXPECT_TRUE(absl::IsInvalidArgument(muter.Mute(request, alice).status()));

  now_ns = 1999;
  Muter again(*store_, clock);
  EXPECT_EQ(again.Mutes().size(), 2u) << "a restart forgets none";
  EXPECT_EQ(again.MutedBy({.id = 5, .scope = "link b"}), "alice (known)");
  EXPECT_EQ(again.MutedBy({.id = 1, .scope = "link c"}), "alice (known)");
  EXPECT_EQ(again.MutedBy({.id = 5, .scope = "link c"}), "");
  now_ns = 2000;
  EXPECT_EQ(again.MutedBy({.id = 5, .scope = "link b"}), "") << "its time is over";
  cwfabric::v1::FleetUnmuteRequest end;
  end.set_what("link b");
  EXPECT_TRUE(absl::IsNotFound(again.Unmute(end, alice).status()));
  end.set_what(IdText(1));
  ASSERT_TRUE(again.Unmute(end, alice).ok());
  EXPECT_TRUE(store_->Orders("mute")->empty());
}

TEST_F(QueryFindingsTest, AMuteWithACharacterAtTheCutIsNotForgotten) {
  cwfabric::v1::FleetMuteRequest request;
  request.set_what("link b");
  request.set_for_s(1);
  request.set_reason(std::string(299, 'x') + "\u00fc");
  OrderClock clock(1000);
  ASSERT_TRUE(Muter(*store_, clock).Mute(request, {.name = "alice"}).ok());
  const std::vector<cwfabric::v1::FleetMute> kept = Muter(*store_, clock).Mutes();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].reason(), std::string(299, 'x'));
}

TEST(AlertsReply, ShowsWhatGoesOnAndWhatWasNotDelivered) {
  const std::vector<AlertCounts> counts = {{.receiver = "http://a", .sent = 3, .fault = "refused"}};
  const std::vector<AlertDelivery> of_a = {{.finding = 1, .scope = "x", .result = "delivered"},
                                           {.finding = 2, .scope = "y", .open = false, .result = "delivered"},
                                           {.finding = 3, .scope = "z", .open = false, .result = "waiting"}};
  const auto ids = [](const cwfabric::v1::FleetAlertsReply& reply) {
    std::vector<std::string> scopes;
    for (const auto& alert : reply.alerts()) scopes.push_back(alert.scope());
    return scopes;
  };
  EXPECT_THAT(ids(AlertsReplyOf(counts, {of_a}, {}, false)), ElementsAre("x", "z"));
  EXPECT_THAT(ids(AlertsReplyOf(counts, {of_a}, {}, true)), ElementsAre("x", "y", "z"));
  EXPECT_EQ(AlertsReplyOf(counts, {of_a}, {}, true).receivers(0).fault(), "refused");
}

TEST(FleetMetrics, CountsHostsFindingsAndAlerts) {
  FinderNumbers finder{.evaluations = 4, .evaluation_seconds = 0.5};
  finder.open[static_cast<size_t>(Cause::kLinkGrey)] = 2;
  HostNumbers hosts;
  hosts.Add({.host = "a", .connected = true, .batches = 3, .refused = 1, .refused_reports = 5});
  hosts.Add({.host = "b", .batches = 4});
  const std::string page = MetricsPage(hosts, finder, {{.receiver = "http://x/\"y\"", .sent = 7, .failed = 8}},
                                       {.bytes = 4096, .thinned = 5, .failures = 6, .losses = {.events = 7}});
  for (const char* line :
       {"cwfabric_fleet_hosts_known 2\n", "cwfabric_fleet_hosts_connected 1\n", "cwfabric_fleet_batches_total 7\n",
        "cwfabric_fleet_refused_total{what=\"batch\"} 1\n", "cwfabric_fleet_refused_total{what=\"report\"} 5\n",
        "cwfabric_fleet_findings_open{cause=\"link grey\"} 2\n", "cwfabric_fleet_findings_open{cause=\"clock\"} 0\n",
        "cwfabric_fleet_evaluation_seconds_count 4\n", "cwfabric_fleet_store_bytes 4096\n",
        "cwfabric_fleet_store_thinned_bytes_total 5\n", "cwfabric_fleet_store_failures_total 6\n",
        "cwfabric_fleet_store_left_out_total{what=\"event\"} 7\n",
        "cwfabric_fleet_alerts_sent_total{receiver=\"http://x/\\\"y\\\"\"} 7\n",
        "cwfabric_fleet_alert_requests_failed_total{receiver=\"http://x/\\\"y\\\"\"} 8\n"})
    EXPECT_THAT(page, HasSubstr(line));
  EXPECT_THAT(MetricsPage({}, {}, {}, {}), Not(HasSubstr("alerts")));
}

TEST(ServiceDiscovery, ListsHostsWhoseMetricsAreSomewhereWithTheirRacks) {
  EXPECT_EQ(TargetsJson({}, {}), "[]\n");
  EXPECT_EQ(
      TargetsJson({{.host = "a", .metrics = "10.0.0.1:9477"}, {.host = "b"}, {.host = "c", .metrics = "[fd00::1]:1"}},
                  {{"a", "r1"}, {"b", "r1"}}),
      "[{\"targets\":[\"10.0.0.1:9477\"],\"labels\":{\"host\":\"a\",\"rack\":\"r1\"}},"
      "{\"targets\":[\"[fd00::1]:1\"],\"labels\":{\"host\":\"c\"}}]\n");
}

TEST(ServiceDiscovery, AHostStandsWhereItsLeavesDo) {
  const Addr a = *Addr::Parse("10.0.0.1"), b = *Addr::Parse("10.0.0.2"), c = *Addr::Parse("10.0.0.3");
  Topology topology;
  topology.switches = {{.name = "l1", .rack = "r1"}, {.name = "l2", .rack = "r2"}, {.name = "l3"}};
  topology.leaf_of = {{a, 0}, {b, 1}, {c, 2}};
  const std::map<std::string, std::string> racks =
      RacksOf({{"one", {a}}, {"two", {a, b}}, {"silent", {c}}, {"both", {a, c}}, {"none", {}}}, topology);
  EXPECT_EQ(racks, (std::map<std::string, std::string>{{"one", "r1"}, {"both", "r1"}}));
}

TEST(Peers, TheirAddressIsToldFromGrpcsForm) {
  EXPECT_EQ(api::AddressOfPeer("ipv4:10.0.0.1:4711"), "10.0.0.1");
  EXPECT_EQ(api::AddressOfPeer("ipv6:%5Bfd00::1%5D:4711"), "fd00::1");
  EXPECT_EQ(api::AddressOfPeer("ipv6:[fd00::1]:4711"), "fd00::1");
  EXPECT_EQ(api::AddressOfPeer("unix:/x:1"), "");
  EXPECT_EQ(api::AddressOfPeer(""), "");
}

}  // namespace
}  // namespace cw::fleet
