// SPDX-License-Identifier: Apache-2.0
//
// Fleet time as reference clock of a real chronyd, which runs with -x: it never touches this machine's clock. It has
// its own configuration, folder and sockets, no network (a namespace of its own) and no shared memory with the rest of
// the machine (another one), and runs as the user that the distribution gives it.
#include <grp.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "userspace/publish/publisher.h"

namespace cw::publish {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int kLeap = 37;

std::string OutputOf(const std::string& command) {
  std::string out;
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "re"), pclose);
  std::array<char, 4096> part{};
  while (pipe && fgets(part.data(), part.size(), pipe.get()) != nullptr) out += part.data();
  return out;
}

std::vector<std::string> Fields(const std::string& line) {
  std::vector<std::string> out;
  std::istringstream in(line.substr(0, line.find('\n')));
  for (std::string field; std::getline(in, field, ',');) out.push_back(field);
  return out;
}

class ChronyRefclock : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(geteuid(), 0u) << "the lab's tests run as root";
    ASSERT_TRUE(std::filesystem::exists(kChronyd)) << "install the package chrony (packaging/deps/test.txt)";
    ASSERT_EQ(unshare(CLONE_NEWNET | CLONE_NEWIPC), 0);
    std::string name = "/tmp/cwchrony-XXXXXX";
    folder_ = mkdtemp(name.data());
    ASSERT_EQ(chmod(folder_.c_str(), 0711), 0);
    run_ = folder_ + "/run";
    // chronyd wants a folder that is its own, and of nobody else, for its command socket.
    ASSERT_EQ(mkdir(run_.c_str(), 0700), 0);
    const passwd* user = getpwnam("_chrony");
    user_ = user != nullptr ? "_chrony" : "root";
    if (user != nullptr) {
      ASSERT_EQ(chown(run_.c_str(), user->pw_uid, user->pw_gid), 0);
    }
  }

  void TearDown() override {
    if (chronyd_ > 0) {
      kill(chronyd_, SIGTERM);
      waitpid(chronyd_, nullptr, 0);  // timeout(1) sees to it that this ends
    }
    publisher_.reset();
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  void StartChronyd(const std::string& refclock) {
    const std::string config = folder_ + "/chrony.conf";
    std::ofstream(config) << "refclock " << refclock << " refid CWFB poll 0 filter 4\n"
                          << "bindcmdaddress " << run_ << "/chronyd.sock\n"
                          << "pidfile " << run_ << "/chronyd.pid\n"
                          << "user " << user_ << "\nport 0\ncmdport 0\n";
    const std::string log = folder_ + "/log";
    chronyd_ = fork();
    if (chronyd_ == 0) {
      std::freopen(log.c_str(), "w", stdout);
      std::freopen(log.c_str(), "w", stderr);
      // Ends also when this test is killed: it passes SIGTERM on, and is a limit of its own.
      execlp("timeout", "timeout", "-k", "2", "100", kChronyd, "-x", "-d", "-f", config.c_str(), nullptr);
      _exit(127);
    }
    ASSERT_GT(chronyd_, 0);
  }

  void StartPublisher(PublisherOptions options) {
    options.page.path = folder_ + "/clock";
    options.chrony_interval = absl::Milliseconds(100);
    options.tai_minus_utc_s = kLeap;
    auto publisher = Publisher::Create(std::move(options));
    ASSERT_TRUE(publisher.ok()) << publisher.status();
    publisher_ = *std::move(publisher);
  }

  // Fleet time is CLOCK_MONOTONIC; TAI is such that CLOCK_REALTIME stands `offset_ns` behind UTC.
  Publication What(int64_t offset_ns) const {
    Publication what;
    what.time.state = sync::SyncState::kSynchronised;
    what.time.anchor_ns = ReadKernelClock(CLOCK_MONOTONIC);
    what.time.error_est_ns = 50;
    what.time.bound_ns = 1000;
    what.tai_offset_ns = realtime_less_monotonic_ns_ + kLeap * kSecond + offset_ns;
    what.tai_bound_ns = 500;
    return what;
  }

  std::string Chronyc(const std::string& command) const {
    return OutputOf(absl::StrFormat("chronyc -h %s/chronyd.sock -c %s 2>&1", run_, command));
  }

  // Publishes ten times per second until chronyd has selected us and says that its clock is off by what was fed.
  // Its log's last lines otherwise.
  std::string FeedUntilFollowed(int64_t offset_ns, double tolerance_s) {
    std::string sources, tracking;
    for (int i = 0; i < 600; ++i) {
      const absl::Status published = publisher_->Publish(What(offset_ns));
      if (!published.ok()) return published.ToString();
      usleep(100'000);
      if (i % 10 != 9) continue;
      sources = Chronyc("sources");
      tracking = Chronyc("tracking");
      const std::vector<std::string> source = Fields(sources), now = Fields(tracking);
      const bool selected = source.size() > 2 && source[0] == "#" && source[1] == "*" && source[2] == "CWFB";
      // "System time" of `chronyc tracking`: what chronyd would correct.
      if (selected && now.size() > 4 &&
          std::abs(std::stod(now[4]) - static_cast<double>(offset_ns) * 1e-9) < tolerance_s) {
        std::printf("%s%s", Chronyc("sources").c_str(), Chronyc("tracking").c_str());
        return "";
      }
    }
    std::ifstream log(folder_ + "/log");
    return absl::StrFormat("not followed within a minute\n%s\n%s\n%s\nlast sample: %s", sources, tracking,
                           std::string(std::istreambuf_iterator<char>(log), {}),
                           publisher_->chrony_status().ToString());
  }

  static constexpr char kChronyd[] = "/usr/sbin/chronyd";
  const int64_t realtime_less_monotonic_ns_ = ReadKernelClock(CLOCK_REALTIME) - ReadKernelClock(CLOCK_MONOTONIC);
  std::string folder_, run_, user_;
  pid_t chronyd_ = -1;
  std::unique_ptr<Publisher> publisher_;
};

TEST_F(ChronyRefclock, SockIsSelectedWithTheOffsetThatWasFed) {
  const std::string sock = run_ + "/cwfabric.sock";
  PublisherOptions options;
  options.chrony_sock = sock;
  StartPublisher(options);
  // Before chronyd is there, samples go nowhere and nothing else suffers.
  ASSERT_TRUE(publisher_->Publish(What(0)).ok());
  EXPECT_EQ(publisher_->chrony_status().code(), absl::StatusCode::kUnavailable) << publisher_->chrony_status();
  StartChronyd("SOCK " + sock);
  // A tenth of a millisecond is a hundred times what is expected.
  EXPECT_EQ(FeedUntilFollowed(123'456'789, 1e-4), "");
  EXPECT_GT(publisher_->chrony_samples(), 3u);
}

TEST_F(ChronyRefclock, SharedMemoryIsSelectedWithTheOffsetThatWasFed) {
  PublisherOptions options;
  options.chrony_shm = 2;
  StartPublisher(options);
  StartChronyd("SHM 2");
  EXPECT_EQ(FeedUntilFollowed(-87'654'321, 1e-4), "");
}

TEST_F(ChronyRefclock, NothingIsToldThatIsNotKnown) {
  const std::string sock = run_ + "/cwfabric.sock";
  PublisherOptions options;
  options.chrony_sock = sock;
  StartPublisher(options);
  StartChronyd("SOCK " + sock);
  const auto refused = [&](Publication what) {
    what.time.anchor_ns = ReadKernelClock(CLOCK_MONOTONIC);
    EXPECT_TRUE(publisher_->Publish(what).ok());
    EXPECT_EQ(publisher_->chrony_status().code(), absl::StatusCode::kFailedPrecondition) << publisher_->chrony_status();
    usleep(150'000);
  };
  Publication what = What(0);
  what.tai_bound_ns = -1;
  refused(what);
  what = What(0);
  what.anchor = true;  // it would follow itself
  refused(what);
  what = What(0);
  what.time.state = sync::SyncState::kFreeRunning;
  refused(what);
  EXPECT_EQ(publisher_->chrony_samples(), 0u);
}

}  // namespace
}  // namespace cw::publish
