// SPDX-License-Identifier: Apache-2.0
//
// Attacks on the packages' units with their real limits, in a fresh Debian 12: what strangers, users, other services
// and the clock can do to an agent and to a fleet service that came from the packages. After each the service answers,
// is the same process, and took no more memory, descriptors, log and disk than is said here. The figures that were
// reached are printed for docs/threat-model.md.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/vm/packages_rig.h"

namespace cw::vm {
namespace {

using ::testing::HasSubstr;

constexpr char kAgent[] = "cwfabric-agent", kFleet[] = "cwfabric-fleet";

struct Attack {
  const char* name;
  const char* unit;
  std::string line;           // of a shell; what it prints goes into the table
  const char* expect = "";    // within what it prints
  int64_t memory_mib = 64;    // at most so much more
  int64_t descriptors = 400;  // so many more, while and after it
  int64_t log_lines = 60;
  int64_t disk_kib = 2048;  // of the unit's state
};

struct Figures {
  int64_t memory_kib = 0, descriptors = 0, log_lines = 0, disk_kib = 0;
  std::string pid;
};

constexpr char kAgentToml[] = R"(host_name = "localhost"
peers_dir = "/etc/cwfabric/peers"
[[nic]]
name = "roce0"
[keys]
secret_file = "/etc/cwfabric/group.key"
[api]
read_group = "readers"
listen = ["127.0.0.1:9478"]
tls_cert = "/etc/cwfabric/tls/localhost.crt"
tls_key = "/etc/cwfabric/tls/localhost.key"
tls_ca = "/etc/cwfabric/tls/ca.crt"
[fleet]
endpoints = ["localhost:9480"]
allow = ["drain"]
[log]
events_file = "/var/log/cwfabric/events.jsonl"
)";

constexpr char kFleetToml[] = R"(tls_cert = "/etc/cwfabric-fleet/tls/localhost.crt"
tls_key = "/etc/cwfabric-fleet/tls/localhost.key"
tls_ca = "/etc/cwfabric-fleet/tls/ca.crt"
tls_crl = "/etc/cwfabric-fleet/tls/ca.crl"
[metrics]
listen = "127.0.0.1:9481"
)";

// As a person of this role asks the fleet service.
std::string AsPerson(const std::string& name, const std::string& verb) {
  return absl::StrCat("cwctl --timeout 10 --fleet localhost:9480 --cert /pki/", name, ".crt --key /pki/", name,
                      ".key --ca /pki/ca.crt ", verb);
}
std::string AsStranger(const std::string& line) { return absl::StrCat("su stranger -c '", line, "'"); }

std::vector<Attack> ByTheAgentsDoors() {
  const std::string tcp = "cw_attacker hold 127.0.0.1:9478 ", run = "unix:/run/cwfabric/default/";
  return {
      {"TCP, 2000 that say nothing", kAgent, tcp + "2000 6000 nothing"},
      {"TCP, 2000 of 64 addresses", kAgent, tcp + "2000 6000 nothing 64"},
      {"TCP, 300 half TLS greetings", kAgent, tcp + "300 6000 tls"},
      {"TCP, 300 with noise", kAgent, tcp + "300 2000 noise"},
      {"TCP, 300 that speak HTTP", kAgent, tcp + "300 2000 http"},
      {"TCP, 5000 come and go", kAgent, "cw_attacker churn 127.0.0.1:9478 5000"},
      {"agent.sock, 1000 of a stranger", kAgent,
       AsStranger("cw_attacker hold " + run + "agent.sock 1000 2000 nothing")},
      {"agent.sock, a stranger comes and goes 5000 times", kAgent,
       AsStranger("cw_attacker churn " + run + "agent.sock 5000")},
      {"agent.sock, 500 of a reader", kAgent, "su reader -c 'cw_attacker hold " + run + "agent.sock 500 2000 nothing'"},
      {"agent.sock, 300 with noise of a reader", kAgent,
       "su reader -c 'cw_attacker hold " + run + "agent.sock 300 2000 noise'"},
      {"40 followers of events", kAgent,
       "for i in $(seq 40); do timeout 4 su reader -c 'cwctl events --follow' >/dev/null 2>&1 & done; sleep 2; cwctl "
       "status | head -1; wait"},
      {"40 acts that are refused", kAgent,
       "for i in $(seq 40); do su reader -c 'cwctl mode protect' >/dev/null 2>&1; done; test $(wc -l "
       "</var/lib/cwfabric/default/acts.jsonl) -lt 40 && echo few",
       "few"},
      {"100 reads at once", kAgent,
       "for i in $(seq 100); do su reader -c 'cwctl --timeout 20 status' >/dev/null 2>&1 & done; wait; echo done"},
      {"metrics.sock, 64 slow readers", kAgent, "cw_attacker slow " + run + "metrics.sock 64 3000"},
      {"metrics.sock, 64 that say nothing", kAgent, "cw_attacker hold " + run + "metrics.sock 64 3000 nothing"},
      {"metrics.sock, headers of 8 MiB", kAgent, "cw_attacker hold " + run + "metrics.sock 16 1000 header"},
      {"metrics.sock, noise", kAgent, "cw_attacker hold " + run + "metrics.sock 100 1000 noise"},
  };
}

