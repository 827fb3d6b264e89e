// SPDX-License-Identifier: Apache-2.0
// cw_vm_clock_watch SECONDS: in a machine, reads fleet time as any program does (libcwclock) beside
// CLOCK_MONOTONIC_RAW, which nobody slews, each millisecond, and prints how the two parted:
//
//   {"reads": 9876, "fleet_ppb": 312.5, "away_ns": 830, "step_ns": 410, "mono_ppb": 99871.0}
//
// fleet_ppb, mono_ppb: rate of fleet time and of CLOCK_MONOTONIC over RAW's, from the first read to the last, minus 1;
// away_ns: how far fleet time was from the straight line between the two at most; step_ns: the largest difference of
// neighbouring reads (a millisecond or two apart) from it.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "libcwclock/cwclock.h"

namespace {

constexpr int kTries = 5;              // the tightest read counts
constexpr int64_t kWidestNs = 20'000;  // an emulated processor is interrupted for longer
constexpr int64_t kNeighboursNs = 2'500'000;

int64_t Now(clockid_t id) {
  timespec t{};
  clock_gettime(id, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

struct Reading {
  int64_t raw_ns, fleet_ns, mono_ns;
};

bool Read(Reading& reading) {
  int64_t width_ns = kWidestNs;
  bool done = false;
  for (int i = 0; i < kTries; ++i) {
    cw_clock_time fleet{};
    const int64_t before_ns = Now(CLOCK_MONOTONIC_RAW);
    const int error = cw_clock_read(nullptr, &fleet);
    const int64_t after_ns = Now(CLOCK_MONOTONIC_RAW);
    const int64_t mono_ns = Now(CLOCK_MONOTONIC);
    if (error != 0 || after_ns - before_ns >= width_ns) continue;
    width_ns = after_ns - before_ns;
    reading = {before_ns + width_ns / 2, fleet.fleet_ns, mono_ns};
    done = true;
  }
  return done;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t end_ns = Now(CLOCK_MONOTONIC_RAW) + static_cast<int64_t>((argc > 1 ? std::atof(argv[1]) : 1) * 1e9);
  std::vector<Reading> readings;
  for (Reading r{}; Now(CLOCK_MONOTONIC_RAW) < end_ns;) {
    if (Read(r)) readings.push_back(r);
    usleep(1000);
  }
  if (readings.size() < 2) {
    std::fprintf(stderr, "cw_vm_clock_watch: fleet time cannot be read: %s\n",
                 cw_clock_strerror(cw_clock_get_state(nullptr)));
    return 1;
  }
  const Reading &first = readings.front(), &last = readings.back();
  const auto passed = static_cast<double>(last.raw_ns - first.raw_ns);
  const double fleet = static_cast<double>(last.fleet_ns - first.fleet_ns - last.raw_ns + first.raw_ns) / passed;
  const double mono = static_cast<double>(last.mono_ns - first.mono_ns - last.raw_ns + first.raw_ns) / passed;
  double away_ns = 0, step_ns = 0, before_ns = 0;
  int64_t before_raw_ns = first.raw_ns;
  for (const Reading& r : readings) {
    const auto since = static_cast<double>(r.raw_ns - first.raw_ns);
    const double ns = static_cast<double>(r.fleet_ns - first.fleet_ns - r.raw_ns + first.raw_ns) - fleet * since;
    away_ns = std::max(away_ns, std::abs(ns));
    if (r.raw_ns - before_raw_ns < kNeighboursNs) step_ns = std::max(step_ns, std::abs(ns - before_ns));
    before_ns = ns;
    before_raw_ns = r.raw_ns;
  }
  std::printf("{\"reads\": %zu, \"fleet_ppb\": %.1f, \"away_ns\": %.0f, \"step_ns\": %.0f, \"mono_ppb\": %.1f}\n",
              readings.size(), fleet * 1e9, away_ns, step_ns, mono * 1e9);
  return 0;
}
