// SPDX-License-Identifier: Apache-2.0
#include "userspace/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "libcwclock/cwclock.h"

namespace cw::config {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kNic[] = "[[nic]]\nname = \"eth0\"\n";

std::string ErrorOf(const std::string& text) {
  absl::StatusOr<Config> config = ParseConfig(text, "a.toml");
  EXPECT_FALSE(config.ok()) << text;
  return config.ok() ? "" : std::string(config.status().message());
}

class Folder : public ::testing::Test {
 protected:
  Folder() {
    char name[] = "/tmp/cw-config-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() override { std::filesystem::remove_all(path_); }

  std::string Write(const std::string& name, const std::string& text, mode_t mode = 0600) {
    const std::string path = path_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }

  std::string path_;
};

TEST(Config, DefaultsOfASmallFile) {
  absl::StatusOr<Config> config = ParseConfig(kNic, "a.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->instance, "default");
  EXPECT_EQ(config->mode, Mode::kObserve);
  EXPECT_EQ(config->run_dir, "/run/cwfabric/default");
  EXPECT_EQ(config->SocketPath(), "/run/cwfabric/default/agent.sock");
  ASSERT_EQ(config->nics.size(), 1u);
  EXPECT_EQ(config->nics[0].name, "eth0");
  EXPECT_EQ(config->nics[0].address, "auto");
  EXPECT_EQ(config->probe.active_interval, absl::Microseconds(400));
  EXPECT_FALSE(config->probe.dscp.has_value());
}

TEST(Config, ClockPageFollowsTheInstanceUnlessNamed) {
  EXPECT_EQ(ParseConfig(kNic, "a.toml")->ClockPage(), CW_CLOCK_DEFAULT_PATH) << "where the library looks";
  EXPECT_EQ(ParseConfig(std::string("instance = \"b\"\n") + kNic, "a.toml")->ClockPage(), "/run/cwfabric/b/clock");
  absl::StatusOr<Config> named =
      ParseConfig(std::string("[clock]\npage = \"/dev/shm/c\"\nanchor = \"realtime\"\n") + kNic, "a.toml");
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->ClockPage(), "/dev/shm/c");
  EXPECT_EQ(named->clock.anchor, Anchor::kRealtime);
  EXPECT_EQ(ParseConfig(std::string("[clock]\npage = \"\"\n") + kNic, "a.toml")->ClockPage(), "");
  EXPECT_THAT(ErrorOf(std::string("[clock]\npage = \"clock\"\n") + kNic), HasSubstr("\"auto\" or an absolute path"));
  EXPECT_THAT(ErrorOf(std::string("[clock]\nanchor = \"gps\"\n") + kNic), HasSubstr("clock.anchor"));
}

TEST(Config, MetricsListenOnASocketOfTheInstanceUnlessToldOtherwise) {
  const auto listen = [](const std::string& text) {
    absl::StatusOr<Config> config = ParseConfig("[metrics]\n" + text + "\n" + kNic, "a.toml");
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? config->MetricsListen() : Listen{};
  };
  EXPECT_EQ(listen(""), (Listen{.kind = Listen::Kind::kUnix, .path = "/run/cwfabric/default/metrics.sock"}));
  EXPECT_EQ(listen("listen = \"unix:/run/m\""), (Listen{.kind = Listen::Kind::kUnix, .path = "/run/m"}));
  EXPECT_EQ(listen("listen = \"none\"").kind, Listen::Kind::kNone);
  EXPECT_EQ(listen("listen = \"127.0.0.1:9477\""),
            (Listen{.kind = Listen::Kind::kTcp, .address = "127.0.0.1", .port = 9477}));
  EXPECT_EQ(listen("listen = \"[::1]:9477\"").address, "::1");
  EXPECT_FALSE(listen("listen = \"10.0.0.1:9477\"\nallow_remote = true").loopback);
}

TEST(Config, MetricsForOtherHostsNeedAWord) {
  for (const char* address : {"0.0.0.0:9477", "10.0.0.1:9477", "[::]:9477"}) {
    EXPECT_THAT(ErrorOf(std::string("[metrics]\nlisten = \"") + address + "\"\n" + kNic),
                HasSubstr("a.toml:2:10: other hosts reach " + std::string(address)));
  }
  for (const char* wrong : {"9477", ":9477", "localhost:9477", "127.0.0.1:0", "127.0.0.1:70000", "::1:9477", "unix:m",
                            "unix:/", "[10.0.0.1]:9477", ""}) {
    EXPECT_THAT(ErrorOf(std::string("[metrics]\nlisten = \"") + wrong + "\"\n" + kNic), HasSubstr("unix:/PATH"))
        << wrong;
  }
}

constexpr char kTls[] =
    "tls_cert = \"/etc/cwfabric/tls/h.crt\"\ntls_key = \"/etc/cwfabric/tls/h.key\"\ntls_ca = "
    "\"/etc/cwfabric/tls/ca.crt\"\n";

TEST(Config, TheApiIsOnTcpOnlyWithTls) {
  EXPECT_TRUE(ParseConfig(kNic, "a.toml")->api.listen.empty());
  EXPECT_EQ(ParseConfig(kNic, "a.toml")->api.admin_group, "auto");
  const std::string listen = "[api]\nlisten = [\"10.0.0.5:9478\", \"[fd00::5]:9478\"]\n";
  absl::StatusOr<Config> config = ParseConfig(listen + kTls + kNic, "a.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->api.listen.size(), 2u);
  EXPECT_EQ(ToToml(*ParseConfig(ToToml(*config), "printed")), ToToml(*config));
  const std::string error = ErrorOf(listen + kNic);
  EXPECT_THAT(error, HasSubstr("10.0.0.5:9478, [fd00::5]:9478 would be served without TLS"));
  for (const char* key : {"set api.tls_cert", "set api.tls_key", "set api.tls_ca"}) EXPECT_THAT(error, HasSubstr(key));
  EXPECT_THAT(ErrorOf(std::string("[api]\nlisten = [\"127.0.0.1:9478\"]\n") + kNic), HasSubstr("without TLS"))
      << "loopback, too";
  EXPECT_THAT(ErrorOf(std::string("[api]\nlisten = \"127.0.0.1:9478\"\n") + kNic), HasSubstr("a list of texts"));
  for (const char* wrong : {"none", "auto", "unix:/run/x", "node17:9478", "10.0.0.5", ":9478"}) {
    EXPECT_THAT(ErrorOf(std::string("[api]\nlisten = [\"") + wrong + "\"]\n" + kTls + kNic),
                HasSubstr("api.listen must be an address of this host and a port"))
        << wrong;
  }
  EXPECT_THAT(ErrorOf(std::string("[api]\nread_group = \"a b\"\n") + kNic), HasSubstr("a unix group's name"));
}

TEST(Config, ASecretMayStandUnderEitherNumber) {
  const std::string peers = std::string("peers_dir = \"/p\"\n[keys]\n");
  EXPECT_TRUE(ParseConfig(peers + "secret_file = \"/a\"\n" + kNic, "a.toml").ok());
  EXPECT_TRUE(ParseConfig(peers + "second_secret_file = \"/b\"\nsend_key_id = 1\n" + kNic, "a.toml").ok());
  EXPECT_THAT(ErrorOf(peers + "second_secret_file = \"/b\"\n" + kNic), HasSubstr("set keys.send_key_id = 1"));
  EXPECT_THAT(ErrorOf(peers + kNic), HasSubstr("there are peers but no secret"));
}

TEST(Config, ChronyIsATableWithinTheClocks) {
  absl::StatusOr<Config> config = ParseConfig(
      std::string("[clock]\ntai_minus_utc = 37\n[clock.chrony]\nsock = \"/run/chrony/cwfabric.sock\"\nshm = 2\n") +
          kNic,
      "a.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->clock.chrony.sock, "/run/chrony/cwfabric.sock");
  EXPECT_EQ(config->clock.chrony.shm, 2);
  EXPECT_EQ(config->clock.tai_minus_utc, 37);
  absl::StatusOr<Config> again = ParseConfig(ToToml(*config), "printed");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ToToml(*again), ToToml(*config));
  EXPECT_EQ(again->clock.chrony.shm, 2);
  EXPECT_FALSE(ParseConfig(kNic, "a.toml")->clock.chrony.shm.has_value());
  EXPECT_THAT(ErrorOf(std::string("[clock.chrony]\nsocket = \"/x\"\n") + kNic), HasSubstr("did you mean \"sock\""));
  EXPECT_THAT(ErrorOf(std::string("[clock]\nanchor = \"realtime\"\n[clock.chrony]\nshm = 2\n") + kNic),
              HasSubstr("would follow itself"));
  EXPECT_THAT(ErrorOf(std::string("[clock]\npage = \"\"\n[clock.chrony]\nshm = 2\n") + kNic), HasSubstr("clock.page"));
}

TEST(Config, ReadsEveryKindOfValue) {
  absl::StatusOr<Config> config = ParseConfig(R"(
instance = "lab-3"
mode = "protect"
run_dir = "/run/x"
[keys]
secret_file = "/etc/k"
[probe]
active_interval = "2ms"
dscp = 26
realtime = false
budget_pps = 500
[steering]
lease = "0"
queueing_factor = 1
target_factor = 0.75
[log]
level = "debug"
[[nic]]
name = "eth0"
[[nic]]
name = "eth1"
address = "10.0.0.2"
attach = "generic"
[[peer]]
name = "b"
addresses = ["10.0.1.10", "10.0.1.11"]
)",
                                              "a.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->instance, "lab-3");
  EXPECT_EQ(config->mode, Mode::kProtect);
  EXPECT_EQ(config->RunDir(), "/run/x");
  EXPECT_EQ(config->probe.active_interval, absl::Milliseconds(2));
  EXPECT_EQ(config->probe.dscp, 26);
  EXPECT_FALSE(config->probe.realtime);
  EXPECT_EQ(config->probe.budget_pps, 500);
  EXPECT_EQ(config->steering.lease, absl::ZeroDuration());
  EXPECT_DOUBLE_EQ(config->steering.queueing_factor, 1.0);
  EXPECT_DOUBLE_EQ(config->steering.target_factor, 0.75);
  EXPECT_EQ(config->log.level, LogLevel::kDebug);
  ASSERT_EQ(config->nics.size(), 2u);
  EXPECT_EQ(config->nics[1].attach, Attach::kGeneric);
  ASSERT_EQ(config->peers.size(), 1u);
  EXPECT_EQ(config->peers[0].addresses.size(), 2u);
  EXPECT_EQ(config->peers[0].origin, "a.toml:24");
}

TEST(Config, RoundTripOfTheEffectiveConfiguration) {
  absl::StatusOr<Config> config = ParseConfig(R"(
host_name = "a \"b\"	\\"
mode = "optimize"
[probe]
dscp = 0
idle_interval = "1.5s"
[keys]
secret_file = "/k"
[steering]
move_gap = "1ms500us"
moves_per_second = 0.3
[[nic]]
name = "eth0"
[[peer]]
name = "b"
addresses = ["10.0.1.10"]
)",
                                              "a.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  const std::string text = ToToml(*config);
  absl::StatusOr<Config> again = ParseConfig(text, "b.toml");
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << text;
  EXPECT_EQ(ToToml(*again), text);
  EXPECT_EQ(again->host_name, "a \"b\"\t\\");
  EXPECT_EQ(again->mode, Mode::kOptimize);
  EXPECT_EQ(again->probe.dscp, 0);
  EXPECT_EQ(again->probe.idle_interval, absl::Milliseconds(1500));
  EXPECT_EQ(again->steering.move_gap, absl::Microseconds(1500));
  EXPECT_EQ(again->steering.moves_per_second, 0.3);
  EXPECT_EQ(again->peers[0].addresses, config->peers[0].addresses);
}

TEST(ConfigErrors, NamePlaceAndRemedy) {
  EXPECT_THAT(ErrorOf("mode = \"fast\"\n" + std::string(kNic)),
              StartsWith("a.toml:1:8: mode must be one of \"observe\", \"protect\", \"optimize\""));
  EXPECT_THAT(ErrorOf(std::string(kNic) + "[probe]\n\nactive_interval = 5\n"),
              StartsWith("a.toml:5:19: probe.active_interval must be a duration with its unit in quotes"));
  EXPECT_THAT(ErrorOf(std::string(kNic) + "[probe]\nbudget_pps = 1\n"),
              StartsWith("a.toml:4:14: probe.budget_pps must be a whole number from 10 to 10000000"));
  EXPECT_THAT(ErrorOf(std::string(kNic) + "[probe]\nmax_ttl = 8\n"),
              StartsWith("a.toml:4:11: probe.max_ttl must be a whole number from 1 to 7"));
  EXPECT_TRUE(ParseConfig(std::string(kNic) + "address = \"fd00::10\"\n", "a.toml").ok());
  for (const char* wrong : {"fd00:0::10", "FD00::10", "fe80::1", "ff02::1", "::", "::ffff:10.0.0.1", "fd00::10%eth0"}) {
    EXPECT_THAT(ErrorOf(std::string(kNic) + "address = \"" + wrong + "\"\n"), HasSubstr("in its shortest form"))
        << wrong;
  }
  EXPECT_THAT(ErrorOf(std::string(kNic) + "address = \"10.0.0\"\n"), StartsWith("a.toml:3:11: nic[0].address must be"));
  EXPECT_THAT(ErrorOf(std::string(kNic) + "[steering]\ntarget_factor = nan\n"), StartsWith("a.toml:4:17: "));
  EXPECT_THAT(ErrorOf("[nic]\nname = \"eth0\"\n"), HasSubstr("write [[nic]]"));
  EXPECT_THAT(ErrorOf("probe = 3\n" + std::string(kNic)),
              HasSubstr("a.toml:1:9: probe must be a table; write [probe]"));
}

TEST(ConfigErrors, UnknownKeysSuggestTheNearest) {
  EXPECT_THAT(ErrorOf(std::string(kNic) + "[probe]\nactive_intervall = \"1ms\"\n"),
              StartsWith("a.toml:4:1: unknown key \"probe.active_intervall\"; did you mean \"active_interval\"?"));
  EXPECT_THAT(ErrorOf("[probes]\nports = 3\n" + std::string(kNic)),
              StartsWith("a.toml:1:2: unknown key \"probes\"; did you mean \"probe\"?"));
  EXPECT_THAT(ErrorOf(std::string(kNic) + "zzzzzz = 1\n"),
              HasSubstr("known here: address, attach, clock, name, rate_mbps, rx_stamps"));
}

TEST(ConfigErrors, AllFaultsOfAFileTogetherInOrderOfLines) {
  const std::string error = ErrorOf("mode = 3\ninstance = \"A B\"\n[samples]\nlevel_tx = 40\n");
  EXPECT_THAT(error, HasSubstr("a.toml:1:1: no NIC is named"));
  EXPECT_THAT(error, HasSubstr("a.toml:1:8: mode"));
  EXPECT_THAT(error, HasSubstr("a.toml:2:12: instance"));
  EXPECT_THAT(error, HasSubstr("a.toml:4:12: samples.level_tx"));
  EXPECT_LT(error.find("a.toml:2:"), error.find("a.toml:4:"));
}

TEST(ConfigErrors, NotToml) {
  EXPECT_THAT(ErrorOf("mode = \n"), StartsWith("a.toml:1:"));
  EXPECT_THAT(ErrorOf("mode = \"observe\nx"), HasSubstr("not TOML"));
}

TEST(ConfigErrors, RulesBetweenFields) {
  const std::string peer = "[[peer]]\nname = \"b\"\naddresses = [\"10.0.1.10\"]\n";
  EXPECT_THAT(ErrorOf(kNic + peer), HasSubstr("there are peers but no secret"));
  EXPECT_THAT(ErrorOf(std::string(kNic) + "[keys]\nsend_key_id = 1\n"), StartsWith("a.toml:4:15: keys.send_key_id"));
  EXPECT_THAT(ErrorOf(std::string(kNic) + "[probe]\nactive_interval = \"1s\"\n"),
              HasSubstr("idle_interval must not be shorter"));
  EXPECT_THAT(ErrorOf(std::string(kNic) + "[probe]\nfirst_port = 65530\n"), HasSubstr("at most 6 ports follow"));
  EXPECT_THAT(ErrorOf(std::string(kNic) + kNic), StartsWith("a.toml:4:8: NIC eth0 is named twice"));
  EXPECT_THAT(ErrorOf("[keys]\nsecret_file = \"/k\"\n" + std::string(kNic) + peer + peer),
              HasSubstr("a.toml:8:1: peer b is also in a.toml:5; remove one"));
  EXPECT_THAT(ErrorOf(std::string(kNic) + "[[peer]]\n"), HasSubstr("a.toml:3:1: this [[peer]] has no name"));
}

TEST(Config, AScopeIsAModeOfOneNicOneRailOrOneJob) {
  const absl::StatusOr<Config> config = ParseConfig(std::string(kNic) +
                                                        "[[scope]]\nnic = \"eth0\"\n"
                                                        "[[scope]]\nrail = 0\nothers = true\nmode = \"protect\"\n"
                                                        "[[scope]]\nlabel = \"job-x\"\n",
                                                    "a.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->scopes.size(), 3u);
  EXPECT_EQ(config->scopes[0].nic, "eth0");
  EXPECT_EQ(config->scopes[0].mode, Mode::kObserve) << "the least, where none is named";
  EXPECT_EQ(config->scopes[1].rail, 0);
  EXPECT_TRUE(config->scopes[1].others);
  EXPECT_EQ(config->scopes[1].mode, Mode::kProtect);
  EXPECT_FALSE(config->scopes[2].rail.has_value());
  const absl::StatusOr<Config> again = ParseConfig(ToToml(*config), "b.toml");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ToToml(*again), ToToml(*config));
}

TEST(ConfigErrors, AScopeNamesOneThingThatIsThere) {
  const std::string nic = kNic;
  EXPECT_THAT(ErrorOf(nic + "[[scope]]\nmode = \"observe\"\n"),
              HasSubstr("a.toml:3:1: this [[scope]] has to name one"));
  EXPECT_THAT(ErrorOf(nic + "[[scope]]\nnic = \"eth0\"\nrail = 0\n"), HasSubstr("has to name one of nic, rail and"));
  EXPECT_THAT(ErrorOf(nic + "[[scope]]\nnic = \"eth9\"\n"), HasSubstr("there is no [[nic]] eth9"));
  EXPECT_THAT(ErrorOf(nic + "[[scope]]\nrail = 1\n"), HasSubstr("there is no rail 1: the [[nic]] tables are 0 to 0"));
  EXPECT_THAT(ErrorOf(nic + "[[scope]]\nlabel = \"" + std::string(65, 'x') + "\"\n"), HasSubstr("at most 64 bytes"));
  EXPECT_THAT(ErrorOf(nic + "[[scope]]\nlabel = \"x\"\nmode = \"off\"\n"), HasSubstr("scope[0].mode"));
}

TEST_F(Folder, LoadNamesTheMissingFile) {
  absl::StatusOr<Config> config = LoadConfig(path_ + "/none.toml");
  EXPECT_EQ(config.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("none.toml"));
}

TEST_F(Folder, PeersComeFromTheFileAndTheFolderToo) {
  mkdir((path_ + "/peers").c_str(), 0700);
  Write("more.toml", "[[peer]]\nname = \"c\"\naddresses = [\"10.0.0.3\"]\n");
  Write("peers/2.toml", "[[peer]]\nname = \"e\"\naddresses = [\"10.0.0.5\"]\n");
  Write("peers/1.toml", "[[peer]]\nname = \"d\"\naddresses = [\"10.0.0.4\"]\n");
  Write("peers/1.toml.tmp", "being written");
  Config config;
  config.peers = {{"b", {"10.0.0.2"}, "a.toml:1"}};
  config.peers_file = path_ + "/more.toml";
  config.peers_dir = path_ + "/peers";
  absl::StatusOr<std::vector<PeerConfig>> peers = LoadPeers(config);
  ASSERT_TRUE(peers.ok()) << peers.status();
  std::string names;
  for (const PeerConfig& peer : *peers) names += peer.name;
  EXPECT_EQ(names, "bcde");

  const std::string twice = Write("peers/3.toml", "\n[[peer]]\nname = \"f\"\naddresses = [\"10.0.0.4\"]\n");
  peers = LoadPeers(config);
  ASSERT_FALSE(peers.ok());
  EXPECT_EQ(peers.status().message(),
            twice + ":2:1: address 10.0.0.4 of peer f is also that of peer d in " + path_ + "/peers/1.toml:1");
}

// Neither ends a reload, nor waits for somebody who writes to a FIFO.
TEST_F(Folder, WhatIsNoFileInThePeersFolderIsLeftOutAndSaid) {
  mkdir((path_ + "/peers").c_str(), 0700);
  Write("peers/1.toml", "[[peer]]\nname = \"d\"\naddresses = [\"10.0.0.4\"]\n");
  mkdir((path_ + "/peers/2.toml").c_str(), 0700);
  ASSERT_EQ(symlink("/nowhere/at/all", (path_ + "/peers/3.toml").c_str()), 0);
  ASSERT_EQ(mkfifo((path_ + "/peers/4.toml").c_str(), 0600), 0);
  ASSERT_EQ(symlink((path_ + "/more").c_str(), (path_ + "/peers/5.toml").c_str()), 0);
  Write("more", "[[peer]]\nname = \"e\"\naddresses = [\"10.0.0.5\"]\n");
  Config config;
  config.peers_dir = path_ + "/peers";
  std::vector<std::string> skipped;
  const absl::StatusOr<std::vector<PeerConfig>> peers = LoadPeers(config, &skipped);
  ASSERT_TRUE(peers.ok()) << peers.status();
  EXPECT_EQ(peers->size(), 2u) << "a link to a file is one";
  ASSERT_EQ(skipped.size(), 3u);
  EXPECT_THAT(skipped[0], HasSubstr("2.toml (peers_dir) is a folder"));
  EXPECT_THAT(skipped[1], HasSubstr("3.toml (peers_dir) is a link to nothing"));
  EXPECT_THAT(skipped[2], HasSubstr("4.toml (peers_dir) is no regular file"));
}

TEST(Peers, AHostLeavesItselfOut) {
  const std::vector<PeerConfig> peers =
      PeersExceptSelf({{"a", {"10.0.0.1", "10.0.1.1"}, ""}, {"b", {"10.0.0.2"}, ""}}, {"10.0.0.1", "10.0.1.1"});
  ASSERT_EQ(peers.size(), 1u);
  EXPECT_EQ(peers[0].name, "b");
}

TEST(Peers, AHostIsCalledAsTheOthersCallIt) {
  const std::vector<PeerConfig> peers = {{"a", {"10.0.0.1", "10.0.1.1"}, ""}, {"b", {"10.0.0.2"}, ""}};
  EXPECT_EQ(OwnName(peers, {"10.0.9.9", "10.0.1.1"}), "a") << "any of its addresses will do";
  EXPECT_EQ(OwnName(peers, {"10.0.0.2"}), "b");
  EXPECT_EQ(OwnName(peers, {"10.0.0.3"}), "");
  EXPECT_EQ(OwnName({}, {}), "");
}

TEST_F(Folder, PeersFilesTakeNothingElse) {
  Config config;
  config.peers_file = Write("more.toml", "mode = \"observe\"\n");
  EXPECT_THAT(std::string(LoadPeers(config).status().message()), HasSubstr(":1:1: unknown key \"mode\""));
}

TEST(Config, CharactersBeyondAsciiStandInStringsAndCommentsOnly) {
  const std::string nic = "[[nic]]\nname = \"eth0\"\n";
  EXPECT_TRUE(ParseConfig("# Gr\u00f6\u00dfe \"\nrun_dir = '/\u00dc\"' # \u00e4\n" + nic, "a.toml").ok());
  EXPECT_THAT(std::string(ParseConfig("a = 1\n\u00e4b = 2\n", "a.toml").status().message()),
              StartsWith("a.toml:2:1: not TOML: "));
  EXPECT_FALSE(ParseConfig("a = 2\"\u01da\n", "a.toml").ok());
}

TEST_F(Folder, AnEmptyPeersFileNamesNobody) {
  Config config;
  config.peers_file = Write("more.toml", "");
  const absl::StatusOr<std::vector<PeerConfig>> peers = LoadPeers(config);
  ASSERT_TRUE(peers.ok()) << peers.status();
  EXPECT_TRUE(peers->empty());
  config.peers_file = path_;  // a folder
  EXPECT_THAT(std::string(LoadPeers(config).status().message()), HasSubstr("it is a folder"));
}

TEST_F(Folder, SecretsBelongToTheirOwner) {
  const std::string secret = Write("key", "0123456789abcdef");
  EXPECT_TRUE(CheckSecretFile(secret).ok());
  EXPECT_TRUE(CheckSecretFile("").ok());
  chmod(secret.c_str(), 0640);
  absl::Status open = CheckSecretFile(secret);
  EXPECT_EQ(open.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(open.message()), HasSubstr("chmod 600 " + secret));
  EXPECT_THAT(std::string(CheckSecretFile(Write("short", "abc")).message()), HasSubstr("fewer than 16 bytes"));
  EXPECT_FALSE(CheckSecretFile(path_).ok());
  EXPECT_THAT(std::string(CheckSecretFile(path_ + "/none").message()),
              ::testing::AllOf(HasSubstr("there is no key file"), HasSubstr("head -c 32 /dev/urandom")));
}

// docs/config.md holds the reference as it is generated; on a difference the test prints what belongs there.
TEST(ConfigReference, IsWhatTheDocumentationSays) {
  std::ifstream file(CW_SOURCE_DIR "/docs/config.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(ReferenceMarkdown()), std::string::npos) << "docs/config.md does not hold this reference:\n"
                                                                     << ReferenceMarkdown();
}

// Every option stands in the example, described, with its default: without the signs of comment it reads as the
// defaults.
TEST(ConfigExample, IsTheDefaultsOnceUncommented) {
  EXPECT_FALSE(ParseConfig(ExampleToml(), "example").ok()) << "it names no NIC";
  EXPECT_EQ(ExampleToml().find("\n\n\n"), std::string::npos);
  std::istringstream lines(ExampleToml());
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.rfind("# ", 0) == 0) continue;
    ASSERT_EQ(line[0], '#') << line;
    EXPECT_LE(line.size(), 120u);
    if (line == "#[[peer]]") break;  // has no default that is valid, nor has [[scope]]; they stand last
    text += line == "#name = \"\"" ? "name = \"eth0\"\n" : line.substr(1) + "\n";
  }
  absl::StatusOr<Config> config = ParseConfig(text, "example");
  ASSERT_TRUE(config.ok()) << config.status() << "\n" << text;
  EXPECT_EQ(ToToml(*config), ToToml(*ParseConfig(kNic, "small")));
}

}  // namespace
}  // namespace cw::config
