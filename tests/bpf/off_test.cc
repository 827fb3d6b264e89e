// SPDX-License-Identifier: Apache-2.0
// The way out without an agent, after an agent that was killed: what is left in the kernel then, and whose it is.
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "gmock/gmock.h"
#include "tests/bpf/dataplane_fixture.h"
#include "userspace/off/detach.h"

namespace cw::test {
namespace {

using dataplane::Dataplane;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint32_t kQpn = 0x1a2b;

class OffTest : public DataplaneTest {
 protected:
  // Another process opens and attaches; it is killed, or lives until the test ends it.
  pid_t Agent() {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      rig_.InNear([&] {
        auto plane = Dataplane::Open(options_);
        if (!plane.ok() || !(*plane)->Attach(VethRig::kDevice).ok()) _exit(1);
        (*plane)->ctl()[0].mode = CW_MODE_OPTIMIZE;
        if (write(ready[1], "", 1) == 1) pause();
      });
      _exit(1);
    }
    close(ready[1]);
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 1) << "the process did not attach";
    close(ready[0]);
    return child;
  }
  static void Kill(pid_t agent) {
    kill(agent, SIGKILL);
    waitpid(agent, nullptr, 0);
  }
  void KilledAgent() { Kill(Agent()); }

  off::Options Wanted() const {
    return {.pin_root = options_.pin_root, .run_root = options_.run_root, .instance = options_.instance};
  }
  off::Report Off(const off::Options& options) {
    off::Report report;
    rig_.InNear([&] { report = off::Detach(options); });
    return report;
  }
  std::string Attached() {
    return Programs() + rig_.NearShell("tc qdisc show dev nic0") +
           rig_.NearShell("tc filter show dev nic0 egress; tc filter show dev nic0 ingress", /*may_fail=*/true);
  }
  static std::vector<std::string> Whats(const std::vector<off::Step>& steps) {
    std::vector<std::string> out;
    for (const off::Step& step : steps) out.push_back(step.what);
    return out;
  }
};

TEST_F(OffTest, NothingIsLeftOfAKilledAgentAndTrafficGoesOn) {
  const pid_t agent = Agent();
  std::atomic<bool> stop{false};
  std::thread traffic([&] {
    for (uint32_t psn = 0; !stop; psn += 10) {
      rig_.SendRoce(true, kQpn, psn, 10);
      rig_.SendRoce(false, kQpn + 1, psn, 10);
    }
  });
  Kill(agent);
  EXPECT_THAT(Attached(), AllOf(HasSubstr("cw_xdp_ingress"), HasSubstr("cw_tc_egress")));

  off::Options dry = Wanted();
  dry.dry = true;
  const off::Report would = Off(dry);
  EXPECT_THAT(Attached(), AllOf(HasSubstr("cw_xdp_ingress"), HasSubstr("cw_tc_egress"))) << "it was only asked";
  EXPECT_TRUE(std::filesystem::exists(PinFolder()));

  const off::Report report = Off(Wanted());
  EXPECT_TRUE(report.left.empty()) << off::Text(report);
  EXPECT_THAT(Whats(report.done), ::testing::UnorderedElementsAre("mode", "xdp", "tc egress", "pins"));
  EXPECT_EQ(Whats(would.done), Whats(report.done));
  EXPECT_THAT(Attached(), Not(::testing::AnyOf(HasSubstr("cw_"), HasSubstr("xdp"))));
  EXPECT_FALSE(std::filesystem::exists(PinFolder()));
  EXPECT_TRUE(std::filesystem::is_empty(options_.run_root + "/" + options_.instance)) << "no lock either";

  const auto received = [&] { return rig_.NearShell("grep nic0 /proc/net/dev"); };
  const std::string then = received();
  for (int i = 0; i < 500 && received() == then; ++i) usleep(10000);
  EXPECT_NE(received(), then) << "packets still arrive";
  stop = true;
  traffic.join();

  const off::Report again = Off(Wanted());
  EXPECT_TRUE(again.done.empty() && again.left.empty()) << off::Text(again);
  Open();  // and an agent may start again
  EXPECT_FALSE(plane_->adopted());
  Attach();
}