std::vector<Attack> BySocketsThatAllMayUse() {
  const std::string run = "unix:/run/cwfabric/default/";
  return {
      {"inproc.sock, 3000 of a stranger", kAgent,
       AsStranger("cw_attacker hold " + run + "inproc.sock 3000 2000 nothing"), "", 64, 2400},
      {"inproc.sock, comes and goes 5000 times", kAgent, AsStranger("cw_attacker churn " + run + "inproc.sock 5000")},
      {"inproc.sock, 20000 messages of noise", kAgent,
       AsStranger("cw_attacker messages " + run + "inproc.sock 20000 200")},
      {"inproc.sock, messages of 128 KiB", kAgent,
       AsStranger("cw_attacker messages " + run + "inproc.sock 200 131072")},
      {"inproc.sock, 1000 descriptors", kAgent, AsStranger("cw_attacker fds " + run + "inproc.sock 1000 /dev/null")},
      {"inproc.sock, descriptors of a FIFO", kAgent,
       "mkfifo -m 666 /tmp/fifo; " + AsStranger("cw_attacker fds " + run + "inproc.sock 200 /tmp/fifo")},
      {"inproc.sock, a FUSE file whose server never answers", kAgent,
       AsStranger("cw_attacker fuse " + run + "inproc.sock 5000") + " & sleep 2; cwctl status | head "
                                                                    "-1; wait",
       ""},
      {"UDP 4791, 100000 packets of noise", kAgent, "ip netns exec far cw_attacker flood 10.98.0.1 4791 100000 200"},
  };
}

std::vector<Attack> ByFilesAndPrograms() {
  return {
      {"peers_dir with a folder, a FIFO and a dangling link", kAgent,
       "mkdir /etc/cwfabric/peers/a.toml; mkfifo /etc/cwfabric/peers/b.toml; ln -s /nowhere "
       "/etc/cwfabric/peers/c.toml; systemctl reload cwfabric-agent; sleep 1; rm -r /etc/cwfabric/peers/*; systemctl "
       "is-active cwfabric-agent",
       "active"},
      {"peers_dir with 32 MiB of noise", kAgent,
       "head -c 32M /dev/urandom >/etc/cwfabric/peers/d.toml; systemctl reload cwfabric-agent; sleep 2; rm "
       "/etc/cwfabric/peers/*; systemctl is-active cwfabric-agent",
       "active", 256},
      {"the group's key is readable by all", kAgent,
       "chmod 644 /etc/cwfabric/group.key; systemctl reload cwfabric-agent; sleep 1; chmod 600 "
       "/etc/cwfabric/group.key; systemctl is-active cwfabric-agent",
       "active"},
      {"the events file is removed, SIGHUP", kAgent,
       "rm /var/log/cwfabric/events.jsonl; systemctl reload cwfabric-agent; cwctl mode protect >/dev/null; cwctl mode "
       "observe >/dev/null; sleep 1; test -s /var/log/cwfabric/events.jsonl && echo there",
       "there"},
      {"the acts file is a link elsewhere", kAgent,
       "cp /etc/passwd /tmp/before; rm -f /var/lib/cwfabric/default/acts.jsonl; ln -s /etc/passwd "
       "/var/lib/cwfabric/default/acts.jsonl; cwctl mode protect >/dev/null; cwctl mode observe >/dev/null; rm "
       "/var/lib/cwfabric/default/acts.jsonl; cmp /etc/passwd /tmp/before && echo same",
       "same"},
      {"a stranger removes pins", kAgent,
       AsStranger("rm -rf /sys/fs/bpf/cwfabric") +
           " 2>&1 | tail -1; tc filter show dev roce0 egress | grep -c cw_tc_egress",
       "1"},
      {"a stranger detaches", kAgent,
       AsStranger("/usr/sbin/cwagentd --config /etc/cwfabric/cwagentd.toml --detach") +
           " >/dev/null 2>&1; tc filter show dev roce0 egress | grep -c cw_tc_egress",
       "1"},
      {"a stranger runs cwfabric-off", kAgent,
       AsStranger("/usr/sbin/cwfabric-off") +
           " >/dev/null 2>&1; tc filter show dev roce0 egress | grep -c cw_tc_egress",
       "1"},
      {"a stranger reads secrets", kAgent,
       AsStranger("cat /etc/cwfabric/group.key /etc/cwfabric/tls/localhost.key /var/lib/cwfabric/default/acts.jsonl") +
           " 2>&1 | grep -c denied",
       "3"},
      {"a stranger fills the world-writable socket's folder", kAgent,
       AsStranger("touch /run/cwfabric/default/x /run/cwfabric/x") + " 2>&1 | grep -c denied", "2"},
  };
}

