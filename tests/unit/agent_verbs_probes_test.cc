// SPDX-License-Identifier: Apache-2.0
// NICs whose probes are to go by verbs, on a host that has no such device. Real ones: tests/vm/verbs_probe_test.cc.
#include "userspace/agent/nics/verbs_probes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agent_fakes.h"
#include "userspace/config/config.h"

namespace cw::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class VerbsProbesPart : public ::testing::Test {
 protected:
  VerbsProbesPart() {
    host_.nics[0].config.name = "no_such_nic";
    host_.nics[0].by_verbs = true;
    config_.first_port = config::kFirstVerbsPort;
  }
  void Open() { EXPECT_TRUE(part_.Open(dataplane::ProgramRunner(-1, -1), &keys_).ok()); }
  ::cwfabric::v1::NicStatus Transport() {
    ::cwfabric::v1::NicStatus status;
    part_.AddTransport(host_.nics[0], status);
    return status;
  }

  OnePair host_;
  config::ProbeConfig config_;
  probe::KeyRing keys_;
  bool is_there_ = false;
  std::vector<telemetry::Event> ends_;
  VerbsProbes part_{host_.nics,
                    config_,
                    host_.events,
                    {.is_there = [this](const probe_verbs::EndpointOptions&) { return is_there_; },
                     .start_anew = [this](telemetry::Event why) { ends_.push_back(std::move(why)); }}};
};

TEST_F(VerbsProbesPart, WhereNoNicGoesByThemNothingIsOpened) {
  host_.nics[0].by_verbs = false;
  Open();
  EXPECT_EQ(part_.host(), nullptr);
  EXPECT_FALSE(part_.any());
  EXPECT_EQ(Transport().transport(), "kernel");
  EXPECT_EQ(Transport().arrival_stamps(), "software");
  part_.OnDevice("mlx5_0", true);
  EXPECT_THAT(ends_, IsEmpty());
}

TEST_F(VerbsProbesPart, ANicThatCannotBeOpenedIsToldAndHasNone) {
  Open();
  EXPECT_TRUE(part_.any());
  ASSERT_NE(part_.host(), nullptr);
  EXPECT_EQ(part_.EndpointOf(host_.nics[0]), nullptr);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_EQ(host_.events.all[0].severity, telemetry::Severity::kAlert);
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("no_such_nic has no probes"));
  EXPECT_EQ(Transport().transport(), "none");
  EXPECT_EQ(Transport().transport_note(), host_.nics[0].no_probes);
  EXPECT_TRUE(part_.IsByVerbs(*host_.pairs.at(host_.index)));
  ::cwfabric::v1::StatusReply reply;
  part_.AddTo(reply);
  EXPECT_FALSE(reply.has_verbs()) << "it answers nobody";
}

TEST_F(VerbsProbesPart, PortsBelowThoseOfVerbsAreNamed) {
  config_.first_port = config::kFirstVerbsPort - 1;
  Open();
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("probe.first_port"));
}

TEST_F(VerbsProbesPart, ADeviceThatComesEndsTheAgentWhereItIsTheOneThatIsMissing) {
  Open();
  part_.OnDevice("mlx5_1", false);
  EXPECT_THAT(ends_, IsEmpty()) << "it is another NIC's";
  is_there_ = true;
  part_.OnDevice("mlx5_0", true);
  EXPECT_THAT(ends_, IsEmpty()) << "it went, and was not ours";
  part_.OnDevice("mlx5_0", false);
  ASSERT_THAT(ends_, SizeIs(1));
  EXPECT_THAT(ends_[0].text, HasSubstr("RDMA device mlx5_0, which its probes go by, is there"));
}

TEST_F(VerbsProbesPart, ADeviceThatIsThereAndCannotBeOpenedEndsNothingAtEachChange) {
  is_there_ = true;
  Open();
  part_.OnDevice("mlx5_0", false);
  EXPECT_THAT(ends_, IsEmpty()) << "a port of it changed: it would fail as before";
  is_there_ = false;
  part_.OnDevice("mlx5_0", true);
  is_there_ = true;
  part_.OnDevice("mlx5_0", false);
  EXPECT_THAT(ends_, SizeIs(1)) << "it went and came: another firmware, perhaps";
}

}  // namespace
}  // namespace cw::agent
