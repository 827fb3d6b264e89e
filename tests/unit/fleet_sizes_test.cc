// SPDX-License-Identifier: Apache-2.0
// What carries small packets and not those of full size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/fleet_findings_fixture.h"

namespace cw::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SizesTest : public FindingsTest {
 protected:
  SizesTest() {
    Small([](const PathEvidence&) { return false; });
  }
  void Small(const std::function<bool(const PathEvidence&)>& which) {
    for (PathEvidence& path : picture_.paths) {
      path.largest_bytes = which(path) ? 1484 : 0;
      path.full_size = path.largest_bytes == 0;
    }
  }
  std::vector<std::string> OpenAfter(int seconds) {
    Pass(seconds);
    std::vector<std::string> open;
    for (const Finding& f : findings_.Open()) open.push_back(absl::StrCat(CauseName(f.cause), ": ", f.scope));
    return open;
  }
  std::function<bool(const PathEvidence&)> OverPort(const Addr& port) {
    return [port](const PathEvidence& path) {
      return std::find(path.hops->begin(), path.hops->end(), port) != path.hops->end();
    };
  }
  const int leaf_ = fabric_.leaf(0, 1), spine_ = fabric_.spine(0, 0);
};

TEST_F(SizesTest, APortIsTheLinkThatEndsBehindIt) {
  const Addr port = fabric_.PortTo(leaf_, spine_);
  Small(OverPort(port));
  EXPECT_THAT(OpenAfter(9), IsEmpty()) << "not all have asked yet";
  const std::vector<std::string> open = OpenAfter(10);
  ASSERT_THAT(open, ElementsAre(HasSubstr("packet size: ")));
  EXPECT_THAT(findings_.Open()[0].place, HasSubstr(fabric_.name(leaf_)));
  EXPECT_THAT(findings_.Open()[0].place, HasSubstr(fabric_.name(spine_)));
  EXPECT_THAT(findings_.Open()[0].evidence[0], HasSubstr("packets above 1484 bytes do not arrive on 18 of 18 paths"));
  EXPECT_THAT(findings_.Open()[0].advice, HasSubstr("cwctl fleet drain link"));
  Small([](const PathEvidence&) { return false; });
  EXPECT_THAT(OpenAfter(15), IsEmpty());
}

TEST_F(SizesTest, AWholeSwitchIsOneFinding) {
  Small([&](const PathEvidence& path) { return Crosses(path, spine_); });
  EXPECT_THAT(OpenAfter(20), ElementsAre("packet size: switch " + fabric_.name(spine_)));
}

// Agents of earlier releases, NICs whose probes go by verbs: it is not known there.
TEST_F(SizesTest, WhatIsNotKnownNeitherAccusesNorClears) {
  const Addr port = fabric_.PortTo(leaf_, spine_);
  Small(OverPort(port));
  for (PathEvidence& path : picture_.paths) {
    if (path.host % 2 == 1) path.largest_bytes = 0, path.full_size = false;
  }
  EXPECT_THAT(OpenAfter(20), ElementsAre(HasSubstr("packet size: ")));
  for (PathEvidence& path : picture_.paths) path.largest_bytes = 0, path.full_size = false;
  EXPECT_THAT(OpenAfter(20), IsEmpty());
}

// One host that lies, or whose own stack is ill.
TEST_F(SizesTest, OneHostAccusesNoSwitch) {
  Small([](const PathEvidence& path) { return path.host == 0 && path.hops->size() > 1; });
  for (const std::string& open : OpenAfter(30)) EXPECT_THAT(open, testing::Not(HasSubstr("switch"))) << open;
}

}  // namespace
}  // namespace cw::fleet