std::vector<Attack> OnTheFleetService() {
  const std::string tcp = "cw_attacker hold 127.0.0.1:9480 ";
  return {
      {"TCP, 4000 that say nothing", kFleet, tcp + "4000 6000 nothing"},
      {"TCP, 4000 of 64 addresses", kFleet, tcp + "4000 6000 nothing 64", "", 256, 5000},
      {"TCP, 1000 half TLS greetings", kFleet, tcp + "1000 6000 tls"},
      {"TCP, half TLS greetings while a person of that address asks", kFleet,
       tcp + "1000 8000 tls & sleep 2; " + AsPerson("bob", "fleet hosts --json") + "; wait", "connected"},
      {"HTTP, half requests of 16 addresses while Prometheus asks", kFleet,
       "cw_attacker hold 127.0.0.1:9481 200 6000 byte 16 & sleep 2; cw_attacker get 127.0.0.1:9481; wait",
       "HTTP/1.1 200 OK"},
      {"TCP, 1000 with noise", kFleet, tcp + "1000 2000 noise"},
      {"TCP, 10000 come and go", kFleet, "cw_attacker churn 127.0.0.1:9480 10000"},
      {"HTTP, 64 slow readers", kFleet, "cw_attacker slow 127.0.0.1:9481 64 3000"},
      {"HTTP, headers of 8 MiB", kFleet, "cw_attacker hold 127.0.0.1:9481 16 1000 header"},
      {"HTTP, noise", kFleet, "cw_attacker hold 127.0.0.1:9481 200 1000 noise"},
      {"40 acts of a reader", kFleet,
       "for i in $(seq 40); do " + AsPerson("bob", "fleet drain host localhost") +
           " >/dev/null 2>&1; done; test $(wc -l </var/lib/cwfabric-fleet/acts.jsonl) -lt 40 && echo few",
       "few"},
      {"100 reads at once", kFleet,
       "for i in $(seq 100); do " + AsPerson("bob", "fleet hosts") + " >/dev/null 2>&1 & done; wait; echo done", "done",
       256},
      {"a host's certificate asks as a person", kFleet, AsPerson("localhost", "fleet hosts") + " 2>&1 | tail -1",
       "role"},
      {"a revoked certificate", kFleet, AsPerson("carol", "fleet hosts") + " 2>&1 | tail -1", "revoked"},
      {"a certificate of another authority", kFleet, AsPerson("mallory", "fleet hosts") + " 2>&1 | tail -1",
       "not one for clients"},
      {"a second service on the store", kFleet,
       "su -s /bin/sh cwfabric-fleet -c 'timeout 10 cwfleetd --config /etc/cwfabric-fleet/second.toml' 2>&1 | tail -1",
       "another"},
      {"words that forge lines", kFleet,
       AsPerson(
           "alice",
           "fleet mute \"$(printf 'switch x\\n2026 forged')\" --for 1h --reason \"$(printf 'a\\nforged\\033[2J')\"") +
           " >/dev/null; journalctl --no-pager -o cat -u cwfabric-fleet | grep -qE '^(2026 )?forged' && echo forged || "
           "echo none; " +
           AsPerson("alice", "fleet unmute --all") + " >/dev/null",
       "none"},
      {"killed five times", kFleet,
       "for i in 1 2 3 4 5; do systemctl kill -s KILL cwfabric-fleet; sleep 3; done; for i in $(seq 60); do "
       "systemctl is-active cwfabric-fleet | grep -q ^active && echo up && break; sleep 1; done",
       "up", 64, 400, 200, 4096},
  };
}

