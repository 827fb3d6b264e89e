// SPDX-License-Identifier: Apache-2.0
// Agents come and go under perftest's traffic on real soft-RoCE, and nothing notices: no queue pair is in error, the
// sender drops nothing, no flow is moved as if its path had failed. The sender's agent is stopped, started, restarted,
// switched off, and detached, CW_HARMLESS_TIMES (3) times each.
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/lab/eventually.h"
#include "tests/vm/agents_fixture.h"

namespace cw::vm {
namespace {

constexpr int kSeconds = 180;  // of each run: for all that is done to the agent meanwhile, on a slow host, too
constexpr int kQueuePairs = 4;
constexpr absl::Duration kApart = absl::Seconds(2);  // flows go on for so long before the next is done

class HarmlessTest : public AgentsFixture {
 protected:
  static void SetUpTestSuite() {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    RackOptions options;
    options.lab = "vmharmless";
    options.memory_mib = 1024;
    options.link_mbps = 1000;
    options.log_dir = CW_VM_LOG_DIR "/harmless";
    options.image.files = AgentFiles(CW_AGENTD, CW_CTL);
    Begin(options, AgentConfig());
    if (setup_.ok()) setup_ = agents_->WaitForPaths(absl::Seconds(60));
  }

  static int Times() {
    const char* given = std::getenv("CW_HARMLESS_TIMES");
    return given == nullptr ? 3 : std::atoi(given);
  }

  // What machine 0 dropped of what it was to send: its queues, and its NIC.
  static uint64_t Dropped() {
    const auto text = rack_->machine(0).Run(
        "cat /sys/class/net/eth0/statistics/tx_dropped; "
        "tc -s qdisc show dev eth0 | sed -n 's/.*(dropped \\([0-9]*\\),.*/\\1/p'");
    EXPECT_TRUE(text.ok()) << text.status();
    uint64_t sum = 0;
    int lines = 0;
    for (const absl::string_view line : absl::StrSplit(text.value_or(""), '\n', absl::SkipWhitespace())) {
      uint64_t count = 0;
      EXPECT_TRUE(absl::SimpleAtoi(line, &count)) << line;
      sum += count;
      ++lines;
    }
    EXPECT_GE(lines, 2) << "no queue is known: " << text.value_or("");
    return sum;
  }

  static std::map<std::string, uint64_t> Moves(int i) {
    std::map<std::string, uint64_t> moves;
    const auto reply = agents_->Ctl(i, "counters");
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (!reply.ok()) return moves;
    for (const auto& counter : reply->at("counters")) {
      const std::string name = counter.at("name");
      if (name == "moves_dead" || name == "moves_blind" || name == "moves_forced" || name == "moves_lease")
        moves[name] = counter.at("value");
    }
    return moves;
  }
  static std::string EventsText() {
    std::vector<std::string> texts;
    for (int i = 0; i < 2; ++i) {
      for (const std::string type : {"path", "move"}) {
        const auto events = agents_->Events(i, type);
        if (!events.ok()) continue;
        for (const nlohmann::json& event : *events)
          texts.push_back(absl::StrCat("vm", i, ": ", event.at("text").get<std::string>()));
      }
    }
    return absl::StrJoin(texts, "\n");
  }

  // Both agents answer. Since the call before.
  void ExpectNoHarm(const std::string& after) {
    for (int i = 0; i < 2; ++i) {
      std::map<std::string, uint64_t>& before = moves_[static_cast<size_t>(i)];
      for (const auto& [name, count] : Moves(i)) {
        EXPECT_EQ(count, before[name]) << name << " of vm" << i << " after " << after << "\n" << EventsText();
        before[name] = count;
      }
    }
    const uint64_t dropped = Dropped();
    EXPECT_EQ(dropped, dropped_) << "packets that the sender dropped after " << after;
    dropped_ = dropped;
    const auto pairs = QueuePairs(rack_->machine(0), type_);
    EXPECT_TRUE(pairs.ok()) << pairs.status();
    if (!pairs.ok()) return;
    size_t ready = 0;
    for (const QueuePair& pair : *pairs) ready += pair.state == "RTS" ? 1 : 0;
    EXPECT_EQ(ready, static_cast<size_t>(kQueuePairs)) << "queue pairs that can send after " << after;
  }

