// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/wanted.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cw::bench {
namespace {

const std::vector<std::string> kNames = {"silent", "silent_50", "pause_1", "pause_5"};

TEST(Wanted, AllAreWantedWhereNothingIsSaid) {
  const auto wanted = Wanted::Parse(nullptr, kNames);
  ASSERT_TRUE(wanted.ok());
  EXPECT_TRUE(wanted->all());
  for (const std::string& name : kNames) EXPECT_TRUE(wanted->Has(name)) << name;
}

TEST(Wanted, AWholeNameIsItselfAndABeginningAllThatGoOn) {
  const auto whole = Wanted::Parse("silent", kNames), many = Wanted::Parse("pause,silent_50", kNames);
  ASSERT_TRUE(whole.ok() && many.ok());
  EXPECT_TRUE(whole->Has("silent"));
  EXPECT_FALSE(whole->Has("silent_50"));
  EXPECT_FALSE(many->Has("silent"));
  for (const char* name : {"silent_50", "pause_1", "pause_5"}) EXPECT_TRUE(many->Has(name)) << name;
}

TEST(Wanted, ANameThatThereIsNotIsRefused) {
  const auto wanted = Wanted::Parse("silent,pauze", kNames);
  EXPECT_TRUE(absl::IsInvalidArgument(wanted.status()));
  EXPECT_THAT(std::string(wanted.status().message()),
              testing::AllOf(testing::HasSubstr("pauze"), testing::HasSubstr("pause_5")));
  EXPECT_FALSE(Wanted::Parse("paus", kNames).ok()) << "half a word";
}

}  // namespace
}  // namespace cw::bench
