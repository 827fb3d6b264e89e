// SPDX-License-Identifier: Apache-2.0
// The agent's socket as users of this machine find it: the real server, and cwctl run as other users (so it wants
// root).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/unit/cli_fake_agent.h"
#include "tests/unit/cli_run.h"
#include "userspace/api/server.h"

namespace cw::api {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

// Groups that every Debian and RHEL has.
constexpr char kReaders[] = "games", kSteerers[] = "mail", kAdmins[] = "adm";
constexpr char kStranger[] = "65534";  // nobody

class ApiSocket : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/cw-socket-XXXXXX";
    folder_ = mkdtemp(name);
    ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
    // Where nobody else may look into the build folder.
    std::filesystem::copy_file(CWCTL_PATH, folder_ + "/cwctl");
    ASSERT_EQ(chmod((folder_ + "/cwctl").c_str(), 0755), 0);
  }
  ~ApiSocket() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Start(const GroupNames& groups) {
    auto server = Server::Start({.socket_path = socket(), .groups = groups, .tcp = {}, .tls = {}}, agent_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  std::string socket() const { return folder_ + "/agent.sock"; }

  // As a plain user with one further group, "" = none.
  cli::RunResult As(const std::string& group, std::vector<std::string> verb) {
    std::vector<std::string> command = {"--reuid", kStranger, "--regid", kStranger};
    if (group.empty()) {
      command.push_back("--clear-groups");
    } else {
      command.insert(command.end(), {"--groups", group});
    }
    command.push_back(folder_ + "/cwctl");
    command.insert(command.end(), verb.begin(), verb.end());
    return cli::RunProgram("/usr/bin/setpriv", command, {{"CWFABRIC_SOCKET", socket()}});
  }

  unsigned ModeOf() const {
    struct stat info {};
    EXPECT_EQ(stat(socket().c_str(), &info), 0);
    return info.st_mode & 0777;
  }

  std::string folder_;
  FakeAgent agent_;
  std::unique_ptr<Server> server_;
};

TEST_F(ApiSocket, WithoutNamedGroupsItsModeDecidesAsBefore) {
  Start({});
  EXPECT_EQ(ModeOf(), 0660u);
  ASSERT_EQ(chown(socket().c_str(), 0, 8), 0);  // mail's
  EXPECT_EQ(As("mail", {"mode", "protect"}).exit_code, 0) << "a member may do everything, as before there were roles";
  EXPECT_EQ(agent_.last_caller.name, "nobody") << "and is named";
  EXPECT_EQ(agent_.last_caller.via, "uid 65534");
  EXPECT_THAT(As("", {"status"}).err, HasSubstr("may not open"));
}

TEST_F(ApiSocket, GroupsGiveTheirRoles) {
  Start({.read = kReaders, .steer = kSteerers, .admin = kAdmins});
  EXPECT_EQ(ModeOf(), 0666u);
  EXPECT_EQ(As(kReaders, {"status"}).exit_code, 0);
  EXPECT_THAT(As(kReaders, {"off"}).err, HasSubstr("Off needs the role steer, and nobody has the role read"));
  EXPECT_EQ(As(kSteerers, {"off"}).exit_code, 0);
  EXPECT_THAT(As(kSteerers, {"mode", "protect"}).err, HasSubstr("SetMode needs the role admin"));
  EXPECT_EQ(As(kAdmins, {"mode", "protect"}).exit_code, 0);
  EXPECT_EQ(agent_.last_caller.role, Role::kAdmin) << "one user with several roles, by its groups when it connected";
  EXPECT_EQ(As("root", {"status"}).exit_code, 1) << "the group root is not named";
  const cli::RunResult root =
      cli::RunProgram(folder_ + "/cwctl", {"status", "--json"}, {{"CWFABRIC_SOCKET", socket()}});
  ASSERT_EQ(root.exit_code, 0) << root.err;
  EXPECT_EQ(nlohmann::json::parse(root.out)["caller"]["role"], "admin");
}

TEST_F(ApiSocket, WhoHasNoRoleIsSentAwayAndTold) {
  Start({.read = kReaders, .steer = ""});
  const cli::RunResult result = As("", {"status"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("lets you do nothing; run as root, or join a group that [api]"));
  const ApiEvent event = agent_.Told().front();
  EXPECT_EQ(event.type, "audit");
  EXPECT_THAT(event.evidence, Contains(Pair("outcome", "refused")));
  EXPECT_THAT(event.evidence, Contains(Pair("by", "nobody")));
  for (int i = 0; i < 15; ++i) EXPECT_EQ(As("", {"events", "--follow"}).exit_code, 1);
  EXPECT_LT(agent_.Told().size(), 15u) << "nobody can fill the log";
}

TEST_F(ApiSocket, ManyUsersFindTheirWay) {
  Start({.read = kReaders, .steer = ""});
  for (int round = 0; round < 2; ++round) {
    for (int uid = 20000; uid < 20040; ++uid) {  // more than get a server of their own at once
      const cli::RunResult result = cli::RunProgram("/usr/bin/setpriv",
                                                    {"--reuid", std::to_string(uid), "--regid", "20000", "--groups",
                                                     kReaders, folder_ + "/cwctl", "status", "--json"},
                                                    {{"CWFABRIC_SOCKET", socket()}});
      ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
      EXPECT_EQ(nlohmann::json::parse(result.out)["caller"]["name"], "uid " + std::to_string(uid));
    }
  }
}

}  // namespace
}  // namespace cw::api
