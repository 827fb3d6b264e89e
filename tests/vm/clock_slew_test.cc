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
#include "tests/lab/eventually.h"
#include "tests/vm/agents.h"
#include "tests/vm/rack.h"

namespace cw::vm {
namespace {

// A tick is 10,000 µs long; one microsecond more is 100 ppm. More than NTP's daemons mostly do, because stamps of
// emulated processors are late by a millisecond now and then, and seconds must suffice.
constexpr int kPpm = 1000;
constexpr absl::Duration kPeriod = absl::Seconds(8);

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
  // Of machine 0, as machine 1 sees it.
  nlohmann::json Link() {
    auto reply = agents_->Ctl(1, "clock sources");
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? reply->at("sources").at(0).at("link") : nlohmann::json();
  }
  bool Eventually(const std::function<bool()>& done, absl::Duration limit = absl::Seconds(90)) {
    return lab::Eventually(done, limit, absl::Milliseconds(300));
  }

  struct Seen {
    double rate_ppb = 0;   // of machine 0's clock over machine 1's, as machine 1 measures it
    double slew_ppb = 0;   // as machine 0's agent tells it
    nlohmann::json fleet;  // in machine 0: what cw_vm_clock_watch printed
  };

  // A period with machine 0's clock slewed by so much.
  Seen Watch(int ppm) {
    Seen seen;
    EXPECT_TRUE(rack_->machine(0).Run(absl::StrCat("adjtimex -q -t ", 10'000 + ppm / 100)).ok());
    const nlohmann::json first = Link();
    auto watch = rack_->machine(0).Exec(absl::StrCat("cw_vm_clock_watch ", absl::ToInt64Seconds(kPeriod)),
                                        kPeriod + absl::Seconds(30));
    const nlohmann::json last = Link();
    EXPECT_TRUE(watch.ok() && watch->exit_code == 0) << watch.status() << (watch.ok() ? watch->output : "");
    if (watch.ok()) seen.fleet = nlohmann::json::parse(watch->output, nullptr, false);
    if (!first.contains("local_ns") || !last.contains("local_ns")) return seen;
    const auto change = [&](const char* name) { return last.at(name).get<int64_t>() - first.at(name).get<int64_t>(); };
    seen.rate_ppb = static_cast<double>(change("offset_ns")) * 1e9 / static_cast<double>(change("local_ns"));
    seen.slew_ppb = Tracking(0).value("slew_ppb", 0.0);
    std::printf("slewed by %5d ppm, agent says %9.3f ppm: the peer measures %9.3f ppm; fleet time %s", ppm,
                seen.slew_ppb / 1000, seen.rate_ppb / 1000, watch.ok() ? watch->output.c_str() : "?\n");
    return seen;
  }

  std::unique_ptr<Rack> rack_;
  std::unique_ptr<Agents> agents_;
};

TEST_F(ClockSlewTest, DoesNotLookLikeDrift) {
  lab::Hold(kPeriod);
  const Seen quiet = Watch(0);
  for (const int ppm : {kPpm, -kPpm}) {
    const Seen slewed = Watch(ppm);
    ASSERT_TRUE(quiet.fleet.contains("step_ns") && slewed.fleet.contains("step_ns"));
    EXPECT_NEAR(slewed.slew_ppb, ppm * 1000, 50'000) << "the machine's clock was not slewed";
    EXPECT_NEAR(slewed.rate_ppb, quiet.rate_ppb, 300'000) << "the peer took the slew for drift";
    // Were it told anew only ten times per second, in terms of a clock whose rate has changed, it would jump by 100 µs.
    EXPECT_LE(slewed.fleet.at("step_ns").get<double>(), 40'000 + 3 * quiet.fleet.at("step_ns").get<double>());
  }
  EXPECT_TRUE(rack_->machine(0).Run("adjtimex -q -t 10000").ok());
}

}  // namespace
}  // namespace cw::vm
