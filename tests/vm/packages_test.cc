// SPDX-License-Identifier: Apache-2.0
// The Debian packages in a fresh Debian 12 with systemd, in a virtual machine: installed, configured, asked, upgraded,
// removed and purged.
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/vm/packages_rig.h"

namespace cw::vm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kAskForMetrics[] = R"(use IO::Socket::UNIX;
$s = IO::Socket::UNIX->new("/run/cwfabric/default/metrics.sock") or die $!;
print $s "GET /metrics HTTP/1.0\r\n\r\n";
print while <$s>;
)";

class InstalledTest : public PackagesTest {
 protected:
  // What the unit's settings come to in the process.
  void LooksAtTheProcess() {
    const std::string pid = MainPid();
    const auto status = nlohmann::json::parse(Run("cwctl --json status"));
    EXPECT_EQ(status.at("capabilities"), nlohmann::json({"CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"}));
    EXPECT_EQ(status.at("prober").at("realtime"), true);
    EXPECT_EQ(status.at("prober").at("memory_locked"), true);
    EXPECT_EQ(Run("grep -h CapPrm /proc/" + pid + "/task/*/status | grep -vc 0000000000000000"), "1") << "one thread";
    EXPECT_THAT(Run("cwctl clock tracking"), Not(HasSubstr("adjtimex"))) << "the unit lets it read the kernel's clock";
    EXPECT_THAT(Run("grep 'Max core file size' /proc/" + pid + "/limits"), testing::ContainsRegex(" 0 +0 "));
    // Nothing changes, and that is told; the process goes on.
    Run("systemctl reload cwfabric-agent");
    EXPECT_TRUE(Eventually([&] { return absl::StrContains(Events("keys"), "keys were read again and are the same"); }));
    EXPECT_EQ(MainPid(), pid);
  }

  std::string OverTcp(const std::string& verb) {
    return Try(
        "cwctl --server 127.0.0.1:9478 --cert /root/pki/alice.crt --key /root/pki/alice.key --ca /root/pki/ca.crt " +
        verb + " 2>&1");
  }
  void MakeCertificate(const std::string& options) {
    Run("rm -f /root/pki/localhost.* && cwctl certs host localhost --also 127.0.0.1 --ca /root/pki " + options);
    Run("cd /root/pki && install -o cwfabric -m 644 localhost.crt ca.crt /etc/cwfabric/tls/ && "
        "install -o cwfabric -m 600 localhost.key /etc/cwfabric/tls/");
  }
  // Users with roles, on the host and from others, as operating.md says.
  void ServesUsers() {
    Run("groupadd --system readers && useradd -m -G readers reader");
    Run("cwctl certs ca --out /root/pki && cwctl certs user alice --role read --ca /root/pki && "
        "install -d -o root -g cwfabric -m 750 /etc/cwfabric/tls");
    MakeCertificate("");
    // Of [api] alone: [fleet] has keys of the same names.
    Run("sed -i '/^#\\[api\\]/,/^#\\[fleet\\]/ { s|^#\\[api\\]|[api]|; s|^#read_group = .*|read_group = \"readers\"|; "
        "s|^#listen = \\[\\]|listen = [\"127.0.0.1:9478\"]|; "
        "s|^#tls_cert = .*|tls_cert = \"/etc/cwfabric/tls/localhost.crt\"|; "
        "s|^#tls_key = .*|tls_key = \"/etc/cwfabric/tls/localhost.key\"|; "
        "s|^#tls_ca = .*|tls_ca = \"/etc/cwfabric/tls/ca.crt\"| }' /etc/cwfabric/cwagentd.toml");
    Run("cwagentd --config /etc/cwfabric/cwagentd.toml --check-config && systemctl restart cwfabric-agent");
    ASSERT_TRUE(Eventually([&] { return Active() == "active"; })) << Journal();
    EXPECT_EQ(nlohmann::json::parse(OverTcp("--json status")).at("caller").at("role"), "read");
    EXPECT_THAT(OverTcp("mode protect"), HasSubstr("needs the role admin"));
    EXPECT_THAT(Try("su reader -c 'cwctl mode protect' 2>&1"), HasSubstr("needs the role admin"));
    EXPECT_TRUE(Eventually([&] {
      const std::string told = Events("audit");
      return absl::StrContains(told, "alice") && absl::StrContains(told, "reader");
    })) << Events("audit");
    EXPECT_THAT(Try("cwctl doctor"), HasSubstr("the host's until "));
    // Another certificate in its place, for a week: taken up with the next connection, and the doctor warns.
    MakeCertificate("--days 7");
    EXPECT_EQ(nlohmann::json::parse(OverTcp("--json status")).at("caller").at("role"), "read");
    EXPECT_THAT(Try("cwctl doctor"), HasSubstr("the host's certificate is over on "));
    EXPECT_FALSE(Events("api").empty());
  }

