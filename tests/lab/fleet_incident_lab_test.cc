// SPDX-License-Identifier: Apache-2.0
// A spine is cut silently, and afterwards somebody wants to know what that looked like: real agents' rings, cwfleetd's
// incident of it, cwctl with the service and without.
#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/lab/fleet_service_rig.h"
#include "userspace/lab/fabric_process.h"

namespace cw::lab {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class FleetIncidentsOnFabric : public FleetServiceRig {
 protected:
  void SetUp() override { Up(Spec("fleetinc", 1), "", "[incidents]\nbefore = \"30s\"\nafter = \"5s\"\n"); }
  json Incidents() const {
    const json reply = bed_->Ask({"incident", "list"});
    return reply.contains("incidents") ? reply["incidents"] : json::array();
  }
  // Without any service.
  static json Offline(std::vector<std::string> verb) {
    verb.insert(verb.begin(), {CWCTL_BINARY, "incident"});
    verb.emplace_back("--json");
    const absl::StatusOr<std::string> text = RunTool(verb);
    return text.ok() ? json::parse(*text, nullptr, false) : json{{"error", std::string(text.status().message())}};
  }
  std::string RefusedOf(const std::vector<std::string>& verb, const std::string& user) const {
    return std::string(bed_->Run(verb, user).status().message());
  }
};

TEST_F(FleetIncidentsOnFabric, ACutSpineLeavesSamplesOfBothSidesAndIsFoundAgainOffline) {
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_TRUE(Eventually([&] { return SeesAll(); })) << Ask({"topology"}).dump(1) << Why();
  EXPECT_TRUE(Incidents().empty());
  for (int leaf = 0; leaf < 2; ++leaf) ASSERT_TRUE(SetCable(leaf, 1, Fault::Drop()).ok());
  ASSERT_TRUE(Eventually([&] { return !TheOne("switch dead").is_null(); })) << Why();
  ASSERT_TRUE(Eventually([&] { return Incidents().size() == 1 && Incidents()[0]["state"] == "done"; }))
      << Incidents().dump(1) << Why();
  const json incident = Incidents()[0];
  const auto id = incident["id"].get<std::string>();
  EXPECT_EQ(incident["finding"]["id"], TheOne("switch dead")["id"]);
  ASSERT_EQ(incident["hosts"].size(), 2u) << incident.dump(1);
  for (const json& host : incident["hosts"]) EXPECT_EQ(host["source"], "ring") << host.dump(1);

  const std::string file = folder_ + "/spine.incident";
  ASSERT_TRUE(bed_->Run({"incident", "export", id, file}).ok()) << Why();
  const json view = Offline({"show", file});
  ASSERT_TRUE(view.contains("paths")) << view.dump(1);
  EXPECT_EQ(view, bed_->Ask({"incident", "show", id}));
  for (const char* host : {"h0", "h1"}) {
    bool died = false, lived = false;
    for (const json& path : view["paths"]) {
      if (path["host"] != host || path["reverse"]) continue;
      if (path["worst"] == "dead") died |= path["samples_before"].get<int>() > 0 && path["lost_after"].get<int>() > 0;
      if (path["worst"] == "up") lived |= path["samples_before"].get<int>() > 0 && path["samples_after"].get<int>() > 0;
    }
    EXPECT_TRUE(died && lived) << host << view["paths"].dump(1);
  }
  bool told = false;
  for (const json& step : view["steps"])
    told |= step["what"] == "paths" && step["words"].get<std::string>().find("then dead") != std::string::npos;
  EXPECT_TRUE(told) << view["steps"].dump(1);
  EXPECT_GT(view["delays"].size(), 15u);

  const json replay = Offline({"replay", file});
  ASSERT_TRUE(replay.contains("findings")) << replay.dump(1);
  ASSERT_EQ(replay["findings"].size(), 1u) << replay.dump(1);
  EXPECT_EQ(replay["findings"][0]["cause"], "switch dead");
  EXPECT_THAT(replay["findings"][0]["scope"].get<std::string>(), HasSubstr("switch spine1"));

  // By hand: who may, and of what.
  EXPECT_THAT(RefusedOf({"incident", "take", "--host", "h0", "--for", "2s"}, "alice"),
              HasSubstr("takes the role steer"));
  EXPECT_THAT(RefusedOf({"incident", "take", "--host", "h7", "--for", "2s"}, "root0"), HasSubstr("has heard of none"));
  EXPECT_THAT(RefusedOf({"incident", "take"}, "root0"), HasSubstr("--finding ID"));
  EXPECT_THAT(RefusedOf({"incident", "show", "0123"}, "alice"), HasSubstr("no incident 0123"));
  const json taken = bed_->Ask({"incident", "take", "--host", "h0", "--for", "6s", "--reason", "a look"}, "root0");
  ASSERT_TRUE(taken.contains("id")) << taken.dump(1);
  EXPECT_THAT(taken["reason"].get<std::string>(), AllOf(HasSubstr("a look"), HasSubstr("root0")));
  EXPECT_TRUE(Eventually([&] { return Incidents().size() == 2 && Incidents()[0]["state"] == "done"; }))
      << Incidents().dump(1) << Why();
  EXPECT_EQ(Incidents()[0]["id"], taken["id"]);
}

}  // namespace
}  // namespace cw::lab
