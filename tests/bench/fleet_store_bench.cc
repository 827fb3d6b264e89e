// SPDX-License-Identifier: Apache-2.0
//
// The fleet's store on one machine: what a host's batch costs to keep (append with its commit, then the ladder), what
// it takes on disk, and how fast the questions of people are answered. Hosts of 160 paths each without traffic, ten
// seconds a batch, put in 500 at a time as ingest does. One thread. BENCH_HOSTS (default 200), BENCH_MINUTES of fleet
// time (30).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/must.h"
#include "userspace/fleet/store/sqlite/sqlite_store.h"
#include "userspace/lab/bench_result.h"

namespace cw::bench {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kBegin = 1'800'000'000 * kSecondNs;
constexpr int kPaths = 160, kTogether = 500;

double SecondsOf(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

fleet::HostBatch CalmBatch(int host, uint64_t sequence, int64_t time_ns, std::mt19937_64& random) {
  fleet::HostBatch batch{.host = absl::StrCat("host", host), .run = 1, .sequence = sequence};
  for (uint32_t p = 0; p < kPaths; ++p) {
    fleet::PathSample s{
        .key = {Addr::FromV4(0x0a000000 + static_cast<uint32_t>(host)), Addr::FromV4(0x0b000000 + p), 0xc000}};
    s.time_ns = time_ns;
    s.hops = p + 1;
    s.base_ns = 5000 + p * 13;
    s.sent = 100;
    s.queue.Add(0, 92 + static_cast<uint32_t>(random() % 7));
    for (uint32_t extra = random() % 3; extra > 0; --extra) s.queue.Add(256 + random() % 4000);
    batch.paths.push_back(std::move(s));
  }
  return batch;
}

struct Run {
  int hosts, minutes;
  std::string file;
  std::unique_ptr<fleet::Store> store;
  double append_s = 0, compact_s = 0;
  uint64_t batches = 0;

  void Fill() {
    std::mt19937_64 random(1);
    for (int tick = 1; tick <= minutes * 6; ++tick) {
      const int64_t time_ns = kBegin + tick * 10 * kSecondNs;
      for (int first = 0; first < hosts; first += kTogether) {
        std::vector<fleet::HostBatch> together;
        for (int h = first; h < std::min(hosts, first + kTogether); ++h) {
          together.push_back(CalmBatch(h, static_cast<uint64_t>(tick), time_ns, random));
        }
        append_s += SecondsOf([&] { Must(store->Append(together).status()); });
        batches += together.size();
      }
      compact_s += SecondsOf([&] { Ladder(time_ns); });
    }
    compact_s += SecondsOf([&] { Ladder(kBegin + (minutes * 60 + 7200) * kSecondNs); });
  }
  void Ladder(int64_t now_ns) {
    for (bool more = true; more;) {
      const absl::StatusOr<bool> went_on = store->Compact(now_ns);
      Must(went_on.status());
      more = *went_on;
    }
  }
};

void Ask(Run& run, Report& report) {
  std::vector<double> latest_ms, day_ms;
  const int64_t end = kBegin + run.minutes * 60 * kSecondNs;
  for (int i = 0; i < 200; ++i) {
    const std::string host = absl::StrCat("host", i % run.hosts);
    latest_ms.push_back(
        1e3 * SecondsOf([&] { Must(run.store->LatestAt(host, end - i * kSecondNs, absl::Minutes(1)).status()); }));
    const fleet::PathKey key = {Addr::FromV4(0x0a000000 + static_cast<uint32_t>(i % run.hosts)),
                                Addr::FromV4(0x0b000003), 0xc000};
    day_ms.push_back(1e3 * SecondsOf([&] {
                       Must(run.store->Range({.host = host, .from_ns = kBegin, .to_ns = end, .path = key}).status());
                     }));
  }
  report.Add("ask", "sqlite", "host_at_a_time", "ms", latest_ms);
  report.Add("ask", "sqlite", "one_path_whole_time", "ms", day_ms);
}

int Main(const std::string& out) {
  const std::string folder = out + ".store";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  Run run{.hosts = FromEnvironment("BENCH_HOSTS", 200),
          .minutes = FromEnvironment("BENCH_MINUTES", 30),
          .file = folder + "/fleet.db"};
  absl::StatusOr<std::unique_ptr<fleet::Store>> store = fleet::OpenSqliteStore(run.file);
  Must(store.status());
  run.store = *std::move(store);
  run.Fill();
  Report report("fleet_store");
  const double per_batch_us = 1e6 * (run.append_s + run.compact_s) / static_cast<double>(run.batches);
  report.Add("keep", "sqlite", "append", "us", {1e6 * run.append_s / static_cast<double>(run.batches)});
  report.Add("keep", "sqlite", "ladder", "us", {1e6 * run.compact_s / static_cast<double>(run.batches)});
  report.Add("keep", "sqlite", "hosts_per_core", "count", {10e6 / per_batch_us});
  const auto bytes = static_cast<double>(std::filesystem::file_size(run.file));
  report.Add("keep", "sqlite", "disk_per_path_and_sample", "bytes",
             {bytes / static_cast<double>(run.batches) / kPaths});
  Ask(run, report);
  std::printf("%s", report.Table().c_str());
  run.store.reset();
  std::filesystem::remove_all(folder);
  return report.Write(out).ok() ? 0 : 1;
}

}  // namespace
}  // namespace cw::bench

int main(int argc, char** argv) {
  try {
    return cw::bench::Main(cw::bench::OutPath(argc, argv, "build/bench/fleet_store.json"));
  } catch (const cw::bench::Failed& why) {
    std::fprintf(stderr, "%s\n", why.what());
    return 1;
  }
}
