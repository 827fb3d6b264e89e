// SPDX-License-Identifier: Apache-2.0
#include "cli/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "cli/columns.h"
#include "cli/event_filter.h"
#include "cli/off_proof.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cli/verdict.h"
#include "userspace/api/flow_ref.h"
#include "userspace/api/json.h"
#include "userspace/model/counted.h"

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
  EXPECT_EQ(Printable("a\u202eb\u2066c\u2028d\u061ce\xff"), "a?b?c?d?e\uFFFD") << "which way it is read, or no text";
}

TEST(For, NeedsAUnit) {
  EXPECT_EQ(*ParseFor(""), 0);
  EXPECT_EQ(*ParseFor("30m"), 1800);
  EXPECT_EQ(*ParseFor("1h30m"), 5400);
  for (const char* bad : {"30", "-5m", "0", "forever", "1ms", "inf"}) EXPECT_FALSE(ParseFor(bad).ok()) << bad;
}

TEST(Moments, AreAgoOrUtc) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);  // 2023-11-14T22:13:20Z
  EXPECT_EQ(*ParseMoment("--since", "10m", now), now - absl::Minutes(10));
  EXPECT_EQ(*ParseMoment("--since", "2023-11-14T22:13:20.5Z", now), now + absl::Milliseconds(500));
  EXPECT_EQ(*ParseMoment("--since", "22:13", now), now - absl::Seconds(20));
  EXPECT_EQ(*ParseMoment("--since", "22:14:00", now), now - absl::Hours(24) + absl::Seconds(40)) << "yesterday's";
  EXPECT_EQ(*ParseMoment("--since", "2023-11-14", now), absl::FromUnixSeconds(1'699'920'000));
  for (const char* bad : {"", "yesterday", "-5m", "10", "25:00"})
    EXPECT_FALSE(ParseMoment("--since", bad, now).ok()) << bad;
}

TEST(Columns, TheLeastImportantGoFirst) {
  const std::vector<ColumnChoice> columns = {{"path", 9}, {"hops", 1}, {"loss", 5}};
  const std::vector<size_t> widths = {4, 30, 6};
  using Chosen = std::vector<size_t>;
  EXPECT_EQ(*ChooseColumns(columns, widths, "", 0), (Chosen{0, 1, 2})) << "no terminal";
  EXPECT_EQ(*ChooseColumns(columns, widths, "", 44), (Chosen{0, 1, 2}));
  EXPECT_EQ(*ChooseColumns(columns, widths, "", 43), (Chosen{0, 2}));
  EXPECT_EQ(*ChooseColumns(columns, widths, "", 5), (Chosen{0}));
  EXPECT_EQ(*ChooseColumns(columns, widths, "wide", 5), (Chosen{0, 1, 2}));
  EXPECT_EQ(*ChooseColumns(columns, widths, "LOSS,path", 5), (Chosen{2, 0}));
  EXPECT_FALSE(ChooseColumns(columns, widths, ",", 5).ok());
}

TEST(Columns, AScreenHoldsTheFirstRows) {
  EXPECT_EQ(FirstRows("a\nb\nc\n", 0), "a\nb\nc\n") << "no terminal";
  EXPECT_EQ(FirstRows("a\nb\nc\n", 3), "a\nb\nc\n");
  EXPECT_EQ(FirstRows("a\nb\nc\n", 2), "a\n… 2 more lines: a taller terminal shows them, or a pipe\n");
  EXPECT_EQ(FirstRows("a\nb\n", 1), "… 2 more lines: a taller terminal shows them, or a pipe\n");
}

TEST(CliFormat, ALongHeadIsBrokenAfterCommas) {
  EXPECT_EQ(BrokenAtCommas("from eth0, active, a round every 10 ms", 20, 4),
            "from eth0, active,\n    a round every 10 ms");
  EXPECT_EQ(BrokenAtCommas("one, two", 0, 4), "one, two") << "no terminal";
  EXPECT_EQ(BrokenAtCommas("a long word, b", 5, 2), "a long word,\n  b");
}

TEST(Verdicts, SayWhatIsWrongTheWorstFirst) {
  v1::StatusReply status;
  status.set_mode(v1::MODE_PROTECT);
  v1::PeerStatus& peer = *status.add_peers();
  peer.set_name("h1");
  peer.set_paths(4);
  peer.set_paths_live(4);
  EXPECT_EQ(VerdictOf(status).text, "healthy");
  EXPECT_EQ(VerdictOf(status).tone, Tone::kGood);
  status.set_mode(v1::MODE_OFF);
  EXPECT_EQ(VerdictOf(status).tone, Tone::kWarn);
  peer.set_paths_live(0);
  status.mutable_paths()->set_dead(4);
  EXPECT_EQ(VerdictOf(status).text,
            "no path lives to h1; 4 paths are dead (cwctl links); switched off, every flow is on its native port");
  EXPECT_EQ(VerdictOf(status).tone, Tone::kBad);
  peer.set_last_reply_ago_s(12.6);  // nobody calls the last paths of a silent peer dead
  peer.set_paths_live(1);
  EXPECT_EQ(VerdictOf(status).text,
            "h1 is silent for 12.6 s; 4 paths are dead (cwctl links); switched off, every flow is on its native port");
  peer.set_paths_live(0);
  peer.set_last_reply_ago_s(-1);
  status.mutable_paths()->clear_dead();
  EXPECT_EQ(VerdictOf(status).text, "never answered: h1; switched off, every flow is on its native port");
}

TEST(Verdicts, NameWhatLargePacketsDoNotPass) {
  v1::StatusReply status;
  status.mutable_paths()->set_size_limited(2);
  status.mutable_paths()->set_least_largest_arrives(1500);
  EXPECT_EQ(VerdictOf(status).text, "packets above 1500 bytes do not arrive on 2 paths (cwctl paths)");
  EXPECT_EQ(VerdictOf(status).tone, Tone::kBad);
  status.Clear();
  v1::PeerStatus& peer = *status.add_peers();
  peer.set_paths_live(4);
  peer.set_mtu_text("h2's eth0 has MTU 1500, h1's eth0 4200: packets above 1500 bytes do not pass");
  EXPECT_EQ(VerdictOf(status).text, peer.mtu_text());
  peer.clear_mtu_text();
  peer.set_name("h1");
  peer.set_last_reply_ago_s(60);
  peer.set_blind_text("its agent's programs do not see the packets of its NIC 10.0.1.1");
  EXPECT_EQ(VerdictOf(status).text, "h1: " + peer.blind_text()) << "and not silent";
}

TEST(Format, PortsBehindSilentSwitchesAreNotSoldAsPaths) {
  v1::Pair pair;
  pair.set_table("unknown");
  for (int i = 0; i < 8; ++i) pair.add_paths()->set_slot(static_cast<uint32_t>(i));
  pair.add_paths()->set_native(true);
  EXPECT_EQ(UnseenPathsText(pair),
            "no switch answers: 8 ports are probed, each as a path; a cable or one Ethernet has a single one");
  pair.mutable_paths(3)->add_hops("10.0.0.1");
  EXPECT_EQ(UnseenPathsText(pair), "");
}

TEST(Off, IsProvenByPacketsThatLeft) {
  OffLook before, after;
  const auto add = [](OffLook& look, const char* id, uint32_t native, uint32_t port, uint64_t packets) {
    v1::Flow& flow = *look.flows.add_flows();
    flow.set_id(id);
    flow.set_udp_port_native(native);
    flow.set_udp_port(port);
    flow.set_packets(packets);
    flow.set_port_from("packets");
  };
  add(before, "a", 50000, 50000, 10);
  add(before, "b", 50000, 49152, 10);
  add(before, "c", 50001, 49152, 10);
  add(after, "a", 50000, 50000, 17);
  add(after, "b", 50000, 49152, 12);
  add(after, "c", 50001, 49152, 10);
  add(after, "d", 50002, 50002, 3);
  OffProof proof = ProveOff(before, after);
  EXPECT_EQ(proof.packets, (std::map<uint32_t, uint64_t>{{50000, 7}, {50002, 3}}));
  EXPECT_EQ(proof.still_steered, std::vector<std::string>{"b"}) << "c sent nothing";
  EXPECT_EQ(ProofText(proof, 1),
            "NOT off: still on other ports: b\nproof: in 1.00 s 10 packets left by native ports (port: packets): "
            "50000: 7, 50002: 3\n");
  const auto count = [](OffLook& look, uint64_t value) {
    v1::Counter& counter = *look.counters.add_counters();
    counter.set_name("rewritten");
    counter.set_value(value);
  };
  proof.still_steered.clear();
  EXPECT_TRUE(proof.Holds()) << "an agent of before does not count them";
  count(before, 100);
  count(after, 101);
  EXPECT_EQ(ProveOff(before, after).rewritten, 1u);
  proof.rewritten = 1;
  EXPECT_FALSE(proof.Holds());
  EXPECT_THAT(ProofText(proof, 1), testing::HasSubstr("NOT off: the kernel's program gave 1 packet another port\n"));
  proof.rewritten = 0;
  EXPECT_TRUE(proof.Holds());
  EXPECT_THAT(ProofText(proof, 1), testing::HasSubstr("50002: 3; none was given another port\n"));
  EXPECT_EQ(ProofText({}, 1), "proof: no packet of a flow left in 1.00 s; look again: cwctl qps\n");
}

TEST(Counted, OneIsNoPlural) {
  EXPECT_EQ(Counted(0, "path"), "0 paths");
  EXPECT_EQ(Counted(1, "path"), "1 path");
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
