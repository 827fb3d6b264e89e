// SPDX-License-Identifier: Apache-2.0
//
// The spool as files with checksums, and the same as an SQLite table: what one batch costs to keep until it is
// acknowledged, and to read back after an outage. Both put events on the disk before they return.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/fleet/store/sqlite/database.h"
#include "userspace/lab/bench_result.h"
#include "userspace/uplink/spool.h"

namespace cw::bench {
namespace {

constexpr uint64_t kBatches = 3600;  // ten hours at 10 s, or an hour of a busy host
constexpr size_t kDetailBytes = 3300, kEventBytes = 400;

double MicrosecondsOf(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

bool Event(uint64_t sequence) { return sequence % 10 == 0; }
std::string Record(uint64_t sequence) { return std::string(Event(sequence) ? kEventBytes : kDetailBytes, 'r'); }

struct Times {
  std::vector<double> event_us, detail_us, read_us, acknowledge_us;
  void Kept(uint64_t sequence, double us) { (Event(sequence) ? event_us : detail_us).push_back(us); }
};

Times Files(const std::string& folder) {
  Times times;
  auto spool = uplink::Spool::Open(folder, {}, absl::Now()).value();
  for (uint64_t s = 1; s <= kBatches; ++s) {
    const std::string record = Record(s);
    times.Kept(s, MicrosecondsOf([&] {
                 spool->Append(Event(s) ? uplink::Kind::kEvent : uplink::Kind::kDetail, 1, s, record, absl::Now())
                     .IgnoreError();
               }));
  }
  uint64_t position = 0;
  for (bool more = true; more;) {
    std::vector<uplink::SpoolRecord> records;
    const double us = MicrosecondsOf([&] { records = spool->After(position, 256 << 10).value(); });
    more = !records.empty();
    if (!more) break;
    times.read_us.push_back(us / static_cast<double>(records.size()));
    position = records.back().head.position;
    const uint64_t through = records.back().head.sequence;
    times.acknowledge_us.push_back(MicrosecondsOf([&] { spool->Acknowledge(1, through).IgnoreError(); }) /
                                   static_cast<double>(records.size()));
  }
  return times;
}

Times Sqlite(const std::string& folder) {
  Times times;
  auto db = fleet::Database::Open(folder + "/spool.db").value();
  db->Exec("CREATE TABLE spool(position INTEGER PRIMARY KEY, kind, run, sequence, time_ns, record BLOB)").IgnoreError();
  for (uint64_t s = 1; s <= kBatches; ++s) {
    const std::string record = Record(s);
    times.Kept(s, MicrosecondsOf([&] {
                 db->Exec(Event(s) ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL").IgnoreError();
                 db->Use("INSERT INTO spool VALUES (?, ?, 1, ?, 5, ?)")
                     .Uint(s)
                     .Int(Event(s))
                     .Uint(s)
                     .Blob(record)
                     .Run()
                     .IgnoreError();
               }));
  }
  for (uint64_t s = 1; s <= kBatches; s += 80) {
    size_t bytes = 0;
    times.read_us.push_back(MicrosecondsOf([&] {
                              auto& q = db->Use("SELECT record FROM spool WHERE position >= ? LIMIT 80").Uint(s);
                              while (q.Step().value_or(false)) bytes += q.ColumnBytes(0).size();
                            }) /
                            80);
    times.acknowledge_us.push_back(
        MicrosecondsOf(
            [&] { db->Use("DELETE FROM spool WHERE run = 1 AND position < ?").Uint(s + 80).Run().IgnoreError(); }) /
        80);
  }
  return times;
}

void Add(Report& report, const std::string& system, const Times& times) {
  report.Add("keep", system, "event", "us", times.event_us);
  report.Add("keep", system, "detail", "us", times.detail_us);
  report.Add("refill", system, "read", "us", times.read_us);
  report.Add("refill", system, "acknowledge", "us", times.acknowledge_us);
}

int Run(const std::string& out) {
  const std::string folder = out + ".spool";
  std::filesystem::remove_all(folder);
  for (const char* part : {"/files", "/sqlite"}) std::filesystem::create_directories(folder + part);
  Report report("spool");
  Add(report, "files", Files(folder + "/files"));
  Add(report, "sqlite", Sqlite(folder + "/sqlite"));
  std::filesystem::remove_all(folder);
  std::printf("%s", report.Table().c_str());
  return report.Write(out).ok() ? 0 : 1;
}

}  // namespace
}  // namespace cw::bench

int main(int argc, char** argv) { return cw::bench::Run(cw::bench::OutPath(argc, argv, "build/bench/spool.json")); }