  static void StopAgent() {
    agents_->agent(0).Signal(SIGTERM);
    const auto ended = agents_->agent(0).Wait(absl::Seconds(30));
    EXPECT_TRUE(ended.ok() && ended->exit_code == 0) << agents_->agent(0).output();
  }
  static void StartAgent() {
    const absl::Time begun = absl::Now();
    const absl::Status started = agents_->StartAgain(0);
    EXPECT_TRUE(started.ok()) << started;
    std::printf("  an agent answered after %.1f s\n", absl::ToDoubleSeconds(absl::Now() - begun));
  }
  void StopAndStart() {
    StopAgent();
    lab::Hold(kApart);
    StartAgent();
    ExpectNoHarm("a stop and a start");
  }
  void Restart() {
    StopAgent();
    StartAgent();
    lab::Hold(kApart);
    ExpectNoHarm("a restart");
  }
  void SwitchOff() {
    EXPECT_TRUE(agents_->Ctl(0, "off").ok());
    lab::Hold(kApart);
    EXPECT_TRUE(agents_->Ctl(0, "mode protect").ok());
    lab::Hold(kApart);
    ExpectNoHarm("off and on");
  }
  void Detach() {
    StopAgent();
    const auto detached = rack_->machine(0).Run("cwagentd --detach");
    EXPECT_TRUE(detached.ok()) << detached.status();
    moves_[0].clear();  // its counters went with its maps
    lab::Hold(kApart);
    StartAgent();
    lab::Hold(kApart);
    ExpectNoHarm("a detach and a start");
  }

  void Try(const std::string& tool, const std::string& arguments = "-s 65536 -u 18", const std::string& type = "RC") {
    type_ = type;
    for (int i = 0; i < 2; ++i) moves_[static_cast<size_t>(i)] = Moves(i);
    dropped_ = Dropped();
    for (int time = 0; time < Times(); ++time) {
      const auto before = RxeCounters(rack_->machine(0));
      auto run = Perftest::Start(
          *rack_, {.tool = tool, .arguments = absl::StrFormat("-q %d -D %d %s", kQueuePairs, kSeconds, arguments)});
      ASSERT_TRUE(run.ok()) << run.status();
      run_ = *std::move(run);
      const auto pairs = WaitForQueuePairs(rack_->machine(0), kQueuePairs, absl::Seconds(60), type_);
      ASSERT_TRUE(pairs.ok()) << pairs.status() << Logs();
      lab::Hold(kApart);
      StopAndStart();
      Restart();
      SwitchOff();
      Detach();
      EXPECT_TRUE(run_->running()) << "the run ended too early to show anything";
      const auto result = run_->Wait(absl::Seconds(2 * kSeconds));
      ASSERT_TRUE(result.ok()) << tool << ": " << result.status() << Logs();
      const auto after = RxeCounters(rack_->machine(0));
      ASSERT_TRUE(before.ok() && after.ok());
      EXPECT_EQ(after->at("retry_exceeded_err"), before->at("retry_exceeded_err"));
      std::printf("%s, time %d: %.1f MB/s, %d sequence errors, %d packets dropped by the sender\n", tool.c_str(),
                  time + 1, result->average_mb_per_s,
                  static_cast<int>(after->at("rcvd_seq_err") - before->at("rcvd_seq_err")),
                  static_cast<int>(Dropped()));
    }
  }

  std::array<std::map<std::string, uint64_t>, 2> moves_;  // of each machine, as counted last
  uint64_t dropped_ = 0;
  std::string type_ = "RC";  // of its queue pairs
};

TEST_F(HarmlessTest, Writes) { Try("ib_write_bw"); }
TEST_F(HarmlessTest, Sends) { Try("ib_send_bw"); }
TEST_F(HarmlessTest, Reads) { Try("ib_read_bw"); }
TEST_F(HarmlessTest, Atomics) { Try("ib_atomic_bw", "-u 18"); }
TEST_F(HarmlessTest, Datagrams) { Try("ib_send_bw", "-c UD -s 2048", "UD"); }
TEST_F(HarmlessTest, UnreliableConnections) { Try("ib_write_bw", "-c UC -s 65536", "UC"); }

}  // namespace
}  // namespace cw::vm
