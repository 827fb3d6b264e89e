// SPDX-License-Identifier: Apache-2.0
#include "cli/format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "cli/session.h"
#include "cli/table.h"
#include "userspace/api/flow_ref.h"
#include "userspace/api/json.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

TEST(Delays, BelowTheErrorOnlyTheErrorIsTold) {
  EXPECT_EQ(DelayText(5310, 400), "5.31 µs");
  EXPECT_EQ(DelayText(399, 400), "< 0.40 µs");
  EXPECT_EQ(DelayText(400, 400), "0.40 µs");
  EXPECT_EQ(DelayText(-7e6, 400), "< 0.40 µs");
  EXPECT_EQ(DelayText(-1, 0), "< 0.01 µs");
  EXPECT_EQ(DelayText(0, -5), "< 0.01 µs");
  EXPECT_EQ(DelayText(NAN, 400), "–");
  EXPECT_EQ(DelayText(5000, 2e6), "< 2.00 ms");
}

TEST(Values, CarryTheirUnit) {
  EXPECT_EQ(NsText(999.4e3), "999 µs");
  EXPECT_EQ(NsText(999.9e3), "1.00 ms");
  EXPECT_EQ(NsText(12.34e3), "12.3 µs");
  EXPECT_EQ(NsText(1.5e9), "1.50 s");
  EXPECT_EQ(DurationText(0.001), "1.00 ms");
  EXPECT_EQ(DurationText(0), "0");
  EXPECT_EQ(DurationText(90), "1.50 min");
  EXPECT_EQ(DurationText(86400 * 3), "3.00 d");
  EXPECT_EQ(AgoText(-1), "–");
  EXPECT_EQ(RateText(0), "0");
  EXPECT_EQ(RateText(800e6), "800 Mbit/s");
  EXPECT_EQ(BytesText(65536), "64.0 KiB");
  EXPECT_EQ(CountText(0), "0");
  EXPECT_EQ(CountText(999), "999");
  EXPECT_EQ(CountText(1234567), "1,234,567");
  EXPECT_EQ(ShareText(0), "0 %");
  EXPECT_EQ(ShareText(0.00001), "< 0.01 %");
  EXPECT_EQ(ShareText(1), "100 %");
  EXPECT_EQ(QpnText(0), "–");
  EXPECT_EQ(QpnText(0x1a2b), "0x1a2b");
  EXPECT_EQ(SlotText(-1), "–");
}

TEST(Tables, AlignByCharactersNotBytes) {
  Table table({"NAME", ">OWD", "STATE"});
  table.Add({"a", "5.31 µs", "up"});
  table.Add({"longer", "–", {"dead", Tone::kBad}});
  std::ostringstream plain, coloured;
  table.Print(plain, false, 1);
  EXPECT_EQ(plain.str(),
            " NAME        OWD  STATE\n"
            " a       5.31 µs  up\n"
            " longer        –  dead\n");
  table.Print(coloured, true);
  EXPECT_NE(coloured.str().find("\033[31mdead\033[0m\n"), std::string::npos);
}

TEST(Tables, NoBlanksAtTheEnd) {
  Table table({"A", "B"});
  table.Add({"x", ""});
  std::ostringstream out;
  table.Print(out, false);
  EXPECT_EQ(out.str(), "A  B\nx\n");
}

TEST(Tables, TextOfOthersCannotCommandTheTerminal) {
  EXPECT_EQ(Printable("a\033[2Jb\n\x7f\xc2\x9b"), "a?[2Jb???");
  EXPECT_EQ(Printable("µs – →"), "µs – →");
}

TEST(For, NeedsAUnit) {
  EXPECT_EQ(*ParseFor(""), 0);
  EXPECT_EQ(*ParseFor("30m"), 1800);
  EXPECT_EQ(*ParseFor("1h30m"), 5400);
  for (const char* bad : {"30", "-5m", "0", "forever", "1ms", "inf"}) EXPECT_FALSE(ParseFor(bad).ok()) << bad;
}

TEST(ExitCodes, FollowTheStatus) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), 1);
  EXPECT_EQ(ExitCodeOf(absl::PermissionDeniedError("")), 1);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("")), 2);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), 3);
  EXPECT_EQ(ExitCodeOf(absl::UnimplementedError("")), 4);
}

TEST(Json, NumbersStayNumbersAndEnumsAreWords) {
  v1::Flow flow;
  flow.set_id("0b5c91fe");
  flow.set_packets(1ull << 60);
  flow.set_want_slot(-1);
  flow.set_lock(v1::LOCK_SOFT);
  flow.set_rate_bps(NAN);
  const nlohmann::ordered_json json = api::ToJson(flow);
  EXPECT_EQ(json["packets"], 1ull << 60);
  EXPECT_EQ(json["want_slot"], -1);
  EXPECT_EQ(json["lock"], "soft");
  EXPECT_TRUE(json["rate_bps"].is_null());
  EXPECT_TRUE(json["owd"].is_null());
  EXPECT_EQ(json["bytes"], 0);
  EXPECT_EQ(json.begin().key(), "id");
}

// The walk has cases for the kinds of field that the schema uses: a new kind must not become null unnoticed.
TEST(Json, KnowsEveryRepeatedFieldOfTheSchema) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::FileDescriptor& file = *v1::StatusReply::descriptor()->file();
  for (int m = 0; m < file.message_type_count(); ++m) {
    for (int f = 0; f < file.message_type(m)->field_count(); ++f) {
      const FieldDescriptor& field = *file.message_type(m)->field(f);
      if (!field.is_repeated()) continue;
      EXPECT_TRUE(
          field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE || field.cpp_type() == FieldDescriptor::CPPTYPE_STRING ||
          field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32 || field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM)
          << field.full_name();
    }
  }
}

v1::QpsReply TwoNics() {
  v1::QpsReply reply;
  auto add = [&](const char* id, const char* nic, uint32_t local, uint32_t remote, bool received) {
    v1::Flow& flow = *reply.add_flows();
    flow.set_id(id);
    flow.set_nic(nic);
    flow.set_device(nic);
    flow.set_local_qpn(local);
    flow.set_remote_qpn(remote);
    flow.set_received(received);
  };
  add("aaaaaaaa", "eth0", 17, 33, false);
  add("bbbbbbbb", "eth1", 17, 34, false);
  add("cccccccc", "eth0", 17, 33, true);
  add("dddddddd", "eth0", 40, 41, true);
  add("00000018", "eth0", 24, 50, false);
  return reply;
}

TEST(FlowNames, Resolve) {
  const v1::QpsReply flows = TwoNics();
  EXPECT_EQ(*api::ResolveFlow(flows, "bbbbbbbb"), "bbbbbbbb");
  EXPECT_EQ(*api::ResolveFlow(flows, "eth0/qp0x11"), "aaaaaaaa");
  EXPECT_EQ(*api::ResolveFlow(flows, "eth1/qp17"), "bbbbbbbb");
  EXPECT_EQ(*api::ResolveFlow(flows, "33"), "aaaaaaaa");
  EXPECT_EQ(*api::ResolveFlow(flows, "0x28"), "dddddddd");
  EXPECT_EQ(*api::ResolveFlow(flows, "00000018"), "00000018");
  EXPECT_EQ(api::ResolveFlow(flows, "17").status().code(), absl::StatusCode::kInvalidArgument);
  for (const char* none : {"99", "eth2/qp17", "eth0/qp", "x", "", "0x1000000", "0"}) {
    EXPECT_EQ(api::ResolveFlow(flows, none).status().code(), absl::StatusCode::kNotFound) << none;
  }
}

}  // namespace
}  // namespace cw::cli
