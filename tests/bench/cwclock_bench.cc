// SPDX-License-Identifier: Apache-2.0
//
// What a call of libcwclock costs, beside the kernel's own clock: the shared library, as foreign programs call it, with
// an agent's writer at work on the page. A sample is the mean of a thousand calls.
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "libcwclock/cwclock.h"
#include "userspace/lab/bench_result.h"
#include "userspace/publish/publisher.h"

namespace cw::bench {
namespace {

constexpr int kSamples = 2000;
constexpr int kCalls = 1000;

template <typename F>
std::vector<double> Measure(F call) {
  std::vector<double> samples;
  for (int i = 0; i < kSamples; ++i) {
    const int64_t start_ns = publish::ReadKernelClock(CLOCK_MONOTONIC);
    for (int k = 0; k < kCalls; ++k) call();
    samples.push_back(static_cast<double>(publish::ReadKernelClock(CLOCK_MONOTONIC) - start_ns) / kCalls);
  }
  return samples;
}

// Publishes ten times per second, as the agent does, until it goes out of scope.
class Writer {
 public:
  Writer(const std::string& path, clockid_t base) {
    publish::PublisherOptions options;
    options.page.path = path;
    options.local.base = base;
    auto publisher = publish::Publisher::Create(std::move(options));
    if (!publisher.ok()) {
      std::fprintf(stderr, "%s\n", publisher.status().ToString().c_str());
      std::exit(1);
    }
    publisher_ = *std::move(publisher);
    Publish(base);
    thread_ = std::thread([this, base] {
      while (!done_) {
        usleep(100'000);
        Publish(base);
      }
    });
  }
  ~Writer() {
    done_ = true;
    thread_.join();
  }

 private:
  void Publish(clockid_t base) {
    publish::Publication what;
    what.time.state = sync::SyncState::kSynchronised;
    what.time.anchor_ns = publish::ReadKernelClock(base);
    what.time.slope_ppb = 12'345;
    what.time.bound_ns = 2000;
    if (!publisher_->Publish(what).ok()) std::exit(1);
  }
  std::unique_ptr<publish::Publisher> publisher_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

int errors = 0;

void MeasurePage(const std::string& path, const std::string& base, Report& report) {
  cw_clock* clock = nullptr;
  cw_clock_time t;
  int64_t earliest = 0, latest = 0;
  setenv(CW_CLOCK_ENVIRONMENT, path.c_str(), 1);
  if (cw_clock_open(path.c_str(), &clock) != 0) std::exit(1);
  const auto add = [&](const std::string& name, auto call) {
    report.Add(name + base, "cwfabric", "cost", "ns", Measure(call));
  };
  if (base.empty()) add("now", [&] { errors += cw_clock_now(&earliest, &latest) != 0; });
  add("read", [&] { errors += cw_clock_read(clock, &t) != 0; });
  const auto convert = [&](const std::string& name, clockid_t id) {
    const int64_t stamp = publish::ReadKernelClock(id);
    add("convert_" + name, [&, id, stamp] { errors += cw_clock_convert(clock, id, stamp, &t) != 0; });
  };
  convert("monotonic", CLOCK_MONOTONIC);
  convert("raw", CLOCK_MONOTONIC_RAW);
  convert("realtime", CLOCK_REALTIME);
  cw_clock_close(clock);
}

int Run(const std::string& out) {
  std::string folder = std::filesystem::exists("/dev/shm") ? "/dev/shm/cwclock-XXXXXX" : "/tmp/cwclock-XXXXXX";
  folder = mkdtemp(folder.data());
  Report report("cwclock");
  for (const auto& [name, id] : {std::pair{"now", CLOCK_MONOTONIC}, std::pair{"now_raw", CLOCK_MONOTONIC_RAW}}) {
    timespec t{};
    const clockid_t clock = id;
    report.Add(name, "clock_gettime", "cost", "ns", Measure([&] { clock_gettime(clock, &t); }));
  }
  {
    const Writer writer(folder + "/monotonic", CLOCK_MONOTONIC);
    MeasurePage(folder + "/monotonic", "", report);
  }
  {
    const Writer writer(folder + "/raw", CLOCK_MONOTONIC_RAW);
    MeasurePage(folder + "/raw", "_raw_page", report);
  }
  std::filesystem::remove_all(folder);
  std::printf("%s", report.Table().c_str());
  if (errors != 0) {
    std::fprintf(stderr, "%d calls failed\n", errors);
    return 1;
  }
  const absl::Status written = report.Write(out);
  if (!written.ok()) std::fprintf(stderr, "%s\n", written.ToString().c_str());
  return written.ok() ? 0 : 1;
}

}  // namespace
}  // namespace cw::bench

int main(int argc, char** argv) { return cw::bench::Run(cw::bench::OutPath(argc, argv, "build/bench/cwclock.json")); }
