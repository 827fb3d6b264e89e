// SPDX-License-Identifier: Apache-2.0
// Readers beside a writer that writes without a pause, is killed, is replaced; children; signals; the cut-off from
// system calls. Each line that is written says its number in every field, so that a torn one shows.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/lab/eventually.h"
#include "tests/unit/cwclock_rig.h"

namespace cw::publish {
namespace {

cw_clock_line Numbered(const cw_clock_line& like, uint32_t n) {
  cw_clock_line l = like;
  l.fleet_ns = l.base_ns + int64_t{n} * 1'000'000;
  l.bound_ns = n;
  l.error_est_ns = n;
  l.epoch = n;
  l.timeline = uint64_t{n} * 7;
  l.tai_offset_ns = -int64_t{n} * 1'000'000;
  l.tai_bound_ns = n;
  l.tai_minus_utc_s = static_cast<int32_t>(n);
  return l;
}

bool Torn(const cw_clock_time& t) {
  const int64_t n = t.tai_minus_utc_s;
  return t.fleet_ns - t.base_ns != n * 1'000'000 || t.tai_offset_ns != -n * 1'000'000 || t.tai_bound_ns != n ||
         t.timeline != static_cast<uint64_t>(n) * 7 || t.error_est_ns != n || t.latest_ns - t.fleet_ns != n + 2 ||
         t.epoch < n;
}

struct Tally {
  std::atomic<uint64_t> good{0}, torn{0}, busy{0}, other{0};
  void Count(int error, const cw_clock_time& t) {
    if (error == CW_CLOCK_EBUSY) {
      ++busy;
    } else if (error != 0) {
      ++other;
    } else {
      ++(Torn(t) ? torn : good);
    }
  }
};

class CwClockThreads : public testing::Test {
 protected:
  // Reads until `done`, from `threads` threads.
  void ReadMeanwhile(int threads, const cw_clock* clock, std::atomic<bool>& done) {
    for (int i = 0; i < threads; ++i) {
      readers_.emplace_back([this, clock, &done] {
        while (!done.load(std::memory_order_relaxed)) {
          cw_clock_time t{};
          const int error = cw_clock_read(const_cast<cw_clock*>(clock), &t);
          tally_.Count(error, t);
        }
      });
    }
  }
  void Join() {
    for (std::thread& t : readers_) t.join();
    readers_.clear();
  }
  TempFolder folder_;
  std::string path_ = folder_ / "clock";
  Tally tally_;
  std::vector<std::thread> readers_;
};

TEST_F(CwClockThreads, NoLineIsTornByAWriterThatNeverPauses) {
  const cw_clock_line good = GoodLine();
  const auto page = MakePage(path_, Numbered(good, 1));
  const Handle clock(path_);
  std::atomic<bool> done{false};
  ReadMeanwhile(4, clock.get(), done);
  uint32_t n = 1;
  for (const int64_t end = ReadKernelClock(CLOCK_MONOTONIC) + kSecond; ReadKernelClock(CLOCK_MONOTONIC) < end;) {
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(page->Write(Numbered(good, n = n % 1'000'000 + 1)).ok());
  }
  done = true;
  Join();
  EXPECT_EQ(tally_.torn, 0u);
  EXPECT_EQ(tally_.other, 0u);
  EXPECT_GT(tally_.good, 1000u);
}

TEST_F(CwClockThreads, ReadersFollowEveryRestartOfTheAgent) {
  const cw_clock_line good = GoodLine();
  auto page = MakePage(path_, Numbered(good, 1));
  const Handle clock(path_);
  std::atomic<bool> done{false};
  ReadMeanwhile(4, clock.get(), done);
  for (uint32_t n = 2; n < 300; ++n) {
    page = MakePage(path_, Numbered(good, n));  // a new file over the old one, which is retired
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(page->Write(Numbered(good, n)).ok());
  }
  // Readers look for a newer page ten times per second.
  cw_clock_time t{};
  for (int i = 0; i < 200 && t.tai_minus_utc_s != 299; ++i) {
    usleep(10'000);
    ASSERT_EQ(clock.Read(t), 0);
  }
  EXPECT_EQ(t.tai_minus_utc_s, 299);
  done = true;
  Join();
  EXPECT_EQ(tally_.torn, 0u);
  EXPECT_EQ(tally_.other, 0u);
}

TEST_F(CwClockThreads, TheDefaultPageMayBeOpenedByManyThreadsAtOnce) {
  const auto page = MakePage(path_, GoodLine());
  // In a child, because the default is opened once per process.
  const pid_t child = fork();
  if (child == 0) {
    setenv(CW_CLOCK_ENVIRONMENT, path_.c_str(), 1);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        // The first call opens it; calls of others meanwhile may find nothing yet.
        int64_t a, b;
        for (int k = 0; cw_clock_now(&a, &b) == CW_CLOCK_ENOPAGE && k < 1000; ++k) usleep(1000);
        if (cw_clock_now(&a, &b) != 0) ++wrong;
      });
    }
    for (std::thread& t : threads) t.join();
    _exit(wrong != 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CwClockThreads, AWriterKilledAnywhereLeavesAWholeLine) {
  const cw_clock_line good = GoodLine();
  auto first = MakePage(path_, Numbered(good, 1));
  const Handle clock(path_);
  for (int round = 0; round < 30; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (uint32_t n = 1;; n = n % 1'000'000 + 1) {
        if (!first->Write(Numbered(good, n)).ok()) _exit(1);
      }
    }
    lab::Hold(absl::Microseconds(500 + 137 * round));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    cw_clock_time t;
    ASSERT_EQ(clock.Read(t), 0) << "the last whole line holds until it is void";
    EXPECT_FALSE(Torn(t));
  }
}

TEST_F(CwClockThreads, AHalfWrittenCopyIsNeverSeen) {
  const cw_clock_line good = GoodLine();
  const auto page = MakePage(path_, Numbered(good, 1));
  const Handle clock(path_);
  // What a writer killed half way leaves: the other copy in pieces, the generation as it was.
  std::string bytes = ReadAll(path_);
  cw_clock_page half;
  std::memcpy(&half, bytes.data(), sizeof(half));
  std::memset(&half.copy[(half.generation + 1) & 1], 0xa5, 100);
  const std::string other = folder_ / "half";
  WriteAll(other, std::string(reinterpret_cast<const char*>(&half), sizeof(half)));
  cw_clock_time t;
  ASSERT_EQ(Handle(other).Read(t), 0);
  EXPECT_FALSE(Torn(t));
}

TEST_F(CwClockThreads, ChildrenReadOnAndFollowARestart) {
  const cw_clock_line good = GoodLine();
  auto page = MakePage(path_, Numbered(good, 1));
  const Handle clock(path_);
  EXPECT_EQ(clock.Error(), 0);
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  const pid_t child = fork();
  if (child == 0) {
    char go;
    cw_clock_time t{};
    if (clock.Read(t) != 0 || Torn(t)) _exit(2);
    if (read(pipe_fds[0], &go, 1) != 1) _exit(3);
    for (int i = 0; i < 100; ++i, usleep(10'000)) {
      if (clock.Read(t) != 0 || Torn(t)) _exit(4);
      if (t.tai_minus_utc_s == 2) _exit(0);
    }
    _exit(5);
  }
  page = MakePage(path_, Numbered(good, 2));
  ASSERT_EQ(write(pipe_fds[1], "g", 1), 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

// In a signal handler that interrupts the same thread's own calls.
cw_clock* g_clock = nullptr;
Tally g_tally;
void OnAlarm(int) {
  cw_clock_time t{};
  const int error = cw_clock_read(g_clock, &t);
  g_tally.Count(error, t);
}

TEST_F(CwClockThreads, SignalHandlersMayRead) {
  const cw_clock_line good = GoodLine();
  const auto page = MakePage(path_, Numbered(good, 3));
  const Handle clock(path_);
  g_clock = clock.get();
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = OnAlarm;
  action.sa_flags = SA_RESTART;
  ASSERT_EQ(sigaction(SIGALRM, &action, &before), 0);
  const itimerval often = {{0, 500}, {0, 500}};
  const itimerval never = {};
  ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
  for (const int64_t end = ReadKernelClock(CLOCK_MONOTONIC) + 200 * kMs; ReadKernelClock(CLOCK_MONOTONIC) < end;) {
    cw_clock_time t{};
    const int error = clock.Read(t);
    tally_.Count(error, t);
  }
  ASSERT_EQ(setitimer(ITIMER_REAL, &never, nullptr), 0);
  ASSERT_EQ(sigaction(SIGALRM, &before, nullptr), 0);
  EXPECT_GT(g_tally.good, 0u);
  EXPECT_EQ(g_tally.torn + g_tally.other + g_tally.busy, 0u);
  EXPECT_EQ(tally_.torn + tally_.other + tally_.busy, 0u);
}

#ifndef __SANITIZE_ADDRESS__  // whose run time makes system calls of its own

// Kills the process with SIGSYS on every system call but exit_group and `allowed`.
bool ForbidSystemCalls(uint32_t allowed) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  const sock_fprog program = {static_cast<unsigned short>(std::size(code)), code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

template <typename F>
int StatusOfChildWithoutSystemCalls(uint32_t allowed, F f) {
  const pid_t child = fork();
  if (child == 0) {
    if (!ForbidSystemCalls(allowed)) _exit(99);
    _exit(f());
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST_F(CwClockThreads, ReadingMakesNoSystemCall) {
  // Where the clock source is not in the vDSO (a virtual machine may lose it at any time), reading a clock is the one
  // system call that the library can't avoid.
  const auto reads_clock = [] { return ReadKernelClock(CLOCK_BOOTTIME) > 0 ? 0 : 1; };
  const bool in_vdso = StatusOfChildWithoutSystemCalls(SYS_exit_group, reads_clock) == 0;
  const uint32_t allowed = in_vdso ? SYS_exit_group : SYS_clock_gettime;
  ASSERT_EQ(StatusOfChildWithoutSystemCalls(allowed, reads_clock), 0);
  const auto page = MakePage(path_, Numbered(GoodLine(), 4));
  const Handle clock(path_);
  setenv(CW_CLOCK_ENVIRONMENT, path_.c_str(), 1);
  EXPECT_EQ(StatusOfChildWithoutSystemCalls(
                allowed,
                [&] {
                  cw_clock_time t{};
                  int wrong = 0;
                  for (int i = 0; i < 1'000'000; ++i) wrong += clock.Read(t) != 0 || Torn(t);
                  for (const clockid_t id : {CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME, CLOCK_REALTIME}) {
                    wrong += cw_clock_convert(clock.get(), id, ReadKernelClock(id), &t) != 0;
                  }
                  return wrong != 0 ? 1 : 0;
                }),
            0);
  // And it would be noticed: the first call without a handle opens the page.
  EXPECT_TRUE(WIFSIGNALED(StatusOfChildWithoutSystemCalls(allowed, [&] {
    cw_clock* another = nullptr;
    return cw_clock_open(path_.c_str(), &another);
  })));
  unsetenv(CW_CLOCK_ENVIRONMENT);
}

#endif

}  // namespace
}  // namespace cw::publish
