// SPDX-License-Identifier: Apache-2.0
// May a host take a place in a job?
#include "userspace/fleet/jobs/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
using ::testing::HasSubstr;

Addr Nic(int host, int nic) { return Addr::FromV4(0x0a000000 + static_cast<uint32_t>(host * 16 + nic)); }

// h0, h1 and h2 are the job's, h2 leaves; h9 would come. Two NICs each, on rails 0 and 1.
class FitTest : public ::testing::Test {
 protected:
  FitTest() {
    question_.host = Host(9);
    question_.job = {Host(0), Host(1)};
    question_.instead_of = "h2";
    for (const auto& [a, b] : {std::pair{0, 1}, {9, 0}, {9, 1}}) {
      Way(a, b, 9000);
      Way(b, a, 9000);
    }
    for (int other : {0, 1, 9}) Way(2, other, 500'000);  // what leaves is why it leaves
  }
  FitHost Host(int number) {
    FitHost host{absl::StrCat("h", number), true, true, true, {}};
    for (int nic = 0; nic < 2; ++nic) {
      host.nics.push_back(Nic(number, nic));
      topology_.leaf_of[Nic(number, nic)] = nic;
    }
    return host;
  }
  FitPath& Way(int from, int to, double p99_ns) {
    question_.paths.push_back(
        {.from = absl::StrCat("h", from), .to = absl::StrCat("h", to), .sent = 1000, .p99_ns = p99_ns, .switches = 3});
    return question_.paths.back();
  }
  pb::FleetFitReply Judge() { return JudgeFit(question_, findings_, topology_); }
  // Of one check; the others are yes.
  std::string TheOnlyOther(const std::string& what) {
    const pb::FleetFitReply reply = Judge();
    std::string text;
    for (const pb::FleetFitCheck& check : reply.checks()) {
      if (check.what() == what) {
        text = check.answer() + ": " + check.text();
      } else {
        EXPECT_EQ(check.answer(), "yes") << check.what() << ": " << check.text();
      }
    }
    EXPECT_EQ(text.rfind(reply.answer(), 0), 0u) << reply.answer();
    return text;
  }

  FitQuestion question_;
  std::vector<Finding> findings_;
  Topology topology_{.switches = {{.name = "leaf0", .rail = "0"}, {.name = "leaf1", .rail = "1"}}};
};

TEST_F(FitTest, WhatIsLikeTheJobsHostsFits) {
  const pb::FleetFitReply reply = Judge();
  EXPECT_EQ(reply.answer(), "yes");
  EXPECT_EQ(reply.checks_size(), 7);
  for (const pb::FleetFitCheck& check : reply.checks())
    EXPECT_EQ(check.answer(), "yes") << check.what() << check.text();
}

TEST_F(FitTest, WhoIsSilentDoesNot) {
  question_.host.connected = false;
  EXPECT_THAT(TheOnlyOther("agent"), HasSubstr("no: its agent is not connected"));
}

TEST_F(FitTest, FewerNicsOrAnotherRailDoNot) {
  question_.host.nics.pop_back();
  EXPECT_THAT(TheOnlyOther("NICs"), HasSubstr("no: 1 NICs, the job's hosts have 2"));
  question_.host = Host(9);
  topology_.leaf_of[Nic(9, 1)] = 0;
  EXPECT_THAT(TheOnlyOther("NICs"), HasSubstr("no: 2 NICs, the job's hosts have 2; none on rail 1"));
  topology_.leaf_of.erase(Nic(9, 1));
  EXPECT_THAT(TheOnlyOther("NICs"), HasSubstr("unknown: 2 NICs"));
}

TEST_F(FitTest, FurtherAwayDoesNot) {
  Way(9, 1, 9000).switches = 5;
  EXPECT_THAT(TheOnlyOther("place"),
              HasSubstr("no: at most 5 switches to a host of the job (h1); within it at most 3 (h"));
  Way(2, 1, 9000).switches = 5;
  EXPECT_EQ(Judge().answer(), "yes") << "as far as the one that leaves";
  for (FitPath& path : question_.paths) path.switches = 0;
  EXPECT_THAT(TheOnlyOther("place"), HasSubstr("unknown: "));
}

TEST_F(FitTest, SlowerThanTheJobsSlowestPairDoesNot) {
  Way(0, 9, 12'300);
  EXPECT_THAT(TheOnlyOther("delay"), HasSubstr("no: p99 at most 12.3 us, from h0 to h9; within the job 9.0 us"));
  question_.paths.back().p99_ns = 12'200;  // 1.25 times, and 1 us
  EXPECT_EQ(Judge().answer(), "yes");
}

TEST_F(FitTest, WhatNobodyMeasuredIsUnknown) {
  std::erase_if(question_.paths, [](const FitPath& path) {
    return (path.from == "h9" && path.to == "h1") || (path.from == "h1" && path.to == "h9");
  });
  EXPECT_THAT(TheOnlyOther("delay"), HasSubstr("; none with h1"));
  std::erase_if(question_.paths, [](const FitPath& path) { return path.from == "h9" || path.to == "h9"; });
  const pb::FleetFitReply reply = Judge();
  EXPECT_EQ(reply.answer(), "unknown");
  EXPECT_EQ(reply.checks(3).answer(), "unknown");
  question_.host.clock_synced = false;
  EXPECT_EQ(Judge().answer(), "no") << "one no is a no";
}

TEST_F(FitTest, LossAndDeadWaysDoNot) {
  question_.paths[2].lost = 5;
  EXPECT_THAT(TheOnlyOther("loss"), HasSubstr("no: 0 of 4 paths dead, at most 0.500 % lost"));
  question_.paths[2].lost = 1;
  EXPECT_EQ(Judge().answer(), "yes");
  question_.paths[2].dead = true;
  EXPECT_THAT(TheOnlyOther("loss"), HasSubstr("no: 1 of 4 paths dead"));
}

TEST_F(FitTest, AFindingAboutItIsANo) {
  findings_ = {
      {.id = 1, .cause = Cause::kLinkDead, .scope = "link x", .links = {{Nic(3, 0), Nic(3, 1)}}, .hosts = {"h9"}}};
  EXPECT_EQ(Judge().answer(), "yes") << "others suffer from it, too";
  findings_.push_back({.id = 2, .cause = Cause::kLinkGrey, .scope = "link y", .links = {{Nic(9, 0), Nic(3, 1)}}});
  EXPECT_THAT(TheOnlyOther("findings"), HasSubstr("no: link grey (0000000000000002)"));
  findings_ = {{.id = 3, .cause = Cause::kSlowReceiver, .scope = "host h9"}};
  EXPECT_THAT(TheOnlyOther("findings"), HasSubstr("no: slow receiver"));
  findings_ = {{.id = 3, .cause = Cause::kNicDown, .scope = "NIC eth0 of h9"}};
  EXPECT_THAT(TheOnlyOther("findings"), HasSubstr("no: NIC down"));
}

}  // namespace
}  // namespace cw::fleet
