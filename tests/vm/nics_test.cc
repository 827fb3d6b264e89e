// SPDX-License-Identifier: Apache-2.0
// What the agent says of real soft-RoCE devices and of queue pairs whose packets it does not see, against what
// ibv_devinfo, rdma and the switches say.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/vm/agents_fixture.h"

namespace cw::vm {
namespace {

class NicsTest : public AgentsFixture {
 protected:
  static RackOptions Options() {
    RackOptions options;
    options.lab = "vmnics";
    options.log_dir = CW_VM_LOG_DIR "/nics";
    options.image.files = AgentFiles(CW_AGENTD, CW_CTL);
    options.image.files.push_back({"/usr/bin/ibv_devinfo", "/usr/bin/ibv_devinfo"});
    options.image.files.push_back({"/usr/bin/date", "/usr/bin/date"});  // busybox's knows no nanoseconds
    return options;
  }
  static void SetUpTestSuite() { Begin(Options(), AgentConfig()); }

  // The value behind "name:" in ibv_devinfo's report, its first word.
  static std::string Told(const std::string& report, const std::string& name) {
    std::istringstream lines(report);
    for (std::string line; std::getline(lines, line);) {
      const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 1));
      if (parts.size() != 2 || absl::StripAsciiWhitespace(parts[0]) != name) continue;
      std::string word;
      std::istringstream(parts[1]) >> word;
      return word;
    }
    return "";
  }

  nlohmann::json Nic() {
    auto nics = agents_->Ctl(0, "nics");
    EXPECT_TRUE(nics.ok()) << nics.status();
    return nics.ok() ? nics->at("nics").at(0) : nlohmann::json();
  }

  bool EventSays(const std::string& text) {
    auto events = agents_->Events(0, "rdma");
    return events.ok() && std::any_of(events->begin(), events->end(), [&](const nlohmann::json& event) {
             return absl::StrContains(event.at("text").get<std::string>(), text);
           });
  }

  // Queue pairs of machine 0 whose port is known in the given way.
  std::vector<nlohmann::json> Flows(const std::string& from) {
    std::vector<nlohmann::json> flows;
    auto reply = agents_->Ctl(0, "qps");
    if (!reply.ok()) return flows;
    for (const auto& flow : reply->at("flows")) {
      if (flow.at("port_from") == from && flow.at("process") == "ib_write_bw") flows.push_back(flow);
    }
    return flows;
  }

  void ExpectOnTheWireAsTold(const std::vector<nlohmann::json>& flows) {
    auto spines = rack_->SpinesByQpn();
    ASSERT_TRUE(spines.ok()) << spines.status();
    for (const nlohmann::json& flow : flows) {
      const uint32_t qpn = flow.at("remote_qpn");
      ASSERT_TRUE(spines->count(qpn)) << "no packet to " << flow.dump();
      EXPECT_EQ(rack_->fabric()
                    .PathOf(Rack::FabricAddress(0), Rack::FabricAddress(1), flow.at("udp_port").get<uint16_t>())
                    .value_or(-1),
                spines->at(qpn))
          << flow.dump();
    }
  }
};

// Nothing sees the packets of eth0, as where a NIC offloads RoCE.
class UnseenTest : public NicsTest {
 protected:
  static void SetUpTestSuite() { Begin(Options(), UnattachedConfig()); }

  static config::Config UnattachedConfig() {
    config::Config config = AgentConfig();
    config.nics[0].attach = config::Attach::kNone;
    return config;
  }
};

TEST_F(NicsTest, NicsSayWhatTheDeviceSays) {
  auto report = rack_->machine(0).Run("ibv_devinfo -v -d rxe0");
  ASSERT_TRUE(report.ok()) << report.status();
  auto link = rack_->machine(0).Run("rdma link show rxe0/1");
  ASSERT_TRUE(link.ok()) << link.status();
  const nlohmann::json nic = Nic(), port = nic.at("ports").at(0);
  EXPECT_EQ(nic.at("name"), "rxe0");
  EXPECT_EQ(nic.at("kind"), "software");
  EXPECT_EQ(nic.at("node_guid"), Told(*report, "node_guid"));
  EXPECT_EQ(nic.at("sys_image_guid"), Told(*report, "sys_image_guid"));
  EXPECT_EQ(nic.at("agent_nics"), nlohmann::json({"eth0"}));
  EXPECT_EQ(Told(*report, "state"), "PORT_ACTIVE") << *report;
  EXPECT_EQ(port.at("state"), "active");
  EXPECT_EQ(absl::StrCat(port.at("active_mtu").get<int>()), Told(*report, "active_mtu"));
  EXPECT_EQ(port.at("link_layer"), Told(*report, "link_layer"));
  EXPECT_TRUE(absl::StrContains(*link, "state ACTIVE physical_state LINK_UP netdev eth0")) << *link;
  EXPECT_EQ(port.at("physical_state"), "linkup");
  EXPECT_EQ(port.at("netdev"), "eth0");
  EXPECT_EQ(port.at("netdev_mtu"), 4500);
  // Every GID that the one has the other has, at the same index and of the same type.
  size_t told = 0;
  std::istringstream lines(*report);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("GID[");
    if (at == std::string::npos) continue;
    const uint32_t index = static_cast<uint32_t>(std::strtoul(line.c_str() + at + 4, nullptr, 10));
    const auto gid = std::find_if(port.at("gids").begin(), port.at("gids").end(),
                                  [&](const nlohmann::json& each) { return each.at("index") == index; });
    ASSERT_NE(gid, port.at("gids").end()) << line;
    EXPECT_TRUE(absl::StrContains(line, gid->at("address").get<std::string>())) << line << gid->dump();
    EXPECT_TRUE(absl::StrContains(line, gid->at("type").get<std::string>())) << line << gid->dump();
    ++told;
  }
  EXPECT_GT(told, 0u) << *report;
  EXPECT_EQ(told, port.at("gids").size()) << *report << port.dump();
  std::printf("%s", agents_->CtlText(0, "nics").value_or("cwctl nics failed").c_str());
}