  // To members of the group, and to nobody else.
  void AnswersItsGroup() {
    // A member of the group asks; others may not.
    Run("useradd -m -G cwfabric member && useradd -m stranger");
    EXPECT_EQ(nlohmann::json::parse(Run("su member -c 'cwctl --json status'")).at("mode"), "observe");
    EXPECT_THAT(Try("su stranger -c 'cwctl status' 2>&1"), HasSubstr("may not open"));
    // Without CAP_SYS_ADMIN, and with nothing of bpffs but its own folder, it knows its own programs and that folder.
    const std::string doctor = Try("su member -c 'cwctl doctor'");
    EXPECT_THAT(doctor, HasSubstr("only ours"));
    EXPECT_THAT(doctor, HasSubstr("mounted at /sys/fs/bpf/cwfabric"));

    // The journal has events by their fields.
    EXPECT_THAT(Run("journalctl --no-pager -u cwfabric-agent CW_EVENT=agent"), HasSubstr("started in mode observe"));

    // Prometheus' page, for the same members; alerts and dashboards for it.
    ASSERT_TRUE(machine_->Put(kAskForMetrics, "/home/ask.pl", 0644).ok());
    EXPECT_THAT(Run("su member -c 'perl /home/ask.pl'"), HasSubstr("cwfabric_nic_attached{nic=\"roce0\"} 1"));
    EXPECT_THAT(Try("su stranger -c 'perl /home/ask.pl' 2>&1"), HasSubstr("Permission denied"));
    EXPECT_EQ(Run("cd /usr/share/cwfabric && ls grafana prometheus | grep -c '^cwfabric'"), "5");
  }

  void Upgrade() {
    // An upgrade: another process, the programs never away, the flows' counters kept.
    const std::string before = MainPid();
    const std::string program = Run("ip -d link show roce0 | grep -oE 'prog/xdp id [0-9]+'");
    Run("DEBIAN_FRONTEND=noninteractive dpkg -i /packages/cwfabric-agent_*.deb 2>&1");
    ASSERT_TRUE(Eventually([&] { return Active() == "active" && MainPid() != before; })) << Journal();
    EXPECT_EQ(Run("ip -d link show roce0 | grep -oE 'prog/xdp id [0-9]+'"), program) << "adopted, not attached anew";
    EXPECT_THAT(Run("cat /etc/cwfabric/cwagentd.toml"), HasSubstr("name = \"roce0\""))
        << "the administrator's file is kept";
  }

  // Removed, then purged.
  void LeavesNothing() {
    Run("DEBIAN_FRONTEND=noninteractive dpkg -r cwfabric-agent 2>&1");
    EXPECT_THAT(Attached(), Not(HasSubstr("xdp")));
    EXPECT_THAT(Run("tc filter show dev roce0 egress"), Not(HasSubstr("cw_")));
    EXPECT_EQ(Run("find /sys/fs/bpf -type f | wc -l"), "0");
    Run("DEBIAN_FRONTEND=noninteractive dpkg -P $(for p in /packages/*.deb; do dpkg-deb -f $p Package; done) 2>&1");
    EXPECT_EQ(
        Run("find / -xdev \\( -name '*cwfabric*' -o -name 'cwctl*' -o -name 'cwagentd*' -o -name 'cwlab*' \\) -not "
            "-path '/packages/*' -not -path '/proc/*' -not -path '/home/*' 2>/dev/null | sort"),
        "");
    EXPECT_EQ(Run("find /sys/fs/bpf /run -name '*cwfabric*' | sort"), "");
  }
};