// CW_ATTACKS: a regular expression of names, for whoever mends one.
bool Wanted(const std::string& name) {
  const char* only = std::getenv("CW_ATTACKS");
  return only == nullptr || std::regex_search(name, std::regex(only));
}

class AttacksTest : public PackagesTest {
 protected:
  void SetUp() override {
    others_.emplace_back(CW_ATTACKER, "/debian/usr/bin/cw_attacker");
    PackagesTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    Install();
    Run("ip netns add far && ip link set roce1 netns far && ip -n far addr add 10.98.0.2/24 dev roce1 && "
        "ip -n far link set roce1 up && ip link set lo up");
    Run("grep -q localhost /etc/hosts || echo '127.0.0.1 localhost' >>/etc/hosts");
    Run("groupadd --system readers && useradd -m -G readers reader && useradd -m stranger");
    MakeCertificates();
    ASSERT_TRUE(machine_->Put(kAgentToml, "/etc/cwfabric/cwagentd.toml", 0644).ok());
    ASSERT_TRUE(machine_->Put(kFleetToml, "/etc/cwfabric-fleet/cwfleetd.toml", 0644).ok());
    ASSERT_TRUE(
        machine_
            ->Put(absl::StrCat("listen = [\"127.0.0.1:9490\"]\n", kFleetToml), "/etc/cwfabric-fleet/second.toml", 0644)
            .ok());
    Run("sed -i 's/9481/9491/' /etc/cwfabric-fleet/second.toml");
    ASSERT_TRUE(machine_->Put("a secret of this machine, for tests", "/etc/cwfabric/group.key", 0600).ok());
    Run("mkdir -p /etc/cwfabric/peers; chown cwfabric: /etc/cwfabric/group.key");
    Run("systemctl restart cwfabric-fleet cwfabric-agent");
    ASSERT_TRUE(Eventually([&] { return Connected(); })) << Hosts() << Journals();
  }
  void MakeCertificates() {
    Run("cwctl certs ca --out /pki && cwctl certs user alice --role steer --ca /pki && cwctl certs user bob --role "
        "read "
        "--ca /pki && cwctl certs host localhost --also 127.0.0.1 --ca /pki && cwctl certs user carol --role admin "
        "--ca /pki && "
        "cwctl certs ca --out /other && cwctl certs user mallory --role admin --ca /other && cp /other/mallory.* "
        "/pki/");
    Run("cwctl certs revoke /pki/carol.crt --ca /pki");
    for (const std::string of : {"cwfabric", "cwfabric-fleet"}) {
      Run(absl::StrFormat(
          "install -d -o root -g %s -m 750 /etc/%s/tls && cd /pki && install -o %s -m 644 localhost.crt "
          "ca.crt ca.crl /etc/%s/tls/ && install -o %s -m 600 localhost.key /etc/%s/tls/",
          of, of, of, of, of, of));
    }
  }
  bool Connected() {
    return absl::StrContains(Try(AsPerson("alice", "fleet hosts --json") + " 2>&1"), "\"connected\": true");
  }
  std::string Hosts() { return Try(AsPerson("alice", "fleet hosts") + " 2>&1"); }
  std::string Journals() { return Try("journalctl --no-pager -n 30 -u cwfabric-agent -u cwfabric-fleet"); }
  int64_t Number(const std::string& line) {
    int64_t number = 0;
    EXPECT_TRUE(absl::SimpleAtoi(Try(line), &number)) << line << ": " << Try(line);
    return number;
  }
  Figures Look(const std::string& unit) {
    Figures now{.pid = Run("systemctl show -P MainPID " + unit)};
    now.memory_kib = Number("grep -oP 'VmRSS:\\s+\\K[0-9]+' /proc/" + now.pid + "/status");
    now.descriptors = Number("ls /proc/" + now.pid + "/fd | wc -l");
    now.log_lines = Number("journalctl --no-pager -q -u " + unit + " | wc -l");
    now.disk_kib = Number(absl::StrCat(
        "du -sk ",
        unit == kAgent ? "/var/lib/cwfabric/default/acts.jsonl /var/log/cwfabric" : "/var/lib/cwfabric-fleet",
        " 2>/dev/null | awk '{s += $1} END {print s}'"));
    return now;
  }
  bool Answers(const std::string& unit) {
    if (unit == kFleet) return Connected();
    return absl::StrContains(Try("cwctl status 2>&1"), "verdict") &&
           absl::StrContains(
               Try("cwctl --server localhost:9478 --cert /pki/bob.crt --key /pki/bob.key --ca /pki/ca.crt status 2>&1"),
               "verdict");
  }
  void Make(const Attack& attack) {
    SCOPED_TRACE(attack.name);
    const Figures before = Look(attack.unit);
    const std::string said = Try("{ " + attack.line + "; } 2>&1");
    const absl::Time over = absl::Now();
    ASSERT_TRUE(Eventually([&] { return Answers(attack.unit); })) << said << "\n" << Journals();
    const absl::Duration until = absl::Now() - over;
    const Figures after = Look(attack.unit);
    EXPECT_THAT(said, HasSubstr(attack.expect));
    EXPECT_TRUE(after.pid == before.pid || absl::StrContains(attack.name, "killed")) << Journals();
    EXPECT_LE(after.memory_kib - before.memory_kib, attack.memory_mib << 10);
    EXPECT_LE(after.descriptors - before.descriptors, attack.descriptors);
    EXPECT_LE(after.log_lines - before.log_lines, attack.log_lines);
    EXPECT_LE(after.disk_kib - before.disk_kib, attack.disk_kib);
    std::printf("| %s | %s | %s | %+.1f MiB, %+lld descriptors, %lld lines | %.1f s |\n", attack.unit + 9, attack.name,
                said.substr(0, 100).c_str(), static_cast<double>(after.memory_kib - before.memory_kib) / 1024,
                static_cast<long long>(after.descriptors - before.descriptors),
                static_cast<long long>(after.log_lines - before.log_lines), absl::ToDoubleSeconds(until));
    std::fflush(stdout);
  }
  // A host's history, and an order of a person, survive a clock that is 400 days ahead at the service's start.
  void AClockThatIsAheadDeletesNothing() {
    Run(AsPerson("alice", "fleet mute \"switch spine1\" --for 1h --reason known"));
    const std::string before = Run("date +%s");
    Run("systemctl stop cwfabric-fleet && date -s '+400 days' && systemctl start cwfabric-fleet && sleep 25");
    Run("systemctl stop cwfabric-fleet && date -s @" + before + " && systemctl start cwfabric-fleet");
    ASSERT_TRUE(Eventually([&] { return Connected(); })) << Hosts() << Journals();
    EXPECT_THAT(Try(AsPerson("alice", "fleet alerts") + " --json 2>&1"), HasSubstr("switch spine1"));
    EXPECT_THAT(Try(AsPerson("alice", "fleet events --host localhost --last 1000") + " 2>&1"),
                HasSubstr("started in mode observe"));
    EXPECT_EQ(Try("journalctl --no-pager -u cwfabric-fleet | grep -c 'days, go'"), "0");
  }
  // A service that babbles takes nothing of the host's.
  void AServiceThatBabblesTakesNothing() {
    Run("systemctl stop cwfabric-fleet");
    const Figures before = Look(kAgent);
    EXPECT_THAT(Run("cw_attacker babble 9480 20000"), HasSubstr("came"));
    const Figures after = Look(kAgent);
    EXPECT_EQ(after.pid, before.pid);
    EXPECT_LE(after.memory_kib - before.memory_kib, 64 << 10);
    EXPECT_LE(after.log_lines - before.log_lines, 60);
    Run("systemctl start cwfabric-fleet");
    EXPECT_TRUE(Eventually([&] { return Connected(); })) << Hosts() << Journals();
  }
};

TEST_F(AttacksTest, TheUnitsOfThePackagesHold) {
  for (const auto& attacks :
       {ByTheAgentsDoors(), BySocketsThatAllMayUse(), ByFilesAndPrograms(), OnTheFleetService()}) {
    for (const Attack& attack : attacks) {
      if (Wanted(attack.name)) Make(attack);
    }
  }
  if (Wanted("clock")) AClockThatIsAheadDeletesNothing();
  if (Wanted("babble")) AServiceThatBabblesTakesNothing();
}

}  // namespace
}  // namespace cw::vm
