// SPDX-License-Identifier: Apache-2.0
//
// Hosts with hidden clocks on the lab's fabric, for tests that hold their fleet times against the truth that the lab
// knows. One thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "tests/lab/evidence.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {

class FleetRig : public ::testing::Test {
 protected:
  // The rest of the specification is the test's: clocks above all.
  static TestbedSpec Spec(const std::string& lab, int hosts) {
    TestbedSpec spec;
    spec.fabric = {.lab = lab, .hosts_per_leaf = hosts / 2, .link_mbps = 400, .ecmp_seed = 1};
    spec.mode = "observe";
    spec.agent_binary = CWLAB_AGENTD_BINARY;
    spec.all_hosts = true;
    spec.idle_interval = absl::Milliseconds(20);
    return spec;
  }

  void Up(const TestbedSpec& spec) {
    absl::StatusOr<std::unique_ptr<Testbed>> up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed = std::move(*up);
    for (int host = 0; host < hosts(); ++host) {
      absl::StatusOr<cw_lab_clock> clock = ReadHiddenClock(testbed->fabric(), host);
      ASSERT_TRUE(clock.ok()) << clock.status();
      truth.push_back(*clock);
    }
  }

  int hosts() const { return testbed->fabric().hosts(); }

  api::v1::ClockReply ClockOf(int host) {
    absl::StatusOr<api::v1::ClockReply> reply = testbed->agent(host).Clock();
    EXPECT_TRUE(reply.ok()) << "h" << host << ": " << reply.status();
    return reply.ok() ? *reply : api::v1::ClockReply();
  }

  static bool IsSynchronised(const api::v1::ClockTracking& tracking) {
    return tracking.state() == api::v1::ClockTracking::STATE_SYNCHRONISED;
  }

  int64_t LocalAt(int host, int64_t true_ns) const {
    return true_ns + HiddenClockError(truth[static_cast<size_t>(host)], static_cast<uint64_t>(true_ns));
  }

  // Fleet time of a host at a true time, by the line that it tells; less true time.
  double FleetAt(const api::v1::ClockTracking& t, int host, int64_t true_ns) const {
    const int64_t local_ns = LocalAt(host, true_ns);
    const auto since_ns = static_cast<double>(local_ns - t.line_ns());
    return static_cast<double>(local_ns - true_ns + t.line_offset_ns()) + t.rate_ppb() * 1e-9 * since_ns;
  }

  std::string Why() {
    std::vector<std::string> lines;
    for (int host = 0; host < hosts(); ++host) {
      const api::v1::ClockReply reply = ClockOf(host);
      lines.push_back(reply.tracking().ShortDebugString());
      for (const api::v1::ClockSource& source : reply.sources().sources())
        lines.push_back(absl::StrCat("  ", source.letter(), " ", source.ShortDebugString()));
      for (const api::v1::ClockNic& nic : reply.nics()) lines.push_back(absl::StrCat("  ", nic.ShortDebugString()));
    }
    return absl::StrJoin(lines, "\n");
  }

  struct Judged {
    std::vector<double> errors_ns;  // of any two synchronised hosts, sorted
    double worst_of_bound = 0;
    int outside_bound = 0, outside_error_est = 0;

    double Quantile(double p) const {
      return errors_ns.empty() ? NAN : errors_ns[static_cast<size_t>(p * static_cast<double>(errors_ns.size() - 1))];
    }
    std::string Text() const {
      return absl::StrCat("any pair, ", errors_ns.size(), " samples: p50 ", std::lround(Quantile(0.5)), " ns, p99 ",
                          std::lround(Quantile(0.99)), " ns, max ", std::lround(Quantile(1)), " ns; at most ",
                          std::lround(100 * worst_of_bound), " % of the bound; ", outside_error_est,
                          " outside error_est");
    }
  };

  // The clocks were compared for so many more seconds, and the lines told anew from that: what was not known yet when
  // the hosts first agreed has faded.
  bool AfterRounds(int seconds) { return AfterLooks(*testbed, seconds); }

  // All hosts' lines at once, compared at one true time.
  Judged Judge(int rounds) {
    Judged judged;
    for (int round = 0; round < rounds; ++round, absl::SleepFor(absl::Milliseconds(20))) {
      std::vector<api::v1::ClockTracking> lines;
      for (int host = 0; host < hosts(); ++host) lines.push_back(ClockOf(host).tracking());
      const int64_t at_ns = MonotonicNs();
      for (int i = 0; i < hosts(); ++i) {
        for (int j = 0; j < i; ++j) {
          const auto &a = lines[static_cast<size_t>(i)], &b = lines[static_cast<size_t>(j)];
          if (!IsSynchronised(a) || !IsSynchronised(b)) continue;
          const double error_ns = std::abs(FleetAt(a, i, at_ns) - FleetAt(b, j, at_ns));
          // A bound is told of the reference; between two hosts both count.
          const double bound_ns = a.bound_ns() + b.bound_ns();
          judged.outside_bound += error_ns > bound_ns;
          judged.outside_error_est += error_ns > a.error_est_ns() + b.error_est_ns();
          judged.worst_of_bound = std::max(judged.worst_of_bound, error_ns / bound_ns);
          judged.errors_ns.push_back(error_ns);
        }
      }
    }
    std::sort(judged.errors_ns.begin(), judged.errors_ns.end());
    return judged;
  }

  std::unique_ptr<Testbed> testbed;
  std::vector<cw_lab_clock> truth;  // by host
};

}  // namespace cw::lab
