// SPDX-License-Identifier: Apache-2.0
// libcwverbs in processes that know nothing of it, with a provider without a device, and agents of all kinds.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/verbs_library_fixture.h"
#include "userspace/inproc/cw_inproc.h"
#include "userspace/rdma/inproc_server.h"
#include "userspace/rdma/placement.h"

namespace cw::rdma {
namespace {

// Labels of verbs_app's three queue pairs.
std::vector<std::string> Labels(const Output& out) {
  const std::vector<std::string> words = out.Words();
  std::vector<std::string> labels;
  for (size_t i = 0; i + 1 < words.size(); i += 2) labels.push_back(words[i]);
  return labels;
}
const std::vector<std::string> kNone = {"0", "0", "0"};

TEST_F(VerbsLibrary, PutsInTheLabelThatTheAgentGives) {
  StartAgent(Placed);
  const Output out = Shell(Command("connect"));
  EXPECT_EQ(out.status, 0);
  EXPECT_EQ(Labels(out), (std::vector<std::string>{"1234", "1234", "1234"})) << out.text;
  ASSERT_TRUE(WaitGone(3));
  const QpInfo qp = gone_[0];
  EXPECT_EQ(qp.laddr, *Addr::Parse("10.0.0.10"));
  EXPECT_EQ(qp.raddr, *Addr::Parse("10.0.1.10"));
  EXPECT_EQ(qp.rqpn, 0x77u);
  EXPECT_EQ(qp.comm, "verbs_app");
  EXPECT_EQ(qp.label, "job7");
  EXPECT_EQ(qp.path_mtu, 4096);
  EXPECT_EQ(qp.udp_sport, PortOfLabel(kLabel));
  ASSERT_TRUE(qp.owner.has_value());
  EXPECT_EQ(qp.owner->asked, CW_INPROC_PLACED);
}

TEST_F(VerbsLibrary, LeavesAnApplicationsOwnLabel) {
  StartAgent(Placed);
  EXPECT_EQ(Labels(Shell(Command("own"))), (std::vector<std::string>{"12345", "12345", "12345"}));
  ASSERT_TRUE(WaitGone(3));
  EXPECT_TRUE(asked_by_.empty());
  EXPECT_EQ(gone_[0].udp_sport, PortOfLabel(0x12345));
}

// 32 ones for every queue pair are no choice of a path; without an agent they stay what they are.
TEST_F(VerbsLibrary, PlacesQueuePairsOfUcx) {
  EXPECT_EQ(Labels(Shell(Command("ucx"))), (std::vector<std::string>{"ffffffff", "ffffffff", "ffffffff"}));
  StartAgent(Placed);
  EXPECT_EQ(Labels(Shell(Command("ucx"))), (std::vector<std::string>{"1234", "1234", "1234"}));
  ASSERT_TRUE(WaitGone(3));
  EXPECT_FALSE(asked_by_.empty());
  EXPECT_EQ(gone_[0].udp_sport, PortOfLabel(kLabel));
}

TEST_F(VerbsLibrary, GoesOnWithoutALabelWhereTheAgentGivesNone) {
  StartAgent([](const QpInfo&) { return Placement{.verdict = CW_INPROC_NO_PATHS}; });
  const Output out = Shell(Command("connect"));
  EXPECT_EQ(out.status, 0);
  EXPECT_EQ(Labels(out), kNone);
  ASSERT_TRUE(WaitGone(3));
  // What Linux makes of the two QPNs, fe and such: rdma_calc_flow_label and rdma_flow_label_to_udp_sport.
  const uint64_t v = uint64_t{gone_[0].lqpn} * 0x77;
  EXPECT_EQ(gone_[0].udp_sport, PortOfLabel(static_cast<uint32_t>(v ^ v >> 20) & 0xfffff));
}

TEST_F(VerbsLibrary, TriesWithoutTheLabelWhereTheProviderRefusesIt) {
  StartAgent(Placed);
  const Output out = Shell(Command("refuse"));
  EXPECT_EQ(out.status, 0);
  EXPECT_EQ(Labels(out), kNone);
  ASSERT_TRUE(WaitGone(3));
  EXPECT_NE(gone_[0].udp_sport, PortOfLabel(kLabel));
}

TEST_F(VerbsLibrary, NeedsNoAgent) {
  const Output out = Shell(Command("connect"));
  EXPECT_EQ(out.status, 0);
  EXPECT_EQ(Labels(out), kNone);
  EXPECT_EQ(Shell(Command("traffic")).status, 0);
}

// It listens and says nothing: stopped, or of a release that does not know the question. One wait, not one a queue
// pair.
TEST_F(VerbsLibrary, WaitsOnceForAnAgentThatDoesNotAnswer) {
  StartOddAgent([](const std::string&) { return ""; });
  const Output out = Shell(Command("connect", 300));
  EXPECT_EQ(out.status, 0);
  EXPECT_EQ(Labels(out), kNone);
  const std::vector<std::string> words = out.Words();
  ASSERT_EQ(words.size(), 6u);
  EXPECT_GE(std::stod(words[1]), 299);  // ms
  EXPECT_LT(std::stod(words[1]), 3000);
  EXPECT_LT(std::stod(words[3]), 299);
  EXPECT_LT(std::stod(words[5]), 299);
}

TEST_F(VerbsLibrary, TakesNoNonsense) {
  StartOddAgent(
      [n = 0](const std::string&) mutable { return ++n % 2 == 0 ? std::string(400, 'x') : std::string(1, '\0'); });
  const Output out = Shell(Command("connect", 100));
  EXPECT_EQ(out.status, 0);
  EXPECT_EQ(Labels(out), kNone);
}

std::string AnswerWith(const std::string& question, uint32_t request_offset, uint32_t label, uint16_t port) {
  cw_inproc_place_qp asked;
  if (question.size() != sizeof(asked)) return "";
  std::memcpy(&asked, question.data(), sizeof(asked));
  const cw_inproc_placement reply = {.magic = CW_INPROC_MAGIC,
                                     .version = CW_INPROC_VERSION,
                                     .type = CW_INPROC_PLACEMENT,
                                     .request = asked.request + request_offset,
                                     .flow_label = label,
                                     .udp_sport = port,
                                     .verdict = CW_INPROC_PLACED,
                                     .lqpn = asked.qp.lqpn};
  return std::string(reinterpret_cast<const char*>(&reply), sizeof(reply));
}

// Each run is a process of its own, which asks once and then leaves such an agent in peace.
TEST_F(VerbsLibrary, TakesNoAnswerToAnotherQuestionAndNoLabelThatIsNone) {
  std::atomic<int> kind{0};
  std::atomic<int> answered{0};
  StartOddAgent([&](const std::string& question) {
    const std::string answers[] = {
        AnswerWith(question, 0, kLabel, PortOfLabel(kLabel)),      // right
        AnswerWith(question, 1, kLabel, PortOfLabel(kLabel)),      // of another queue pair
        AnswerWith(question, 0, 1 << 20, PortOfLabel(0)),          // 21 bits
        AnswerWith(question, 0, kLabel, PortOfLabel(kLabel + 1)),  // another port
        AnswerWith(question, 0, 0, PortOfLabel(0)),                // placed without a label
    };
    if (!answers[0].empty()) ++answered;
    return answers[kind];
  });
  EXPECT_EQ(Labels(Shell(Command("connect")))[0], "1234") << "what a right answer does here";
  for (int wrong = 1; wrong < 5; ++wrong) {  // never past the last: the agent may still be asked when this ends
    kind = wrong;
    answered = 0;
    const Output out = Shell(Command("connect", 200));
    EXPECT_EQ(out.status, 0);
    EXPECT_EQ(Labels(out), kNone) << wrong;
    EXPECT_GT(answered, 0);
  }
  EndAgent();  // before what it uses
}

TEST_F(VerbsLibrary, CountsMessagesBytesAndCompletionTimes) {
  StartAgent(Placed);
  EXPECT_EQ(Shell(Command("traffic")).status, 0);
  ASSERT_TRUE(WaitGone(1));
  ASSERT_TRUE(gone_[0].owner.has_value());
  EXPECT_EQ(gone_[0].owner->messages, 101u);  // of the last two the provider refused one
  EXPECT_EQ(gone_[0].owner->bytes, 101u * 64);
  EXPECT_EQ(gone_[0].owner->errors, 0u);
  EXPECT_EQ(gone_[0].owner->completion_samples, 2u);  // numbers 1 and 65
  EXPECT_GT(gone_[0].owner->completion_p50_ns, 0u);
  EXPECT_GE(gone_[0].owner->completion_max_ns * 9 / 8 + 128, gone_[0].owner->completion_p50_ns);
}

// What it failed with was not for one request: the provider left the application's pointer as it was.
TEST_F(VerbsLibrary, CountsNothingOfAPostThatFailsWithoutSayingWhere) {
  StartAgent(Placed);
  EXPECT_EQ(Shell(Command("broken")).status, 0);
  ASSERT_TRUE(WaitGone(1));
  ASSERT_TRUE(gone_[0].owner.has_value());
  EXPECT_EQ(gone_[0].owner->messages, 10u);
}

TEST_F(VerbsLibrary, CountsRequestsOfTheExtendedInterface) {
  StartAgent(Placed);
  EXPECT_EQ(Shell(Command("extended")).status, 0);
  ASSERT_TRUE(WaitGone(1));
  ASSERT_TRUE(gone_[0].owner.has_value());
  EXPECT_EQ(gone_[0].owner->messages, 100u);
  EXPECT_EQ(gone_[0].owner->bytes, 6400u);
  EXPECT_GT(gone_[0].owner->completion_samples, 0u);
}

TEST_F(VerbsLibrary, WorksForAProgramThatOpensItByName) {
  StartAgent(Placed);
  const Output out = Shell(
      "timeout 60 env LD_LIBRARY_PATH=" CW_FAKE_DIR " CWVERBS_DEADLINE_MS=1000 CWFABRIC_INPROC_SOCKET=" + Socket() +
      " " CW_BY_NAME " " CW_VERBS_NCCL);
  EXPECT_EQ(out.status, 0);
  EXPECT_EQ(out.text, "1234\n");
  ASSERT_TRUE(WaitGone(1));
  ASSERT_TRUE(gone_[0].owner.has_value());
  EXPECT_EQ(gone_[0].owner->messages, 5u);
}

// Both at once: the preloaded one is not in the way of the one that is opened, and neither counts twice.
TEST_F(VerbsLibrary, BothInOneProcess) {
  StartAgent(Placed);
  const Output out = Shell("timeout 60 env LD_LIBRARY_PATH=" CW_FAKE_DIR " LD_PRELOAD=" CW_VERBS_LIB
                           " CWVERBS_DEADLINE_MS=1000 CWFABRIC_INPROC_SOCKET=" +
                           Socket() + " " CW_BY_NAME " " CW_VERBS_NCCL);
  EXPECT_EQ(out.status, 0);
  EXPECT_EQ(out.text, "1234\n");
  ASSERT_TRUE(WaitGone(1));
  EXPECT_EQ(gone_.size(), 1u);
  EXPECT_EQ(gone_[0].owner->messages, 5u);
}

TEST_F(VerbsLibrary, TwoThreadsConnectAndPostAtOnce) {
  StartAgent(Placed);
  EXPECT_EQ(Shell(Command("threads")).status, 0);
  ASSERT_TRUE(WaitGone(100));
  ASSERT_EQ(gone_.size(), 100u);
  for (const QpInfo& qp : gone_) {
    ASSERT_TRUE(qp.owner.has_value());
    EXPECT_EQ(qp.owner->messages, 20u);
    EXPECT_EQ(qp.owner->asked, CW_INPROC_PLACED);
  }
}

TEST_F(VerbsLibrary, AChildOfForkHasAConnectionOfItsOwn) {
  StartAgent(Placed);
  EXPECT_EQ(Shell(Command("forks")).status, 0);
  ASSERT_TRUE(WaitGone(3));
  EXPECT_EQ(asked_by_.size(), 2u);
  // The child's end took nothing of the parent's with it: each queue pair went once.
  EXPECT_EQ(gone_.size(), 3u);
}

TEST_F(VerbsLibrary, ItsSocketDoesNotOutliveExec) {
  StartAgent(Placed);
  const std::vector<std::string> words = Shell(Command("execs")).Words();
  ASSERT_EQ(words.size(), 2u);
  EXPECT_EQ(words[0], words[1]);
}

TEST_F(VerbsLibrary, ADescriptorThatTheApplicationReusedIsLeftAlone) {
  StartAgent(Placed);
  EXPECT_EQ(Shell(Command("closes")).status, 0);
}

TEST_F(VerbsLibrary, TheAgentsEndIsNotNoticed) {
  StartAgent(Placed);
  const int saved = dup(STDIN_FILENO);
  int in[2];
  ASSERT_EQ(pipe2(in, O_CLOEXEC), 0);
  dup2(in[0], STDIN_FILENO);
  FILE* app = popen(Command("wait").c_str(), "r");
  dup2(saved, STDIN_FILENO);
  close(saved);
  close(in[0]);
  ASSERT_NE(app, nullptr);
  char line[64];
  ASSERT_NE(fgets(line, sizeof(line), app), nullptr);
  EXPECT_STREQ(line, "1234\n");
  EndAgent();  // its socket is gone: writing there would raise SIGPIPE
  ASSERT_EQ(write(in[1], "\n", 1), 1);
  close(in[1]);
  EXPECT_EQ(pclose(app), 0);
}

TEST(VerbsLibraryFile, NeedsLibcOnlyAndAnOldOne) {
  for (const std::string& library : {std::string(CW_VERBS_LIB), std::string(CW_VERBS_NCCL)}) {
    std::istringstream in(Shell("objdump -p " + library).text);
    std::set<std::string> needed;
    for (std::string word; in >> word;) {
      if (word == "NEEDED") {
        in >> word;
        needed.insert(word);
      } else if (word.rfind("GLIBC_2.", 0) == 0) {
        EXPECT_LE(std::stoi(word.substr(8)), 17) << word << " in " << library;
      }
    }
    needed.erase("libibverbs.so.1");
    EXPECT_EQ(needed, (std::set<std::string>{"libc.so.6"})) << library;
  }
}

TEST(VerbsLibraryFile, StandsInFrontOfSixFunctionsUnderTheirVersion) {
  for (const std::string& library : {std::string(CW_VERBS_LIB), std::string(CW_VERBS_NCCL)}) {
    std::istringstream in(Shell("objdump -T " + library).text);
    std::set<std::string> exported;
    for (std::string line; std::getline(in, line);) {
      if (line.find("*UND*") != std::string::npos || line.find("*ABS*") != std::string::npos) continue;
      if (line.find(" g ") == std::string::npos) continue;
      EXPECT_NE(line.find("IBVERBS_1.1"), std::string::npos) << line;
      exported.insert(line.substr(line.rfind(' ') + 1));
    }
    EXPECT_EQ(exported, (std::set<std::string>{"ibv_alloc_pd", "ibv_close_device", "ibv_create_qp", "ibv_destroy_qp",
                                               "ibv_modify_qp", "ibv_open_device"}))
        << library;
  }
}

// As NCCL opens it: everything that libibverbs has is found in it under the same version, six of it ours.
TEST(VerbsLibraryFile, NcclFindsAllThatLibibverbsHas) {
  const Output out = Shell(CW_NCCL_SYMBOLS " " CW_VERBS_NCCL);
  EXPECT_EQ(out.status, 0) << out.text;
  EXPECT_EQ(out.text, "6\n");
}

}  // namespace
}  // namespace cw::rdma
