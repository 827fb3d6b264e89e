// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/blind_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"

namespace cw::agent {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

class BlindNotesPart : public ::testing::Test {
 protected:
  BlindNotesPart() { nic().attached = true; }
  NicState& nic() { return host_.nics[0]; }
  PairState& AddPair(uint32_t index, uint32_t ifindex, const std::string& local, const std::string& remote,
                     const std::string& peer = "h2") {
    auto pair = std::make_unique<PairState>();
    pair->index = index;
    pair->key = {probe::TestAddr(local.c_str()), probe::TestAddr(remote.c_str())};
    pair->ifindex = ifindex;
    pair->peer = peer;
    return *(host_.pairs[index] = std::move(pair));
  }
  probe::NicMeasures Note(const std::string& nic, bool measures) const {
    return {probe::TestAddr(nic.c_str()), measures};
  }

  OnePair host_;
  BlindNotes notes_{host_.pairs, host_.nics, host_.mail, host_.events};
};

TEST_F(BlindNotesPart, NothingIsSentWhileProgramsAreThere) {
  notes_.Send();
  EXPECT_THAT(host_.mail.all, IsEmpty());
}

TEST_F(BlindNotesPart, PeersHearOfItUntilTheProgramsAreBack) {
  nic().hooks_trouble = "NIC eth0: another XDP program is in the place of the agent's";
  notes_.Send();
  notes_.Send();
  EXPECT_THAT(host_.mail.Take<probe::NicMeasures>(), ElementsAre(Note("10.0.0.1", false), Note("10.0.0.1", false)));
  nic().hooks_trouble.clear();
  notes_.Send();
  notes_.Send();
  EXPECT_THAT(host_.mail.Take<probe::NicMeasures>(), ElementsAre(Note("10.0.0.1", true)));
}

// What ends the packets' path before the agent's program ends that of its messages, too.
TEST_F(BlindNotesPart, ItIsSentByAnotherNicAsWell) {
  host_.nics.push_back({.config = {.name = "eth1"}, .ifindex = 3, .attached = true});
  AddPair(900, 3, "10.0.0.2", "10.0.1.2");
  AddPair(901, 3, "10.0.0.2", "10.0.9.9", "h3");
  nic().programs_gone = true;
  notes_.Send();
  EXPECT_THAT(host_.mail.all, ElementsAre(Pair(host_.index, probe::Body(Note("10.0.0.1", false))),
                                          Pair(900, probe::Body(Note("10.0.0.1", false)))));
}

TEST_F(BlindNotesPart, ThousandsOfPeersAreServedInTurn) {
  nic().programs_gone = true;
  for (uint32_t i = 1; i <= 2 * BlindNotes::kMostPerLook; ++i)
    AddPair(1000 + i, OnePair::kIfindex, "10.0.0.1", "10.1.0.1", absl::StrCat("p", i));
  std::set<uint32_t> served;
  for (int look = 0; look < 3; ++look) {
    notes_.Send();
    EXPECT_LE(host_.mail.all.size(), BlindNotes::kMostPerLook);
    for (const auto& [pair, body] : std::exchange(host_.mail.all, {})) served.insert(pair);
  }
  EXPECT_EQ(served.size(), 2 * BlindNotes::kMostPerLook + 1);
}

TEST_F(BlindNotesPart, APeersWordIsKeptReportedOnceAndEnds) {
  notes_.OnNote(host_.pair(), Note("10.0.1.1", false), 100 * kSecond);
  notes_.OnNote(host_.pair(), Note("10.0.1.1", false), 101 * kSecond);
  EXPECT_TRUE(host_.pair().PeerIsBlind(102 * kSecond));
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, AllOf(HasSubstr("h2"), HasSubstr("10.0.1.1"), HasSubstr("do not leave")));
  EXPECT_FALSE(host_.pair().PeerIsBlind(132 * kSecond)) << "an agent that died says nothing more";
  notes_.OnNote(host_.pair(), Note("10.0.1.1", false), 140 * kSecond);
  notes_.OnNote(host_.pair(), Note("10.0.1.1", true), 141 * kSecond);
  notes_.OnNote(host_.pair(), Note("10.0.1.1", true), 142 * kSecond);
  EXPECT_FALSE(host_.pair().PeerIsBlind(142 * kSecond));
  ASSERT_THAT(host_.events.all, SizeIs(3));
  EXPECT_THAT(host_.events.all[2].text, HasSubstr("again"));
}

// The agent that said so was killed, and the next one knows nothing of it.
TEST_F(BlindNotesPart, APeerThatAnswersAndRepeatsNothingIsBlindNoLonger) {
  notes_.OnNote(host_.pair(), Note("10.0.1.1", false), 100 * kSecond);
  host_.pair().last_reply_ns = 105 * kSecond;
  notes_.Send();
  EXPECT_TRUE(host_.pair().PeerIsBlind(106 * kSecond));
  host_.pair().last_reply_ns = 110 * kSecond;
  notes_.Send();
  EXPECT_FALSE(host_.pair().PeerIsBlind(110 * kSecond));
  EXPECT_THAT(host_.events.all, SizeIs(2));
}

TEST_F(BlindNotesPart, AHostSpeaksForItsOwnNicsOnly) {
  PairState& other = AddPair(900, OnePair::kIfindex, "10.0.0.1", "10.0.9.9", "h3");
  notes_.OnNote(host_.pair(), Note("10.0.9.9", false), 100 * kSecond);
  EXPECT_FALSE(other.PeerIsBlind(100 * kSecond));
  EXPECT_THAT(host_.events.all, IsEmpty());
}

}  // namespace
}  // namespace cw::agent