TEST_F(NicsTest, CountersThatMovedAndEvents) {
  auto run = Perftest::Start(*rack_, {.arguments = "-q 1 -D 4 -s 65536 -u 18"});
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE((*run)->Wait(absl::Seconds(90)).ok());
  const nlohmann::json counters = Nic().at("ports").at(0).at("counters");
  EXPECT_TRUE(std::any_of(counters.begin(), counters.end(), [](const nlohmann::json& counter) {
    return counter.at("name") == "sent_pkts" && counter.at("moved").get<uint64_t>() > 0;
  })) << counters.dump();

  ASSERT_TRUE(rack_->machine(0).Run("ip addr add 10.99.0.7/32 dev eth0").ok());
  EXPECT_TRUE(Eventually([&] { return EventSays("new: 10.99.0.7 (RoCE v2"); })) << Logs();
  ASSERT_TRUE(rack_->machine(0).Run("ip addr del 10.99.0.7/32 dev eth0").ok());
  EXPECT_TRUE(Eventually([&] { return EventSays("gone: 10.99.0.7 (RoCE v2"); })) << Logs();

  auto route = rack_->machine(0).Run("ip route show default dev eth0");
  ASSERT_TRUE(route.ok()) << route.status();
  ASSERT_TRUE(rack_->machine(0).Run("ip link set eth0 down").ok());
  EXPECT_TRUE(Eventually([&] { return EventSays("port of rxe0 (eth0) went from ACTIVE to DOWN"); })) << Logs();
  auto findings = agents_->Ctl(0, "nics");
  ASSERT_TRUE(findings.ok()) << findings.status();
  EXPECT_EQ(findings->at("findings").at(0).at("kind"), "port_down") << findings->dump();
  ASSERT_TRUE(rack_->machine(0).Run("ip link set eth0 up").ok());
  EXPECT_TRUE(Eventually([&] { return EventSays("port of rxe0 (eth0) is active again"); })) << Logs();
  if (!route->empty()) rack_->machine(0).Run(absl::StrCat("ip route replace ", *route, " dev eth0")).IgnoreError();
}

TEST_F(NicsTest, ADeviceThatComesAndGoes) {
  auto began = rack_->machine(0).Run("/usr/bin/date +%s%N && rdma link add rxe9 type rxe netdev eth1");
  ASSERT_TRUE(began.ok()) << began.status();
  ASSERT_TRUE(Eventually([&] { return EventSays("RDMA device rxe9 appeared"); })) << Logs();
  ASSERT_TRUE(rack_->machine(0).Run("rdma link delete rxe9").ok());
  EXPECT_TRUE(Eventually([&] { return EventSays("RDMA device rxe9 is gone"); })) << Logs();
  auto events = agents_->Events(0, "rdma");
  ASSERT_TRUE(events.ok()) << events.status();
  for (const nlohmann::json& event : *events) {
    if (event.at("text") != "RDMA device rxe9 appeared") continue;
    const int64_t after_ns = event.at("time_unix_ns").get<int64_t>() - std::atoll(began->c_str());
    std::printf("told after %d ms\n", static_cast<int>(after_ns / 1'000'000));
  }
}

