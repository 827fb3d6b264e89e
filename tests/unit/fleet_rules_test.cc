// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/rules/rules_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace cw::fleet {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(Rules, TheDefaultsAreWhatTheFileSaysAndItsTestsAreAsExpected) {
  const absl::StatusOr<Rules> rules = ReadRules(DefaultRulesToml(), "rules.toml");
  ASSERT_TRUE(rules.ok()) << rules.status();
  EXPECT_EQ(rules->findings.causes, DefaultCauseRules());
  EXPECT_GE(rules->tests.size(), 10u);
  EXPECT_THAT(RunRuleTests(*rules), IsEmpty());
  // Each key, read back, is the default, too.
  std::string all = DefaultRulesToml();
  for (size_t at = 0; (at = all.find("\n#", at)) != std::string::npos; ++at) {
    if (all[at + 2] != ' ') all.erase(at + 1, 1);
  }
  const absl::StatusOr<Rules> again = ReadRules(all, "rules.toml");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->findings.causes, DefaultCauseRules());
  EXPECT_EQ(again->findings.many_flaps, FindingRules{}.many_flaps);
  EXPECT_EQ(again->findings.queue_floor_ns, FindingRules{}.queue_floor_ns);
}

TEST(Rules, EveryCauseCanBeTested) {
  for (int c = 1; c <= kFleetCauses; ++c) {
    const auto cause = static_cast<Cause>(c);
    Rules rules;
    rules.findings.many_flaps = 2;
    rules.findings.causes[static_cast<size_t>(Cause::kLinkDead)].open_after = absl::Seconds(3);
    const std::string severity(SeverityName(RuleOf(rules.findings.causes, cause).severity));
    rules.tests = {{.name = "t",
                    .at = "r:1",
                    .fault = cause,
                    .lasts = absl::Minutes(2),
                    .flaps = 3,
                    .expect = {absl::StrCat(CauseName(cause), ": ", severity)}}};
    // A link that flaps is dead first.
    if (cause == Cause::kFlapping) rules.tests[0].expect.emplace_back("link dead: warning");
    // While it is not known whether the host is dead its agent is gone.
    EXPECT_THAT(RunRuleTests(rules), IsEmpty()) << CauseName(cause);
  }
}

TEST(Rules, OnesOfTheirOwnCount) {
  constexpr char kText[] = R"([thresholds]
flaps_per_hour = 2
[cause.link_dead]
severity = "critical"
summary = "call the site: {scope}"
[[test]]
name = "flaps"
fault = "link flapping"
flaps = 3
expect = ["link dead: critical", "link flapping: warning"]
[[test]]
name = "wrong"
fault = "link dead"
expect = ["link dead: warning"]
[[test]]
name = "words"
fault = "link dead"
expect = ["link dead: critical"]
summary = "call the site: link 12.0.1.0>11.0.1.1"
)";
  const absl::StatusOr<Rules> rules = ReadRules(kText, "r.toml");
  ASSERT_TRUE(rules.ok()) << rules.status();
  EXPECT_THAT(RunRuleTests(*rules), ElementsAre(AllOf(HasSubstr("r.toml:11: wrong: expected [link dead: warning]"),
                                                      HasSubstr("found [link dead: critical]"))));
}

TEST(Rules, FaultsInTheFileAreSaidWithTheirPlace) {
  const absl::Status status = ReadRules(
                                  "[thresholds]\nflaps = 3\n[cause.link_dead]\nseverity = \"loud\"\n"
                                  "summary = \"no place\"\n[cause.unknown]\n[[test]]\nfault = \"x\"\n",
                                  "r.toml")
                                  .status();
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("r.toml:2"), HasSubstr("r.toml:4"), HasSubstr("r.toml:5"),
                                                   HasSubstr("{scope}"), HasSubstr("r.toml:6"), HasSubstr("r.toml:8")));
}

}  // namespace
}  // namespace cw::fleet