// One RC send after the other, a millisecond between them: FROM TO PORT, the port being the entropy.
constexpr char kSender[] = R"(use Socket;
($from, $to, $port) = @ARGV;
socket($s, PF_INET, SOCK_DGRAM, 0) or die $!;
setsockopt($s, SOL_SOCKET, 11, 1) or die $!;  # SO_NO_CHECK: RoCE has no UDP checksum
bind($s, sockaddr_in($port, inet_aton($from))) or die $!;
$to = sockaddr_in(4791, inet_aton($to));
for ($psn = 0; ; ++$psn) {
  send($s, pack("CCnNN", 0x04, 0, 0xffff, 0x2b3c, $psn & 0xffffff) . "d" x 64 . "icrc", 0, $to);
  select(undef, undef, undef, 0.001);
}
)";

// Each time that what arrives of the queue pair has another source port than before: that one.
constexpr char kPorts[] = R"(use Socket;
$| = 1;
socket($s, PF_INET, SOCK_DGRAM, 0) or die $!;
bind($s, sockaddr_in(4791, inet_aton("10.98.0.2"))) or die $!;
while ($from = recv($s, $data, 2048, 0)) {
  next if unpack("x4 N", $data) != 0x2b3c;  # the agent probes the port, too
  ($port) = sockaddr_in($from);
  print "$port\n" if $port != $last;
  $last = $port;
}
)";

// Packages of two releases whose maps have other records: packaging/other_release.sh.
class UpgradeTest : public PackagesTest {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(CW_OTHER_PACKAGES))
      GTEST_SKIP() << "no packages of another release: packaging/other_release.sh " CW_OTHER_PACKAGES;
    for (const auto& entry : std::filesystem::directory_iterator(CW_OTHER_PACKAGES)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("cwctl_") || name.starts_with("cwfabric-agent_"))
        others_.emplace_back(entry.path(), "/debian/other/" + name);
    }
    ASSERT_EQ(others_.size(), 2u) << "in " CW_OTHER_PACKAGES;
    PackagesTest::SetUp();
  }
  // The other end of roce0 is a peer without an agent; a queue pair each way.
  void StartSenders() {
    Run("sed -i -e 's/^#\\[keys\\]/[keys]/' -e 's|^#secret_file = .*|secret_file = \"/etc/cwfabric/group.key\"|' "
        "/etc/cwfabric/cwagentd.toml");
    Run("printf '[[peer]]\\nname = \"far\"\\naddresses = [\"10.98.0.2\"]\\n' >>/etc/cwfabric/cwagentd.toml && "
        "systemctl restart cwfabric-agent");
    ASSERT_TRUE(Eventually([&] { return Active() == "active"; })) << Journal();
    Run("cwctl mode protect");
    Run("ip netns add far && ip link set roce1 netns far && ip -n far addr add 10.98.0.2/24 dev roce1 && "
        "ip -n far link set roce1 up");
    ASSERT_TRUE(machine_->Put(kSender, "/home/send.pl", 0644).ok());
    ASSERT_TRUE(machine_->Put(kPorts, "/home/ports.pl", 0644).ok());
    Run("ip netns exec far perl /home/ports.pl >/run/ports 2>&1 & echo $! >/run/senders");
    Run("ip netns exec far perl /home/send.pl 10.98.0.2 10.98.0.1 49201 >/dev/null 2>&1 & echo $! >>/run/senders");
    Run("perl /home/send.pl 10.98.0.1 10.98.0.2 49200 >/dev/null 2>&1 & echo $! >>/run/senders");
    ASSERT_TRUE(Eventually([&] { return Flow(true).at("packets").get<uint64_t>() > 1000; })) << Flow(true).dump();
    ASSERT_TRUE(Eventually([&] { return Flow(false).contains("id"); }));
  }
  // The flow that is sent is put on another port.
  void SteerByHand() {
    Run("cwctl steer set " + Flow(false).at("id").get<std::string>() + " --port 50001");
    ASSERT_TRUE(Eventually([&] { return Ports() == "49200 50001"; })) << Ports();
  }
  // That the far end has seen so far.
  std::string Ports() { return Run("paste -s -d ' ' /run/ports"); }
  // That arrives, or is sent.
  nlohmann::json Flow(bool received) {
    const auto reply = nlohmann::json::parse(Run("cwctl --json qps --received"), nullptr, false);
    for (const auto& flow : reply.is_object() ? reply.at("flows") : nlohmann::json::array()) {
      if (flow.at("received") == received) return flow;
    }
    return {{"packets", 0}, {"missing", 0}};
  }
  // dpkg says what it does; the flow goes on with what it had.
  void Change(const std::string& packages, const std::string& version) {
    const uint64_t before = Flow(true).at("packets").get<uint64_t>();
    const std::string pid = MainPid();
    Run("DEBIAN_FRONTEND=noninteractive dpkg -i " + packages + " 2>&1");
    ASSERT_TRUE(Eventually([&] { return Active() == "active" && MainPid() != pid; })) << Journal();
    ASSERT_TRUE(Eventually([&] { return Flow(true).at("packets").get<uint64_t>() > before; })) << Flow(true).dump();
    EXPECT_EQ(Flow(true).at("missing"), 0) << "what passed meanwhile is not called lost";
    ASSERT_TRUE(Eventually([&] { return Flow(false).value("udp_port", 0) == 50001; })) << Flow(false).dump();
    EXPECT_EQ(Flow(false).at("manual"), true);
    EXPECT_EQ(Ports(), "49200 50001") << "no packet left on another port";
    const auto status = nlohmann::json::parse(Run("cwctl --json status"));
    EXPECT_EQ(status.at("version"), version);
    EXPECT_EQ(status.at("mode"), "protect") << "as the operator set it";
    EXPECT_THAT(Run("journalctl --no-pager -u cwfabric-agent"), HasSubstr("what they hold is carried over"));
    EXPECT_THAT(Attached(), HasSubstr("cw_tc_egress"));
    EXPECT_EQ(Run("find /sys/fs/bpf -name 'former_*' | wc -l"), "0");
  }
};

