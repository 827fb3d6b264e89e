// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/qdiscs.h"

#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>

#include <cstring>

#include "gtest/gtest.h"

namespace cw::dataplane {
namespace {

Qdisc Root(const char* kind) { return {.kind = kind, .handle = 0x10000, .parent = TC_H_ROOT}; }
Qdisc Child(const char* kind, uint32_t number) { return {.kind = kind, .handle = 0, .parent = 0x10000 + number}; }

TEST(Qdiscs, DeparturesAreKeptWhereEveryPacketWaitsInAnFq) {
  EXPECT_TRUE(KeepsDepartures({Root("fq")}));
  EXPECT_TRUE(KeepsDepartures({Root("fq"), {.kind = "clsact", .handle = 0xffff0000, .parent = TC_H_CLSACT}}));
  EXPECT_TRUE(KeepsDepartures({Root("mq"), Child("fq", 1), Child("fq", 2)}));
  EXPECT_TRUE(KeepsDepartures({Root("tbf"), Child("fq", 1)}));
}

TEST(Qdiscs, AndNowhereElse) {
  EXPECT_FALSE(KeepsDepartures({})) << "noqueue is not listed";
  EXPECT_FALSE(KeepsDepartures({Root("pfifo_fast")}));
  EXPECT_FALSE(KeepsDepartures({Root("fq_codel")}));
  EXPECT_FALSE(KeepsDepartures({Root("tbf")})) << "its fifo is not listed";
  EXPECT_FALSE(KeepsDepartures({Root("mq"), Child("fq", 1), Child("pfifo_fast", 2)}));
  EXPECT_FALSE(KeepsDepartures({Root("htb"), Child("fq", 1)})) << "a class's fifo is not listed";
  EXPECT_FALSE(KeepsDepartures({Root("mq"), Child("tbf", 1), Child("tbf", 2), Child("fq", 3)}));
}

void AddMessage(std::string& dump, uint16_t type, int ifindex, const std::string& kind) {
  const size_t attribute = RTA_LENGTH(kind.size() + 1);
  std::string bytes(NLMSG_ALIGN(NLMSG_LENGTH(sizeof(tcmsg))) + RTA_ALIGN(attribute), '\0');
  auto* header = reinterpret_cast<nlmsghdr*>(bytes.data());
  header->nlmsg_len = static_cast<uint32_t>(bytes.size());
  header->nlmsg_type = type;
  auto* message = static_cast<tcmsg*>(NLMSG_DATA(header));
  message->tcm_ifindex = ifindex;
  message->tcm_parent = TC_H_ROOT;
  auto* kind_attribute = TCA_RTA(message);
  kind_attribute->rta_type = TCA_KIND;
  kind_attribute->rta_len = static_cast<uint16_t>(attribute);
  std::memcpy(RTA_DATA(kind_attribute), kind.c_str(), kind.size() + 1);
  dump += bytes;
}

std::string DumpOfQdiscs() {
  std::string dump;
  AddMessage(dump, RTM_NEWQDISC, 3, "pfifo_fast");
  AddMessage(dump, RTM_NEWQDISC, 7, "fq");
  AddMessage(dump, NLMSG_DONE, 0, "");
  return dump;
}

TEST(Qdiscs, ADumpIsReadForOneDevice) {
  const std::string dump = DumpOfQdiscs();
  std::vector<Qdisc> qdiscs;
  const absl::StatusOr<bool> more = ParseQdiscDump(dump.data(), dump.size(), 7, qdiscs);
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_FALSE(*more);
  ASSERT_EQ(qdiscs.size(), 1u);
  EXPECT_EQ(qdiscs[0].kind, "fq");
  EXPECT_EQ(qdiscs[0].parent, TC_H_ROOT);
}

TEST(Qdiscs, ADumpMayEndAnywhereAndHoldAnything) {
  const std::string dump = DumpOfQdiscs();
  for (size_t length = 0; length < dump.size(); ++length) {
    const std::vector<char> bytes(dump.begin(), dump.begin() + static_cast<long>(length));
    std::vector<Qdisc> qdiscs;
    (void)ParseQdiscDump(bytes.data(), bytes.size(), 7, qdiscs);
    EXPECT_LE(qdiscs.size(), 1u);
  }
  for (size_t at = 0; at < dump.size(); ++at) {
    std::vector<char> bytes(dump.begin(), dump.end());
    bytes[at] = '\x7f';
    std::vector<Qdisc> qdiscs;
    (void)ParseQdiscDump(bytes.data(), bytes.size(), 7, qdiscs);
    EXPECT_LE(qdiscs.size(), 2u);
  }
}

TEST(Qdiscs, TheKernelIsAsked) {
  const auto loopback = QdiscsOf(1);
  ASSERT_TRUE(loopback.ok()) << loopback.status();
  EXPECT_FALSE(KeepsDepartures(*loopback)) << "lo has no queue";
}

}  // namespace
}  // namespace cw::dataplane