// Without libcwverbs and without rdma_cm: Linux makes the port of both QPNs, and who the peer is the kernel alone
// tells, at the moment they connect.
TEST_F(UnseenTest, PathsOfQueuePairsByTheirQpns) {
  auto run = Perftest::Start(*rack_, {.arguments = "-q 4 -D 400 -s 65536 -u 18"});
  ASSERT_TRUE(run.ok()) << run.status();
  std::vector<nlohmann::json> flows;
  EXPECT_TRUE(Eventually([&] { return (flows = Flows("qpns")).size() == 4; }, absl::Seconds(60), absl::Seconds(2)))
      << agents_->CtlText(0, "qps").value_or("") << Logs();
  for (const nlohmann::json& flow : flows) {
    EXPECT_EQ(flow.at("nic"), "rxe0");
    EXPECT_EQ(flow.at("state"), "RTS");
    EXPECT_GE(flow.at("udp_port").get<int>(), 0xc000);
    EXPECT_EQ(flow.at("remote_address"), Rack::FabricAddress(1));
  }
  auto doctor = agents_->CtlText(0, "doctor || true");
  EXPECT_TRUE(doctor.ok() && absl::StrContains(*doctor, "told by the kernel as they connect")) << *doctor;
  auto events = agents_->Events(0, "flow");
  ASSERT_TRUE(events.ok()) << events.status();
  int told = 0;
  for (const nlohmann::json& event : *events) {
    if (!absl::StrContains(event.at("text").get<std::string>(), "of ib_write_bw")) continue;
    ++told;
    for (const auto& evidence : event.at("evidence")) {
      if (evidence.at("name") != "told_after_us") continue;
      std::printf("told after %s us\n", evidence.at("value").get<std::string>().c_str());
      EXPECT_LT(std::atol(evidence.at("value").get<std::string>().c_str()), 2'000'000) << "no sooner than a list";
    }
  }
  EXPECT_EQ(told, 4) << Logs();
  auto result = (*run)->Finish(absl::Seconds(90));
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectOnTheWireAsTold(flows);
  // They are gone as soon as perftest is.
  EXPECT_TRUE(Eventually([&] { return Flows("qpns").empty(); }));
}

// Agents that come later have missed the moment. rdma_cm still knows the other end, and the flow label that it gave.
TEST_F(UnseenTest, PathsOfQueuePairsThatRdmaCmConnected) {
  const std::string line = "renice -n 19 -p $$ && exec ib_write_bw -d rxe0 -F -R -q 4 -D 180 -s 65536 -u 18 -p 18620";
  auto server = rack_->machine(1).Start(line);
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE(Eventually([&] {
    auto listens = rack_->machine(1).Run("rdma resource show cm_id");
    return listens.ok() && absl::StrContains(*listens, "18620");
  })) << (*server)->output();
  auto client = rack_->machine(0).Start(absl::StrCat(line, " ", Rack::FabricAddress(1)));
  ASSERT_TRUE(client.ok()) << client.status();
  auto ready = WaitForQueuePairs(rack_->machine(0), 4, absl::Seconds(60));
  ASSERT_TRUE(ready.ok()) << ready.status() << (*client)->output() << (*server)->output();
  StartAgents(UnattachedConfig());
  ASSERT_TRUE(setup_.ok()) << setup_;
  std::vector<nlohmann::json> flows;
  EXPECT_TRUE(Eventually(
      [&] {
        flows = Flows("label");
        return flows.size() >= 4 && std::all_of(flows.begin(), flows.end(), [](const nlohmann::json& flow) {
                 return flow.at("slot").get<int>() >= 0;
               });
      },
      absl::Seconds(150), absl::Seconds(2)))
      << agents_->CtlText(0, "qps").value_or("") << agents_->CtlText(0, "paths").value_or("") << (*client)->output()
      << rack_->machine(0).Run("rdma resource show cm_id; rdma resource show qp").value_or("") << Logs();
  ExpectOnTheWireAsTold(flows);
  // perftest makes one queue pair more than -q says when rdma_cm connects it: for what the two ends agree on.
  for (int end : {0, 1}) {
    const std::string kernel = rack_->machine(end).Run("rdma resource show qp").value_or("");
    const std::vector<std::string> connected = absl::StrSplit(kernel, "type RC state RTS");
    auto qps = agents_->Ctl(end, "qps");
    ASSERT_TRUE(qps.ok()) << qps.status();
    EXPECT_EQ(qps->at("flows").size() + 1, connected.size()) << "end " << end << "\n" << kernel << qps->dump(1);
  }
  auto paths = agents_->Ctl(0, "paths");
  ASSERT_TRUE(paths.ok()) << paths.status();
  for (const nlohmann::json& flow : flows) {
    EXPECT_EQ(flow.at("peer"), paths->at("pairs").at(0).at("peer"));
    for (const auto& path : paths->at("pairs").at(0).at("paths")) {
      if (path.at("slot") != flow.at("slot")) continue;
      EXPECT_EQ(rack_->fabric()
                    .PathOf(Rack::FabricAddress(0), Rack::FabricAddress(1), path.at("udp_port").get<uint16_t>())
                    .value_or(-1),
                rack_->fabric()
                    .PathOf(Rack::FabricAddress(0), Rack::FabricAddress(1), flow.at("udp_port").get<uint16_t>())
                    .value_or(-2))
          << flow.dump() << path.dump();
    }
  }
}

}  // namespace
}  // namespace cw::vm
