// SPDX-License-Identifier: Apache-2.0
//
// What tests of the fleet's store tell it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/fleet/store/records.h"

namespace cw::fleet {

namespace fs = std::filesystem;

inline constexpr int64_t kSecond = 1'000'000'000;
inline constexpr int64_t kStart = 1'800'000'000 * kSecond;  // a full hour

inline PathKey Key(int number) {
  return {Addr::FromV4(0x0a000001), Addr::FromV4(0x0a010000 + static_cast<uint32_t>(number)), 0xc000, number % 2 == 1};
}

inline PathSample Sample(int path, int64_t time_ns, uint64_t queue_ns = 100) {
  PathSample s{.key = Key(path), .time_ns = time_ns, .hops = 9, .base_ns = 5000, .sent = 100, .lost = 1};
  s.queue.Add(queue_ns, 99);
  return s;
}

inline HostBatch Batch(uint64_t sequence, int64_t time_ns, int paths = 2, const std::string& host = "a") {
  HostBatch batch{.host = host, .run = 7, .sequence = sequence};
  for (int p = 0; p < paths; ++p) batch.paths.push_back(Sample(p, time_ns));
  return batch;
}

inline StoredEvent Event(uint64_t seq, int64_t time_ns, const std::string& type = "path",
                         const std::string& host = "a") {
  return {.host = host,
          .run = 7,
          .seq = seq,
          .time_ns = time_ns,
          .bound_ns = 5,
          .type = type,
          .severity = 3,
          .payload = absl::StrCat("p", seq)};
}

inline HostBatch EventBatch(uint64_t sequence, std::vector<StoredEvent> events) {
  HostBatch batch{.host = events.at(0).host, .run = 7, .sequence = sequence};
  batch.events = std::move(events);
  return batch;
}

// Ten seconds that end then: two flows of a job's rank, of which one changes its path each minute.
inline WorkSample Work(int64_t time_ns) {
  WorkSample work{.from_ns = time_ns - 10 * kSecond, .time_ns = time_ns, .other_flows = 2, .other_bytes = 5};
  for (uint32_t f = 0; f < 2; ++f) {
    FlowSample flow{.name = {.local = Addr::FromV4(0x0a000001),
                             .remote = Addr::FromV4(0x0a000100 + f),
                             .qpn = 7 + f,
                             .peer_qpn = 8,
                             .pid = 77,
                             .peer = "b",
                             .process = "python3",
                             .label = "llm"},
                    .udp_port = 0xc000,
                    .hops = f == 0 ? 9 : static_cast<uint64_t>(time_ns / (60 * kSecond)),
                    .bytes = 1000,
                    .retransmits = 1,
                    .ce = 2,
                    .cnps = 3};
    flow.delay.Add(4000 + 100 * f, 10);
    work.flows.push_back(std::move(flow));
  }
  work.jobs = {{"aa/77/0", absl::StrCat("word at ", time_ns)}};
  return work;
}

inline HostBatch WorkBatchOf(uint64_t sequence, WorkSample work) {
  HostBatch batch{.host = "a", .run = 7, .sequence = sequence};
  batch.work = std::move(work);
  return batch;
}

// A folder for a store of SQLite.
struct SqliteStore : ::testing::Test {
  SqliteStore() {
    std::string name = (fs::temp_directory_path() / "cw_sqlite_XXXXXX").string();
    folder = mkdtemp(name.data());
  }
  ~SqliteStore() override { fs::remove_all(folder); }
  std::string folder;
};

}  // namespace cw::fleet
