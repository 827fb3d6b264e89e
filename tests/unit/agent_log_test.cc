// SPDX-License-Identifier: Apache-2.0
// Lines of the log as the journal and readers of JSON get them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "tests/unit/no_descriptors.h"
#include "userspace/agent/log_output.h"
#include "userspace/agent/no_dumps.h"
#include "userspace/commandline/sd_notify.h"

namespace cw::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

telemetry::Event Death() {
  telemetry::Event event{.seq = 7,
                         .type = "path",
                         .severity = telemetry::Severity::kAlert,
                         .text = "path 2 to node2 is dead",
                         .peer = "node2",
                         .slot = 2};
  event.evidence = {{"udp-port", "49153"}};
  return event;
}

// A watchdog that is not heard has systemd kill the agent.
TEST(SdNotify, NeedsADescriptorAtItsFirstWordOnly) {
  const std::string path = absl::StrCat("/tmp/cw_notify_", getpid());
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  path.copy(at.sun_path, sizeof(at.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  commandline::SdNotify("STATUS=starting");
  {
    const NoDescriptors none;
    ASSERT_TRUE(none.none_left());
    commandline::SdNotify("WATCHDOG=1");
  }
  unsetenv("NOTIFY_SOCKET");
  char text[64];
  ASSERT_EQ(recv(fd, text, sizeof(text), 0), 15);
  ASSERT_EQ(recv(fd, text, sizeof(text), 0), 10);
  EXPECT_EQ(std::string(text, 10), "WATCHDOG=1");
  close(fd);
  std::filesystem::remove(path);
}

// A journal of our own: the socket that datagrams go to.
class JournalOutput : public ::testing::Test {
 protected:
  JournalOutput() {
    char name[] = "/tmp/cw-journal-XXXXXX";
    folder_ = mkdtemp(name);
    path = folder_ + "/socket";
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~JournalOutput() override {
    close(fd_);
    std::filesystem::remove_all(folder_);
  }
  // "" when nothing came; a datagram is there as soon as it was sent.
  std::string Next() {
    char bytes[4096];
    const ssize_t n = recv(fd_, bytes, sizeof(bytes), 0);
    return n < 0 ? "" : std::string(bytes, static_cast<size_t>(n));
  }
  std::string path;

 private:
  std::string folder_;
  int fd_ = -1;
};

TEST_F(JournalOutput, GetsAnEventsFields) {
  OpenLog(LogOutput::kJournal, config::LogLevel::kInfo, path);
  LogEvent(Death());
  EXPECT_EQ(Next(),
            "MESSAGE=path 2 to node2 is dead\nPRIORITY=4\nSYSLOG_IDENTIFIER=cwagentd\nCW_EVENT=path\nCW_SEQ=7\n"
            "CW_PEER=node2\nCW_PATH=2\nCW_UDP_PORT=49153\n");
  spdlog::warn("no metrics: {}", "why");
  EXPECT_EQ(Next(), "MESSAGE=no metrics: why\nPRIORITY=4\nSYSLOG_IDENTIFIER=cwagentd\n");
  spdlog::debug("nothing for the journal at this level");
  EXPECT_EQ(Next(), "");
  OpenLog(LogOutput::kJournal, config::LogLevel::kError, path);
  LogEvent(Death());
  EXPECT_EQ(Next(), "") << "an alert is a warning of the log, below an error";
}

TEST_F(JournalOutput, ThatIsAwayCostsNoLine) {
  OpenLog(LogOutput::kJournal, config::LogLevel::kInfo, path + ".none");
  ::testing::internal::CaptureStderr();
  LogEvent(Death());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "path 2 to node2 is dead\n");
}

TEST(JournalDatagram, TextsOfSeveralLinesHaveTheirLength) {
  EXPECT_EQ(JournalDatagram({{"A", "b"}, {"C", "d\ne"}}), std::string("A=b\nC\n\3\0\0\0\0\0\0\0d\ne\n", 18));
}

TEST(JournalFields, NamesAreThoseThatJournaldTakes) {
  telemetry::Event event{.type = "move", .flow = "0b5c91fe", .to_slot = 3, .dry = true};
  event.evidence = {{"p99 of queue, µs", "1"}, {std::string(100, 'x'), "2"}};
  const JournalFields fields = FieldsOf(event);
  for (const auto& [name, value] : fields) {
    EXPECT_LE(name.size(), 64u);
    EXPECT_EQ(name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"), std::string::npos) << name;
  }
  EXPECT_THAT(fields, ::testing::Contains(std::pair<std::string, std::string>("CW_TO_PATH", "3")));
  EXPECT_THAT(fields, ::testing::Contains(std::pair<std::string, std::string>("CW_DRY", "1")));
  EXPECT_THAT(JournalDatagram(fields), Not(HasSubstr("CW_PEER")));
}

TEST(JsonLog, IsOneObjectALine) {
  ::testing::internal::CaptureStderr();
  OpenLog(LogOutput::kJson, config::LogLevel::kInfo);
  LogEvent(Death());
  spdlog::error("it \"failed\"\nbadly");
  std::istringstream lines(::testing::internal::GetCapturedStderr());
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  const nlohmann::json event = nlohmann::json::parse(line);
  EXPECT_EQ(event.at("type"), "path");
  EXPECT_EQ(event.at("path"), 2);
  EXPECT_EQ(event.at("evidence").at("udp-port"), "49153");
  ASSERT_TRUE(std::getline(lines, line));
  const nlohmann::json plain = nlohmann::json::parse(line);
  EXPECT_EQ(plain.at("text"), "it \"failed\"\nbadly");
  EXPECT_EQ(plain.at("severity"), "alert");
  EXPECT_FALSE(plain.contains("type"));
  EXPECT_NE(plain.at("time"), "1970-01-01T00:00:00+00:00");
  EXPECT_FALSE(std::getline(lines, line));
}

TEST(LogOutput, IsTheJournalWhereStderrGoesThere) {
  struct stat info {};
  ASSERT_EQ(fstat(STDERR_FILENO, &info), 0);
  const std::string here = absl::StrCat(info.st_dev, ":", info.st_ino);
  EXPECT_EQ(ChooseLogOutput(config::LogFormat::kAuto, here), LogOutput::kJournal);
  EXPECT_EQ(ChooseLogOutput(config::LogFormat::kAuto, ""), LogOutput::kText);
  EXPECT_EQ(ChooseLogOutput(config::LogFormat::kAuto, "1:1"), LogOutput::kText) << "stderr was redirected";
  EXPECT_EQ(ChooseLogOutput(config::LogFormat::kText, here), LogOutput::kText);
  EXPECT_EQ(ChooseLogOutput(config::LogFormat::kJson, here), LogOutput::kJson);
}

TEST(NoDumps, NoCoreAndNoReader) {
  const auto look = [] {
    NoMemoryDumps();
    rlimit core{};
    getrlimit(RLIMIT_CORE, &core);
    std::exit(prctl(PR_GET_DUMPABLE) == 0 && core.rlim_max == 0 ? 0 : 1);
  };
  EXPECT_EXIT(look(), ::testing::ExitedWithCode(0), "");  // in a process of its own
}

}  // namespace
}  // namespace cw::agent