TEST_F(OffTest, OthersProgramsStay) {
  rig_.NearShell(
      "tc qdisc add dev nic0 clsact && tc filter add dev nic0 ingress prio 7 protocol all bpf bytecode '1,6 0 0 0'");
  KilledAgent();
  EXPECT_TRUE(Off(Wanted()).left.empty());
  EXPECT_THAT(Attached(), AllOf(HasSubstr("clsact"), HasSubstr("pref 7"), Not(HasSubstr("cw_"))));

  // Another instance's, in the very place that ours would have.
  KilledAgent();
  off::Options other = Wanted();
  other.instance = "no-such-instance";
  EXPECT_TRUE(Off(other).done.empty());
  EXPECT_THAT(Attached(), AllOf(HasSubstr("cw_xdp_ingress"), HasSubstr("cw_tc_egress")));
}

TEST_F(OffTest, AnAgentThatRunsIsNamedUnlessForced) {
  const pid_t agent = Agent();
  const off::Report refused = Off(Wanted());
  ASSERT_THAT(Whats(refused.left), ::testing::ElementsAre("agent"));
  EXPECT_THAT(refused.left[0].object, HasSubstr(absl::StrFormat("process %d", agent)));
  EXPECT_TRUE(refused.done.empty());
  EXPECT_THAT(Attached(), HasSubstr("cw_xdp_ingress"));
  kill(agent, SIGSTOP);  // one that hangs
  off::Options force = Wanted();
  force.force = true;
  EXPECT_TRUE(Off(force).left.empty());
  EXPECT_THAT(Attached(), Not(HasSubstr("cw_")));
  Kill(agent);
}

TEST_F(OffTest, WhoDidItIsKeptWhereAnAgentKeptItsOwn) {
  KilledAgent();
  off::Options options = Wanted();
  options.state_root = options_.run_root + "/state";
  EXPECT_TRUE(Off(options).left.empty());
  EXPECT_FALSE(std::filesystem::exists(options.state_root)) << "nothing was kept here before";

  KilledAgent();
  std::filesystem::create_directories(options.state_root + "/" + options.instance);
  EXPECT_TRUE(Off(options).left.empty());
  std::ifstream in(options.state_root + "/" + options.instance + "/acts.jsonl");
  const nlohmann::json act = nlohmann::json::parse(in);
  EXPECT_EQ(act["call"], "cwfabric-off");
  EXPECT_EQ(act["outcome"], "allowed");
  EXPECT_THAT(std::string(act["via"]), HasSubstr("uid 0"));
}

TEST_F(OffTest, InAnotherNamespaceNothingIsTouchedAndThatIsSaid) {
  KilledAgent();
  off::Report report;
  rig_.InFar([&] { report = off::Detach(Wanted()); });
  EXPECT_THAT(Whats(report.left), ::testing::Contains("xdp")) << off::Text(report);
  EXPECT_THAT(report.left[0].note, HasSubstr("another network namespace"));
  EXPECT_THAT(Attached(), AllOf(HasSubstr("cw_xdp_ingress"), HasSubstr("cw_tc_egress")));
  EXPECT_TRUE(Off(Wanted()).left.empty()) << "its pins were left, so it is found from its own";
  EXPECT_THAT(Attached(), Not(HasSubstr("cw_")));
}

// The program itself, with the folders that it knows.
TEST_F(OffTest, TheProgramSaysWhatItDid) {
  options_.run_root = "/run/cwfabric";
  KilledAgent();
  const std::string command = absl::StrFormat("%s --instance %s --json", CWFABRIC_OFF_PATH, options_.instance);
  const auto said = nlohmann::json::parse(rig_.NearShell(command));
  EXPECT_EQ(said["dry_run"], false);
  EXPECT_EQ(said["left"], nlohmann::json::array());
  const auto xdp =
      std::find_if(said["done"].begin(), said["done"].end(), [](const auto& s) { return s["what"] == "xdp"; });
  ASSERT_NE(xdp, said["done"].end()) << said;
  EXPECT_EQ((*xdp)["object"], "nic0");
  EXPECT_EQ((*xdp)["ifindex"], NearIfindex());
  EXPECT_THAT(Attached(), Not(HasSubstr("cw_")));
  EXPECT_THAT(Shell(absl::StrFormat("%s --instance %s", CWFABRIC_OFF_PATH, options_.instance)),
              HasSubstr("nothing of cwfabric is in the kernel"));
  EXPECT_THAT(Shell(absl::StrFormat("%s --instance ../x; echo $?", CWFABRIC_OFF_PATH)), HasSubstr("\n2\n"));
  EXPECT_THAT(Shell("ldd " CWFABRIC_OFF_PATH, /*may_fail=*/true), HasSubstr("statically linked"));
  const std::string stripped = "/tmp/" + options_.instance;
  Shell(absl::StrFormat("strip -o %s %s", stripped, CWFABRIC_OFF_PATH));
  EXPECT_LT(std::filesystem::file_size(stripped), 2u << 20);
  std::filesystem::remove(stripped);
  std::filesystem::remove_all("/run/cwfabric/" + options_.instance);
  options_.run_root = TestOptions().run_root;
}

