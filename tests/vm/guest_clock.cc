// SPDX-License-Identifier: Apache-2.0
// cw_vm_clock: reads a virtual machine's clocks beside its time stamp counter, from inside. The emulated counter is the
// host's plus a constant, so counters of two machines, once their distance is known, are one clock that both can read.
//
//   cw_vm_clock answer                       the other end of `ask`, until that has ended
//   cw_vm_clock ask BLOCKS                   bounces counter readings off the other machine through the shared page;
//                                            prints the fastest of each block: "ROUND_TRIP OTHER_MINUS_OURS", ticks
//   cw_vm_clock sample SECONDS MILLISECONDS OUT      a ClockRecord every so often, into the file OUT
//   cw_vm_clock poll SECONDS MILLISECONDS OUT END QUESTION PROGRAM [ARGUMENT...]
//                                            asks a program on its standard input; OUT gets "@ TSC_BEFORE TSC_AFTER"
//                                            and the answer, whose last line contains END
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "libcwclock/cwclock.h"
#include "tests/vm/clock_record.h"

namespace cw::vm {
namespace {

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "cw_vm_clock: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

int64_t Tsc() { return static_cast<int64_t>(__rdtsc()); }

// ---- the distance of two machines' counters ----

// Each field has a cache line of its own. All zero before the first use.
struct SharedPage {
  alignas(64) std::atomic<uint64_t> question;  // the asker counts up
  alignas(64) std::atomic<uint64_t> answer;    // the question that answer_tsc belongs to
  std::atomic<int64_t> answer_tsc;             // before answer
  alignas(64) std::atomic<uint32_t> answering;
};

// The memory that the host gave both machines: BAR 2 of QEMU's ivshmem device.
SharedPage* MapSharedPage() {
  for (const auto& device : std::filesystem::directory_iterator("/sys/bus/pci/devices")) {
    std::string vendor, id;
    std::ifstream(device.path() / "vendor") >> vendor;
    std::ifstream(device.path() / "device") >> id;
    if (vendor != "0x1af4" || id != "0x1110") continue;
    const int fd = open((device.path() / "resource2").c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) Die("the shared page");
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) Die("map the shared page");
    return static_cast<SharedPage*>(page);
  }
  std::fprintf(stderr, "cw_vm_clock: this machine has no shared page\n");
  std::exit(1);
}

// No other program of this machine in between; and an end that comes by itself if the other machine never does.
void SpinAlone() {
  alarm(30);
  sched_param priority{.sched_priority = 50};
  if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0) Die("SCHED_FIFO");
}

int Answer() {
  SharedPage* page = MapSharedPage();
  SpinAlone();
  uint64_t done = page->question.load();
  page->answering.store(1);
  while (page->answering.load(std::memory_order_relaxed) != 0) {
    const uint64_t question = page->question.load(std::memory_order_acquire);
    if (question == done) continue;
    page->answer_tsc.store(Tsc(), std::memory_order_relaxed);
    page->answer.store(question, std::memory_order_release);
    done = question;
  }
  return 0;
}

int Ask(int blocks) {
  constexpr int kRounds = 500;
  SharedPage* page = MapSharedPage();
  alarm(30);
  while (page->answering.load() == 0) usleep(1000);
  SpinAlone();
  uint64_t question = page->question.load();
  for (int block = 0; block < blocks; ++block) {
    int64_t best = INT64_MAX, distance = 0;
    for (int round = 0; round < kRounds; ++round) {
      const int64_t before = Tsc();
      page->question.store(++question, std::memory_order_release);
      while (page->answer.load(std::memory_order_acquire) != question) {
      }
      const int64_t after = Tsc();
      if (after - before >= best) continue;
      best = after - before;
      distance = page->answer_tsc.load(std::memory_order_relaxed) - (before + best / 2);
    }
    std::printf("%ld %ld\n", best, distance);
  }
  page->answering.store(0);
  return 0;
}

// ---- this machine's clocks ----

