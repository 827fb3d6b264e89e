// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/jobs/acts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace cw::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kOneSecondNs = 1'000'000'000, kNowNs = 1'700'000'000 * kOneSecondNs;

HostEvent Move(const std::string& host, const std::string& flow, const std::string& port) {
  return {.host = host,
          .type = "move",
          .peer = "h9",
          .flow = flow,
          .time_ns = kNowNs,
          .evidence = {{"udp_port_before", port}, {"udp_port", "50001"}}};
}

class Acts : public ::testing::Test {
 protected:
  bool Look() {
    return book_.Look(finding_, [](const FlowAct& act) { return act.port_before == 50000; });
  }
  std::vector<std::string> Did() const { return book_.Did(finding_.id); }
  const Finding finding_{.id = 7, .start_ns = kNowNs};
  ActBook book_;
};

TEST_F(Acts, FlowsThatLeftItAreCountedOnceAndThoseThatWentBack) {
  for (const char* host : {"h1", "h2"}) {
    for (const char* flow : {"a", "b"}) book_.Take(Move(host, flow, "50000"));
  }
  book_.Take(Move("h1", "a", "50000"));
  book_.Take(Move("h3", "c", "50007"));  // left another way
  EXPECT_TRUE(Look());
  EXPECT_THAT(Did(), ElementsAre("4 flows of 2 hosts left it, 22:13:20.000 to 22:13:20.000 UTC"));
  EXPECT_FALSE(Look()) << "nothing is new";
  HostEvent back{.host = "h2", .type = "return", .peer = "h9", .flow = "b", .time_ns = kNowNs + kOneSecondNs};
  book_.Take(back);
  back.flow = "a";
  back.evidence = {{"taken_back", "1"}};  // it stays where it is
  book_.Take(back);
  EXPECT_TRUE(Look());
  EXPECT_THAT(Did(), ElementsAre(HasSubstr("4 flows of 2 hosts left it"), "1 flow went back"));
}

TEST_F(Acts, InModeObserveItSaysWhatWouldHaveBeenDone) {
  HostEvent dry = Move("h1", "a", "50000");
  dry.dry = true;
  book_.Take(dry);
  EXPECT_TRUE(Look());
  EXPECT_THAT(Did(), ElementsAre("1 flow of 1 host would have left it, but the mode is observe"));
}

TEST_F(Acts, WhatWasRefusedOrIsOldOrOdd) {
  HostEvent refused = Move("h1", "a", "50000");
  refused.alert = true;
  book_.Take(refused);
  HostEvent old = Move("h1", "b", "50000");
  old.time_ns -= absl::ToInt64Nanoseconds(2 * ActBook::kBefore);
  book_.Take(old);
  book_.Take(Move("h1", "c", "no port"));
  book_.Take(Move("h1", "d", "70000"));
  book_.Take(Move("h1", "", "50000"));
  EXPECT_FALSE(Look());
  EXPECT_THAT(Did(), IsEmpty());
}

TEST_F(Acts, AHostFillsNothingAndWhatIsOldGoes) {
  for (size_t i = 0; i < 2 * ActBook::kMostOfHost; ++i) book_.Take(Move("h1", absl::StrCat(i), "50000"));
  book_.Take(Move("h2", "a", "50000"));
  Look();
  EXPECT_THAT(Did(), ElementsAre(HasSubstr(absl::StrCat(ActBook::kMostOfHost + 1, " flows of 2 hosts"))));
  book_.Age(kNowNs + absl::ToInt64Nanoseconds(ActBook::kLately) + 1);
  const Finding other{.id = 8, .start_ns = kNowNs};
  EXPECT_FALSE(book_.Look(other, [](const FlowAct&) { return true; }));
  book_.Forget({8});
  EXPECT_THAT(Did(), IsEmpty());
}

}  // namespace
}  // namespace cw::fleet
