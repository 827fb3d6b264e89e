// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <cstddef>
#include <cstring>

#include "maps/abi.h"
#include "userspace/model/addr.h"
#include "userspace/model/allowed.h"
#include "userspace/model/clock.h"
#include "userspace/model/cpu_list.h"
#include "userspace/model/flow.h"
#include "userspace/model/names.h"
#include "userspace/model/regular_file.h"
#include "userspace/model/utf8.h"

namespace cw {
namespace {

TEST(Addr, PrintsWhatItParses) {
  for (const char* text : {"10.0.0.1", "255.255.255.255", "fe80::1", "2001:db8::a:0:0:1", "::"}) {
    const auto a = Addr::Parse(text);
    ASSERT_TRUE(a.ok()) << a.status();
    EXPECT_EQ(a->ToString(), text);
  }
  EXPECT_EQ(Addr::Parse("::ffff:10.0.0.1")->ToString(), "10.0.0.1");
  EXPECT_TRUE(Addr::Parse("10.0.0.1")->is_v4());
  EXPECT_FALSE(Addr::Parse("fe80::1")->is_v4());
  EXPECT_EQ(Addr::Parse("10.0.0.1")->v4(), 0x0a000001u);
  EXPECT_EQ(Addr::FromV4(0x0a000001), *Addr::Parse("10.0.0.1"));
  EXPECT_TRUE(Addr::Parse("::")->is_zero());
}

TEST(Addr, RefusesWhatIsNoAddressAndNamesIt) {
  for (const char* text : {"", "10.0.0", "10.0.0.256", "host", "10.0.0.1/24", " 10.0.0.1"}) {
    const auto a = Addr::Parse(text);
    ASSERT_FALSE(a.ok()) << text;
    EXPECT_THAT(std::string(a.status().message()), testing::HasSubstr(text));
  }
}

TEST(FlowKey, HasTheLayoutOfTheAbi) {
  static_assert(sizeof(FlowKey) == sizeof(cw_flow_key));
  static_assert(offsetof(FlowKey, dst) == offsetof(cw_flow_key, daddr));
  static_assert(offsetof(FlowKey, dqpn) == offsetof(cw_flow_key, dqpn));
  static_assert(sizeof(PairKey) == sizeof(cw_pair_key));
  const FlowKey key{Addr::FromV4(0x0a00000a), Addr::FromV4(0x0a00010a), 0x1a2b};
  cw_flow_key abi{};
  std::memcpy(&abi, &key, sizeof(abi));
  EXPECT_EQ(abi.saddr[15], 0x0a);
  EXPECT_EQ(abi.daddr[14], 0x01);
  EXPECT_EQ(abi.dqpn, 0x1a2bu);
  EXPECT_EQ(key.ToString(), "10.0.0.10 > 10.0.1.10 qp 0x1a2b");
}

TEST(FlowId, IsStableAndParses) {
  const FlowKey key{Addr::FromV4(0x0a00000a), Addr::FromV4(0x0a00010a), 0x1a2b};
  FlowKey other = key;
  other.dqpn ^= 1;
  EXPECT_NE(key.Id(), other.Id());
  EXPECT_EQ(FlowId::Parse(key.Id().ToString()), key.Id());
  EXPECT_EQ(key.Id().ToString(), "6d022712");  // computed apart; logs and scripts of old releases hold such ids
  EXPECT_EQ((FlowId{0xab}.ToString()), "000000ab");
  EXPECT_EQ(FlowId::Parse("ABCDEF01")->value, 0xabcdef01u);
  EXPECT_EQ(FlowId::Parse("abcdef0"), std::nullopt);
  EXPECT_EQ(FlowId::Parse("abcdef0g"), std::nullopt);
  EXPECT_EQ(FlowId::Parse("0xabcdef"), std::nullopt);
}

TEST(FlowId, OfOneHostsFlowsHardlyEverCollide) {
  std::vector<uint32_t> ids;
  for (uint32_t q = 0; q < 4096; ++q) ids.push_back(FlowKey{Addr::FromV4(1), Addr::FromV4(2 + q % 16), q}.Id().value);
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
}

TEST(Allowed, EachModeSetsAllAtOnce) {
  for (const Capability c : kAllCapabilities) {
    EXPECT_EQ(Allowed(Mode::kOff).of(c), Allow::kOff);
    EXPECT_EQ(Allowed(Mode::kObserve).of(c), Allow::kObserve);
    EXPECT_EQ(Allowed(Mode::kProtect).of(c), c == Capability::kBalance ? Allow::kObserve : Allow::kAct);
    EXPECT_EQ(Allowed(Mode::kOptimize).of(c), Allow::kAct);
  }
  EXPECT_FALSE(Allowed(Mode::kObserve).ActsAtAll());
  EXPECT_TRUE(Allowed(Mode::kProtect).ActsAtAll());
}

TEST(Allowed, SingleCapabilitiesDifferFromTheMode) {
  AllowOverrides overrides;
  overrides[static_cast<size_t>(Capability::kFailover)] = Allow::kObserve;
  overrides[static_cast<size_t>(Capability::kNic)] = Allow::kOff;
  const Allowed allowed = Apply(Mode::kProtect, overrides);
  EXPECT_EQ(allowed.mode(), Mode::kProtect);
  EXPECT_FALSE(allowed.Acts(Capability::kFailover));
  EXPECT_TRUE(allowed.Decides(Capability::kFailover));
  EXPECT_FALSE(allowed.Decides(Capability::kNic));
  EXPECT_TRUE(allowed.Acts(Capability::kLoss));
  EXPECT_EQ(allowed.ToString(), "protect with failover=observe nic=off");
  EXPECT_EQ(OverridesOf(allowed), overrides);
  EXPECT_EQ(Apply(Mode::kOff, overrides).word(), 0u) << "off is off, and one store";
  EXPECT_EQ(Allowed(Mode::kProtect).ToString(), "protect");
  overrides = {};
  overrides[static_cast<size_t>(Capability::kBalance)] = Allow::kAct;
  EXPECT_TRUE(Apply(Mode::kObserve, overrides).ActsAtAll());
}

TEST(Names, AreThoseOfTheAbi) {
  EXPECT_EQ(Allowed(Mode::kOff).word(), static_cast<uint32_t>(CW_MODE_OFF));
  EXPECT_EQ(Allowed(Mode::kObserve).word(), static_cast<uint32_t>(CW_MODE_OBSERVE));
  EXPECT_EQ(Allowed(Mode::kProtect).word(), static_cast<uint32_t>(CW_MODE_PROTECT));
  EXPECT_EQ(Allowed(Mode::kOptimize).word(), static_cast<uint32_t>(CW_MODE_OPTIMIZE));
  EXPECT_EQ(kCapabilities, CW_CAPS);
  for (const Capability c : kAllCapabilities) {
    const auto number = static_cast<uint32_t>(c);
    EXPECT_EQ(Allowed().With(c, Allow::kObserve).word(), CW_DECIDES(number));
    EXPECT_EQ(Allowed().With(c, Allow::kAct).word(), CW_DECIDES(number) | CW_ACTS(number));
    EXPECT_EQ(ParseCapability(CapabilityName(c)), c);
  }
  EXPECT_EQ(static_cast<int>(SlotState::kUnused), CW_SLOT_UNUSED);
  EXPECT_EQ(static_cast<int>(SlotState::kUp), CW_SLOT_UP);
  EXPECT_EQ(static_cast<int>(SlotState::kSuspect), CW_SLOT_SUSPECT);
  EXPECT_EQ(static_cast<int>(SlotState::kDead), CW_SLOT_DEAD);
  EXPECT_EQ(static_cast<int>(SlotState::kNew), CW_SLOT_NEW);
  EXPECT_EQ(static_cast<int>(MoveReason::kAssign), CW_MOVE_ASSIGN);
  EXPECT_EQ(static_cast<int>(MoveReason::kDead), CW_MOVE_DEAD);
  EXPECT_EQ(static_cast<int>(MoveReason::kIdle), CW_MOVE_IDLE);
  EXPECT_EQ(static_cast<int>(MoveReason::kGap), CW_MOVE_GAP);
  EXPECT_EQ(static_cast<int>(MoveReason::kForced), CW_MOVE_FORCED);
  EXPECT_EQ(static_cast<int>(MoveReason::kLease), CW_MOVE_LEASE);
  EXPECT_EQ(static_cast<int>(MoveReason::kHeld), CW_MOVE_HELD);
  EXPECT_EQ(static_cast<int>(MoveReason::kBlind), CW_MOVE_BLIND);
  EXPECT_EQ(kMaxSlots, CW_MAX_SLOTS);
  EXPECT_EQ(kSlotNone, CW_SLOT_NONE);
  for (const Mode m : {Mode::kOff, Mode::kObserve, Mode::kProtect, Mode::kOptimize})
    EXPECT_EQ(ParseMode(ModeName(m)), m);
  EXPECT_EQ(ParseMode("Observe"), std::nullopt);
}

TEST(CpuList, IsWrittenAsTheKernelWritesIt) {
  EXPECT_EQ(*ParseCpuList(""), std::vector<int>());
  EXPECT_EQ(*ParseCpuList("8,0-2,1"), (std::vector<int>{0, 1, 2, 8}));
  EXPECT_EQ(ParseCpuList("8191")->front(), 8191);
  for (const char* wrong : {",", "0-", "-1", "2-1", "a", "0,", " 1", "1 ", "+1", "0x1", "8192", "0-8192", "1-2-3"})
    EXPECT_FALSE(ParseCpuList(wrong).ok()) << wrong;
  EXPECT_EQ(CpuListText({}), "");
  EXPECT_EQ(CpuListText({0, 1, 2, 8, 10, 11}), "0-2,8,10-11");
}

TEST(CutUtf8, EndsWhereACharacterEndsAndReplacesWhatIsNone) {
  EXPECT_EQ(CutUtf8("abc", 3), "abc");
  EXPECT_EQ(CutUtf8("abc", 2), "ab");
  EXPECT_EQ(CutUtf8("", 2), "");
  const std::string all = "a\u00fc\u20ac\U0001f600";  // of one, two, three and four bytes
  EXPECT_EQ(CutUtf8(all, 100), all);
  for (const auto& [most, kept] :
       std::vector<std::pair<size_t, size_t>>{{10, 10}, {9, 6}, {6, 6}, {5, 3}, {2, 1}, {0, 0}})
    EXPECT_EQ(CutUtf8(all, most), all.substr(0, kept)) << most;
  for (const char* bad : {"\xff", "\x80", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"})
    EXPECT_THAT(CutUtf8(bad, 100), testing::MatchesRegex("(\xEF\xBF\xBD)+")) << bad;
  EXPECT_EQ(CutUtf8("a\xff"
                    "b",
                    5),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(CutUtf8("a\xff", 3), "a") << "what takes a byte's place has three";
}

TEST(MonotonicClock, NeverGoesBack) {
  const MonotonicClock clock;
  int64_t last = clock.NowNs();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = clock.NowNs();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(RegularFile, NothingElseIsInItsPlace) {
  char folder[] = "/tmp/cw-place-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/a";
  EXPECT_TRUE(CheckPlaceOfFile(path).ok()) << "it is made";
  EXPECT_TRUE(absl::IsInvalidArgument(CheckPlaceOfFile(folder)));
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(CheckPlaceOfFile(path)));
  std::filesystem::remove_all(folder);
}

TEST(RegularFile, IsReadAndNothingElseIs) {
  char name[] = "/tmp/cw-file-XXXXXX";
  const std::string folder = mkdtemp(name);
  std::ofstream(folder + "/a") << std::string(10'000, 'a');
  EXPECT_EQ(ReadRegularFile(folder + "/a").value_or(""), std::string(10'000, 'a'));
  EXPECT_EQ(ReadRegularFile(folder + "/a", 10'000).value_or(""), std::string(10'000, 'a'));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadRegularFile(folder + "/a", 9'999).status()));
  ASSERT_EQ(mkfifo((folder + "/fifo").c_str(), 0600), 0);
  for (const std::string& none : {folder, folder + "/fifo", std::string("/dev/zero")})
    EXPECT_TRUE(absl::IsInvalidArgument(ReadRegularFile(none).status())) << none;
  EXPECT_TRUE(absl::IsNotFound(ReadRegularFile(folder + "/b").status()));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace cw