int64_t ClockNs(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// The tightest of a few: an emulated processor may be away for milliseconds between any two instructions.
PairedReading ReadPaired(clockid_t clock) {
  PairedReading best{.gap = INT64_MAX};
  for (int i = 0; i < 4; ++i) {
    const int64_t before = Tsc();
    const int64_t ns = ClockNs(clock);
    const int64_t gap = Tsc() - before;
    if (gap < best.gap) best = {.tsc = before + gap / 2, .gap = gap, .ns = ns};
  }
  return best;
}

ClockRecord ReadRecord(cw_clock* page) {
  ClockRecord record{.monotonic = ReadPaired(CLOCK_MONOTONIC), .realtime = ReadPaired(CLOCK_REALTIME)};
  cw_clock_time time{};
  record.error = cw_clock_convert(page, CLOCK_MONOTONIC, record.monotonic.ns, &time);
  if (record.error != 0) return record;
  record.epoch = time.epoch;
  record.timeline = time.timeline;
  record.fleet_ns = time.fleet_ns;
  record.bound_ns = (time.latest_ns - time.earliest_ns) / 2;
  record.error_est_ns = time.error_est_ns;
  return record;
}

// Wakes every `milliseconds`; a wake-up that comes too late for the next one leaves that out.
class Pace {
 public:
  Pace(double seconds, int milliseconds)
      : step_ns_(milliseconds * int64_t{1'000'000}),
        next_ns_(ClockNs(CLOCK_MONOTONIC)),
        end_ns_(next_ns_ + static_cast<int64_t>(seconds * 1e9)) {}
  bool Next() {
    next_ns_ = std::max(next_ns_ + step_ns_, ClockNs(CLOCK_MONOTONIC));
    timespec at{.tv_sec = next_ns_ / 1'000'000'000, .tv_nsec = next_ns_ % 1'000'000'000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
    return next_ns_ < end_ns_;
  }

 private:
  int64_t step_ns_, next_ns_, end_ns_;
};

int Sample(double seconds, int milliseconds, const char* out) {
  cw_clock* page = nullptr;
  if (const int error = cw_clock_open(nullptr, &page); error != 0) {
    std::fprintf(stderr, "cw_vm_clock: %s\n", cw_clock_strerror(error));
    return 1;
  }
  std::vector<ClockRecord> records;  // in memory, so that no write disturbs what is measured
  for (Pace pace(seconds, milliseconds); pace.Next();) records.push_back(ReadRecord(page));
  std::ofstream file(out, std::ios::binary);
  file.write(reinterpret_cast<const char*>(records.data()),
             static_cast<std::streamsize>(records.size() * sizeof(ClockRecord)));
  return file.flush() ? 0 : 1;
}

// ---- asking another program ----

// A program whose standard input is a socket and whose output is a terminal, because it is read line by line as it is
// written: to anything else the C library's streams give it at the end.
class Conversation {
 public:
  explicit Conversation(char** argv) {
    int ends[2], terminal = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) Die("socket");
    mkdir("/dev/pts", 0755);
    mount("devpts", "/dev/pts", "devpts", 0, nullptr);  // fails when it is there already
    if (openpty(&output_, &terminal, nullptr, nullptr, nullptr) != 0) Die("terminal");
    if (fork() == 0) {
      dup2(ends[1], 0);
      dup2(terminal, 1);
      dup2(terminal, 2);
      execvp(argv[0], argv);
      Die(argv[0]);
    }
    close(ends[1]);
    close(terminal);
    input_ = ends[0];
  }

  // Empty: no answer within a second.
  std::string Ask(const std::string& question, const char* end) {
    pending_.clear();
    if (send(input_, question.data(), question.size(), MSG_NOSIGNAL) < 0) Die("the program has ended");
    while (true) {
      const size_t found = pending_.find(end);
      if (found != std::string::npos && pending_.find('\n', found) != std::string::npos) return pending_;
      pollfd wait{.fd = output_, .events = POLLIN};
      char buffer[4096];
      if (::poll(&wait, 1, 1000) <= 0) return "";
      const ssize_t n = read(output_, buffer, sizeof buffer);
      if (n <= 0) Die("the program has ended");
      pending_.append(buffer, static_cast<size_t>(n));
    }
  }

 private:
  int input_ = -1, output_ = -1;
  std::string pending_;
};

int Poll(double seconds, int milliseconds, const char* out, const char* end, const std::string& question, char** argv) {
  Conversation conversation(argv);
  std::string all;
  for (Pace pace(seconds, milliseconds); pace.Next();) {
    const int64_t before = Tsc();
    const std::string answer = conversation.Ask(question + "\n", end);
    if (!answer.empty()) all += "@ " + std::to_string(before) + " " + std::to_string(Tsc()) + "\n" + answer;
  }
  std::ofstream file(out, std::ios::binary);
  file << all;
  return file.flush() ? 0 : 1;
}

int Main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "answer" && argc == 2) return Answer();
  if (verb == "ask" && argc == 3) return Ask(std::atoi(argv[2]));
  if (verb == "sample" && argc == 5) return Sample(std::atof(argv[2]), std::atoi(argv[3]), argv[4]);
  if (verb == "poll" && argc >= 8)
    return Poll(std::atof(argv[2]), std::atoi(argv[3]), argv[4], argv[5], argv[6], argv + 7);
  std::fprintf(stderr,
               "usage: cw_vm_clock answer | ask BLOCKS | sample SECONDS MILLISECONDS OUT |\n"
               "       poll SECONDS MILLISECONDS OUT END QUESTION PROGRAM [ARGUMENT...]\n");
  return 2;
}

}  // namespace
}  // namespace cw::vm

int main(int argc, char** argv) { return cw::vm::Main(argc, argv); }