// Folders as the package makes them: another user's, who may put anything there before root takes the agent out.
class ServiceFolders : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const std::string& folder : {Pins(), Run() + "/default", root_ + "/victim"}) {
      std::filesystem::create_directories(folder);
    }
    std::ofstream(Victim()) << "theirs";
    for (const std::string& folder : {Pins(), Run(), Run() + "/default"}) {
      ASSERT_EQ(chown(folder.c_str(), kService, kService), 0);
    }
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string Pins() const { return root_ + "/pins"; }
  std::string Run() const { return root_ + "/run"; }
  std::string Victim() const { return root_ + "/victim/file"; }
  absl::Status Remove() const {
    return Dataplane::Remove(dataplane::Options{.instance = "default", .pin_root = Pins(), .run_root = Run()});
  }
  off::Report Off() const { return off::Detach({.pin_root = Pins(), .run_root = Run(), .instance = "default"}); }
  void ExpectVictimUntouched() const {
    std::ifstream file(Victim());
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "theirs");
    struct stat info = {};
    EXPECT_EQ(stat(Victim().c_str(), &info), 0);
    EXPECT_EQ(info.st_uid, 0u) << "it was given away";
  }

  static constexpr uid_t kService = 12345;
  const std::string root_ = absl::StrFormat("/tmp/cwtest-%d-folders", getpid());
};

TEST_F(ServiceFolders, RootWritesThroughNoLockThatIsASymlinkOrASecondName) {
  std::filesystem::create_directory(Pins() + "/default");
  const std::string lock = Run() + "/default/lock";
  for (const bool symlink : {true, false}) {
    std::filesystem::remove(lock);
    symlink ? std::filesystem::create_symlink(Victim(), lock) : std::filesystem::create_hard_link(Victim(), lock);
    EXPECT_FALSE(Remove().ok());
    ExpectVictimUntouched();
    const off::Report report = Off();
    EXPECT_EQ(report.left.size(), 1u) << off::Text(report);
    ExpectVictimUntouched();
  }
}

TEST_F(ServiceFolders, RootEmptiesNoFolderThatASymlinkNames) {
  std::filesystem::create_directory_symlink(root_ + "/victim", Pins() + "/default");
  EXPECT_THAT(std::string(Remove().message()), HasSubstr("other user's symlink"));
  ExpectVictimUntouched();
  EXPECT_THAT(off::Text(Off()), HasSubstr("a symlink of another user's"));
  ExpectVictimUntouched();

  std::filesystem::remove(Pins() + "/default");
  std::filesystem::create_directory(Pins() + "/default");
  std::filesystem::remove_all(Run() + "/default");
  std::filesystem::create_directory_symlink(root_ + "/victim", Run() + "/default");
  std::filesystem::rename(Victim(), root_ + "/victim/lock");
  EXPECT_FALSE(Remove().ok());
  EXPECT_THAT(off::Text(Off()), HasSubstr("a symlink of another user's"));
  std::filesystem::rename(root_ + "/victim/lock", Victim());
  ExpectVictimUntouched();
}

TEST_F(ServiceFolders, RootsOwnSymlinksAreFollowed) {
  std::filesystem::create_directory(Pins() + "/default");
  const std::string elsewhere = root_ + "/elsewhere";
  std::filesystem::rename(Run(), elsewhere);
  std::filesystem::create_directory_symlink(elsewhere, Run());  // in a folder of root's
  EXPECT_TRUE(Remove().ok()) << Remove();
  EXPECT_FALSE(std::filesystem::exists(Pins() + "/default"));
}

}  // namespace
}  // namespace cw::test
