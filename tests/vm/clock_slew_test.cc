// SPDX-License-Identifier: Apache-2.0
// An NTP client slews CLOCK_MONOTONIC of a machine while its agent talks to another machine's: that must not look like
// drift, neither here nor there, and fleet time goes on as if nothing had happened.
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/vm/agents.h"
#include "tests/vm/rack.h"

namespace cw::vm {
namespace {

// A tick is 10,000 µs long; one microsecond more is 100 ppm.
constexpr int kPpm = 300;
std::string Slew(int ppm) { return absl::StrCat("adjtimex -q -t ", 10'000 + ppm / 100); }

class ClockSlewTest : public testing::Test {
 protected:
  void SetUp() override {
    RackOptions options;
    options.lab = "vmslew";
    options.log_dir = CW_VM_LOG_DIR "/slew";
    options.image.files = AgentFiles(CW_AGENTD, CW_CTL);
    options.image.files.emplace_back(CW_CLOCK_WATCH, "/usr/bin/cw_vm_clock_watch");
    auto rack = Rack::Up(options);
    if (absl::IsUnavailable(rack.status())) GTEST_SKIP() << rack.status().message();
    ASSERT_TRUE(rack.ok()) << rack.status();
    rack_ = *std::move(rack);
    auto agents = Agents::Start(*rack_, AgentConfig());
    ASSERT_TRUE(agents.ok()) << agents.status();
    agents_ = *std::move(agents);
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(Eventually([&] { return Tracking(i).value("state", "") == "synchronised"; }))
          << Tracking(i).dump() << agents_->agent(i).output();
    }
  }

  nlohmann::json Tracking(int i) {
    auto reply = agents_->Ctl(i, "clock tracking");
    return reply.ok() ? *reply : nlohmann::json();
  }
  // Of the other machine's local clock over machine i's, as the link has it.
  double LinkPpb(int i) {
    auto reply = agents_->Ctl(i, "clock sources");
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? reply->at("sources").at(0).at("link").at("slope_ppb").get<double>() : 0;
  }
  bool Eventually(const std::function<bool()>& done, absl::Duration limit = absl::Seconds(90)) {
    for (absl::Time end = absl::Now() + limit; absl::Now() < end; absl::SleepFor(absl::Milliseconds(300))) {
      if (done()) return true;
    }
    return false;
  }

  struct Seen {
    std::vector<nlohmann::json> fleet;  // by machine: what cw_vm_clock_watch printed
    double link_off_ppb = 0;            // the largest difference of the link's rate from the usual one, by machine 1
    double slew_ppb = 0;                // the largest that machine 0 told
  };

  // Fleet time in both machines for eight seconds, while machine 0 is slewed after two and, the other way, after five.
  Seen Watch(int ppm, double usual_ppb) {
    Seen seen;
    std::vector<std::unique_ptr<Command>> watches;
    for (int i = 0; i < 2; ++i) {
      auto watch = rack_->machine(i).Start("cw_vm_clock_watch 8");
      EXPECT_TRUE(watch.ok()) << watch.status();
      if (!watch.ok()) return seen;
      watches.push_back(*std::move(watch));
    }
    const absl::Time start = absl::Now();
    for (const auto& [at_s, to_ppm] : {std::pair{2, ppm}, std::pair{5, -ppm}, std::pair{8, 0}}) {
      while (absl::Now() < start + absl::Seconds(at_s)) {
        seen.link_off_ppb = std::max(seen.link_off_ppb, std::abs(LinkPpb(1) - usual_ppb));
        seen.slew_ppb = std::max(seen.slew_ppb, std::abs(Tracking(0).value("slew_ppb", 0.0)));
        absl::SleepFor(absl::Milliseconds(100));
      }
      if (ppm != 0) {
        EXPECT_TRUE(rack_->machine(0).Run(Slew(to_ppm)).ok());
      }
    }
    for (size_t i = 0; i < watches.size(); ++i) {
      auto result = watches[i]->Wait(absl::Seconds(30));
      EXPECT_TRUE(result.ok()) << result.status();
      if (!result.ok()) return seen;
      EXPECT_EQ(result->exit_code, 0) << result->output;
      if (result->exit_code != 0) return seen;
      seen.fleet.push_back(nlohmann::json::parse(result->output, nullptr, false));
      std::printf("machine %zu: %s", i, result->output.c_str());
    }
    std::printf("slewed by %.1f ppm; link's rate off by %.1f ppm at most\n", seen.slew_ppb / 1000,
                seen.link_off_ppb / 1000);
    return seen;
  }

  std::unique_ptr<Rack> rack_;
  std::unique_ptr<Agents> agents_;
};

TEST_F(ClockSlewTest, DoesNotLookLikeDrift) {
  absl::SleepFor(absl::Seconds(5));
  const double usual_ppb = LinkPpb(1);
  const Seen quiet = Watch(0, usual_ppb);
  const Seen slewed = Watch(kPpm, usual_ppb);
  ASSERT_EQ(quiet.fleet.size(), 2u);
  ASSERT_EQ(slewed.fleet.size(), 2u);
  EXPECT_NEAR(slewed.slew_ppb, kPpm * 1000, 50'000) << "the machine's clock was not slewed";
  // Followed, it would be off by 300 ppm twice. Emulated processors make noise of their own.
  EXPECT_LE(slewed.link_off_ppb, 60'000 + 2 * quiet.link_off_ppb);
  for (size_t i = 0; i < 2; ++i) {
    const double before_ns = quiet.fleet[i].at("away_ns"), now_ns = slewed.fleet[i].at("away_ns");
    EXPECT_LE(now_ns, 100'000 + 3 * before_ns) << "machine " << i << ": of 900,000 by which it was slewed";
  }
}

}  // namespace
}  // namespace cw::vm