TEST_F(InstalledTest, ConfiguredAskedUpgradedAndGone) {
  Install();
  EXPECT_EQ(Active(), "inactive") << "no NIC is named: nothing to do, and no failure" << Journal();
  EXPECT_THAT(Try("systemctl --failed --no-legend"), Not(HasSubstr("cwfabric")));
  Configure();
  if (HasFatalFailure()) return;

  // As its own user, with programs in the kernel.
  EXPECT_EQ(Run("ps -o user= -p " + MainPid()), "cwfabric");
  EXPECT_THAT(Attached(), HasSubstr("xdp"));
  EXPECT_THAT(Attached(), HasSubstr("cw_tc_egress"));
  EXPECT_THAT(Journal(), Not(HasSubstr("SCHED_FIFO"))) << "the prober has its scheduling";

  AnswersItsGroup();
  if (HasFatalFailure()) return;
  LooksAtTheProcess();
  ServesUsers();
  if (HasFatalFailure()) return;

  // How much of the system the service can reach.
  const std::string exposure =
      Run("systemd-analyze security --no-pager cwfabric-agent | grep 'Overall exposure' | grep -oE '[0-9]+\\.[0-9]'");
  double level = 10;
  ASSERT_TRUE(absl::SimpleAtod(exposure, &level)) << exposure;
  EXPECT_LE(level, 3.2);  // 0.3 of it for calls that could set the clock, had it the capability
  RecordProperty("exposure", exposure);

  Upgrade();
  if (HasFatalFailure()) return;

  // Killed: systemd starts it again.
  const std::string second = MainPid();
  Run("kill -9 " + second);
  ASSERT_TRUE(Eventually([&] { return Active() == "active" && MainPid() != second; })) << Journal();

  // The way out without the agent, and back.
  Run("systemctl stop cwfabric-agent");
  EXPECT_THAT(Run("cwfabric-off"), HasSubstr("xdp roce0: detached"));
  EXPECT_THAT(Attached(), Not(HasSubstr("cw_")));
  Run("systemctl start cwfabric-agent");
  ASSERT_TRUE(Eventually([&] { return Active() == "active"; })) << Journal();
  EXPECT_THAT(Attached(), HasSubstr("cw_tc_egress"));

  LeavesNothing();
}

TEST_F(UpgradeTest, ToOtherRecordsAndBackFlowsSteeringCountersAndTheModeStay) {
  Install();
  Configure();
  if (HasFatalFailure()) return;
  StartSenders();
  if (HasFatalFailure()) return;
  SteerByHand();
  if (HasFatalFailure()) return;
  Change("/other/*.deb", "0.99.0");
  if (HasFatalFailure()) return;
  Change("/packages/cwctl_*.deb /packages/cwfabric-agent_*.deb", CW_VERSION);
  Run("kill $(cat /run/senders)");
}

}  // namespace
}  // namespace cw::vm
