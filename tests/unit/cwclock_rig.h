// SPDX-License-Identifier: Apache-2.0
//
// A folder of its own with a clock page in it, and lines for it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "libcwclock/cwclock.h"
#include "userspace/publish/kernel_clocks.h"
#include "userspace/publish/page_writer.h"

namespace cw::publish {

inline constexpr int64_t kMs = 1'000'000;
inline constexpr int64_t kSecond = 1'000'000'000;

class TempFolder {
 public:
  TempFolder() {
    std::string name = std::filesystem::temp_directory_path() / "cwclock-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A synchronised line over CLOCK_MONOTONIC: fleet = monotonic + offset_ns, good for a minute.
inline cw_clock_line GoodLine(int64_t offset_ns = 5 * kSecond) {
  RelationTracker clocks;
  const ClockRelations& r = clocks.Update();
  cw_clock_line l{};
  l.base_ns = l.mono_ns = r.mono_ns;
  l.fleet_ns = l.base_ns + offset_ns;
  l.suspend_ns = r.suspend_ns;
  l.fresh_until_ns = l.base_ns + 60 * kSecond;
  l.void_after_ns = l.base_ns + 120 * kSecond;
  l.bound_ns = 1000;
  l.error_est_ns = 50;
  l.state = CW_CLOCK_SYNCHRONISED;
  l.epoch = 1;
  l.tai_bound_ns = -1;
  l.since_ns = INT64_MIN;
  l.raw_ns = r.raw_ns;
  l.raw_error_ns = r.raw_error_ns;
  l.slew_q32 = 2'147'484;  // 500 ppm
  l.realtime_low_ns = r.realtime_low_ns;
  l.realtime_high_ns = r.realtime_high_ns;
  l.realtime_since_ns = INT64_MIN;
  return l;
}

inline std::unique_ptr<PageWriter> MakePage(const std::string& path, const cw_clock_line& line,
                                            clockid_t base = CLOCK_MONOTONIC) {
  auto writer = PageWriter::Create({.path = path, .base_clock = base});
  EXPECT_TRUE(writer.ok()) << writer.status();
  if (!writer.ok()) std::abort();
  const absl::Status written = (*writer)->Write(line);
  EXPECT_TRUE(written.ok()) << written;
  return *std::move(writer);
}

class Handle {
 public:
  explicit Handle(const std::string& path) : error_(cw_clock_open(path.c_str(), &clock_)) {}
  ~Handle() { cw_clock_close(clock_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  int error() const { return error_; }
  cw_clock* get() const { return clock_; }
  int Read(cw_clock_time& t) const { return cw_clock_read(clock_, &t); }
  int Error() const {
    cw_clock_time t;
    return cw_clock_read(clock_, &t);
  }

 private:
  cw_clock* clock_ = nullptr;
  int error_;
};

inline std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace cw::publish
