// SPDX-License-Identifier: Apache-2.0
#include "tests/lab/fleet_truth_cases.h"

#include <csignal>
#include <cstdlib>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/lab/fleet_truth_bed.h"
#include "tests/lab/fleet_truth_places.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

// Hosts h0 and h1 are on leaf0, h2 and h3 on leaf1, h4 and h5 on leaf2; the service runs on h0.
using Do = std::function<absl::Status(TruthBed&)>;

constexpr absl::Duration kForGood = absl::InfiniteDuration();
// An agent is called gone after 30 s, and grey is seen after two intervals of 10 s: whoever is called so wrongly is
// called so by then.
constexpr absl::Duration kLateWords = absl::Seconds(40);

std::string AddressOf(int host) { return absl::StrCat("10.0.", host / 2, ".", 10 + host % 2); }
std::string Eth0(int host) { return OfNic(host, "eth0", AddressOf(host)); }

Do OnHost(absl::Status (*what)(Testbed&, int), int host) {
  return [what, host](TruthBed& bed) { return what(bed.testbed(), host); };
}
Do Port(int host, bool cut) {
  return [=](TruthBed& bed) { return CutPort(bed.fabric(), host, cut); };
}
Do Carrier(int host, bool up) {
  return [=](TruthBed& bed) { return bed.fabric().SetHostLinkUp(host, up); };
}
Do SecondPort(int host, bool cut) {
  return [=](TruthBed& bed) { return CutPort(bed.fabric(), bed.testbed().second_port(host), cut); };
}
Do Leaf(int leaf, bool cut) {
  return [=](TruthBed& bed) { return CutLeaf(bed.testbed(), leaf, cut); };
}
Do LeafPower(int leaf, bool on) {
  return [=](TruthBed& bed) { return SetLeafPower(bed.testbed(), leaf, on); };
}
Do Spine(int spine, bool cut) {
  return [=](TruthBed& bed) { return CutSpine(bed.fabric(), spine, cut); };
}
Do Cable(int leaf, int spine, const Fault& fault) {
  return [=](TruthBed& bed) { return bed.SetCable(leaf, spine, fault); };
}
Do Link(const LinkDirection& link, const Fault& fault) {
  return [=](TruthBed& bed) { return bed.fabric().SetFault(link, fault).status(); };
}
Do Mend(const LinkDirection& link) { return Link(link, Fault::None()); }
Do Swap(int leaf, int one, int other, bool swapped) {
  return [=](TruthBed& bed) { return bed.fabric().SetCablesSwapped(leaf, one, other, swapped); };
}
absl::Status SetMtu(const std::string& netns, const std::string& device, int mtu) {
  return RunInNetns(netns, [&] {
    const std::string line = absl::StrCat("ip link set ", device, " mtu ", mtu);
    return std::system(line.c_str()) == 0 ? absl::OkStatus() : absl::InternalError(line);
  });
}
constexpr int kSmallMtu = 1500, kUsualMtu = 4500;  // the lab's NICs have the usual one
Do PortMtu(int leaf, int spine, int mtu) {
  return [=](TruthBed& bed) { return SetMtu(bed.fabric().LeafNetns(leaf), absl::StrCat("spine", spine), mtu); };
}
Do SpineMtu(int spine, int mtu) {
  return [=](TruthBed& bed) {
    absl::Status status;
    for (int leaf = 0; leaf < bed.fabric().spec().leaves; ++leaf)
      status.Update(SetMtu(bed.fabric().SpineNetns(spine), absl::StrCat("leaf", leaf), mtu));
    return status;
  };
}
absl::Status StartAgain(Testbed& testbed, int host) { return testbed.StartAgent(host); }
absl::Status Restart(Testbed& testbed, int host) {
  const absl::Status ended = EndAgent(testbed, host, SIGTERM);
  return ended.ok() ? testbed.StartAgent(host) : ended;
}
absl::Status StopSending(TruthBed& bed) {
  bed.StopSending();
  return absl::OkStatus();
}

TruthCase Breaks(const std::string& name, Do begin, Do end, std::vector<Answer> right) {
  TruthCase c{
      .name = name, .begin = std::move(begin), .end = std::move(end), .right = std::move(right), .while_open = nullptr};
  return c;
}

// At most so many packets of each queue pair are under way, so that queues stand and nothing is lost.
JobSpec Flood(std::vector<JobPair> pairs, int qps, absl::Duration interval, uint32_t mtu, uint32_t window) {
  JobSpec job;
  job.name = "flood";
  job.pairs = std::move(pairs);
  job.qps_per_pair = qps;
  job.message_bytes = 256 << 10;
  job.duration = absl::Hours(1);
  job.packet_interval = interval;
  job.path_mtu = mtu;
  job.window = window;
  job.ack_every = 1;
  job.rate.reacts = false;
  job.timeout = 19;  // 2.1 s: what waits in a queue is not sent again
  return job;
}

std::vector<TruthCase> MakeHostFaults() {
  std::vector<TruthCase> cases = {
      Breaks("host_without_power", OnHost(PowerOff, 3), OnHost(PowerOn, 3), {{"host down", OfHost(3)}}),
      Breaks("host_reboots", OnHost(PowerOff, 4), OnHost(PowerOn, 4), {{"host down", OfHost(4)}}),
      Breaks("agent_killed", OnHost(KillAgent, 1), OnHost(StartAgain, 1), {{"agent gone", OfHost(1)}}),
      Breaks("agent_frozen", OnHost(StopAgent, 5), OnHost(ContinueAgent, 5), {{"agent gone", OfHost(5)}}),
      Breaks("nic_silent", Port(2, true), Port(2, false), {{"NIC down", Eth0(2)}}),
      Breaks("nic_without_carrier", Carrier(4, false), Carrier(4, true), {{"NIC down", Eth0(4)}}),
      Breaks("nic_mute", Link(LinkDirection::HostToLeaf(2), Fault::Drop()), Mend(LinkDirection::HostToLeaf(2)),
             {{"NIC down", Eth0(2)}}),
      Breaks("nic_deaf", Link(LinkDirection::LeafToHost(2), Fault::Drop()), Mend(LinkDirection::LeafToHost(2)),
             {{"NIC down", Eth0(2)}}),
  };
  cases[0].lasts = kLateWords;
  cases[2].limit = cases[3].limit = absl::Seconds(75);
  cases[4].lasts = absl::Seconds(25);
  TruthCase starved = Breaks(
      "host_starved",
      [](TruthBed& bed) {
        bed.Starve(5);
        return absl::OkStatus();
      },
      [](TruthBed& bed) {
        bed.Feed();
        return absl::OkStatus();
      },
      {{".*(busy|late|starved).*", OfHost(5)}});
  starved.needed = false;
  starved.lasts = kLateWords;
  starved.limit = absl::Minutes(1);
  cases.push_back(starved);
  return cases;
}

std::vector<TruthCase> MakeFabricFaults() {
  const LinkDirection up = LinkDirection::LeafToSpine(2, 1), down = LinkDirection::SpineToLeaf(2, 0);
  std::vector<TruthCase> cases = {
      Breaks("leaf_silent", Leaf(1, true), Leaf(1, false), {{"switch dead", OfLeaf(1)}}),
      Breaks("spine_silent", Spine(0, true), Spine(0, false), {{"switch dead", OfSpine(0)}}),
      Breaks("uplink_one_direction", Link(up, Fault::Drop()), Mend(up), {{"link dead", OfUplink(2, 1)}}),
      Breaks("downlink_one_direction", Link(down, Fault::Drop()), Mend(down), {{"link dead", OfDownlink(2, 0)}}),
      Breaks("cable_cut", Cable(1, 2, Fault::Drop()), Cable(1, 2, Fault::None()), {{"link dead", OfCable(1, 2)}}),
      Breaks("uplink_grey_5", Link(up, Fault::Share(0.05)), Mend(up), {{"link grey", OfUplink(2, 1)}}),
      Breaks("downlink_grey_1", Link(down, Fault::Share(0.01)), Mend(down), {{"link grey", OfDownlink(2, 0)}}),
      Breaks("cables_swapped", Swap(1, 1, 2, true), Swap(1, 1, 2, false),
             {{"cables swapped", OfAddress("10.1.1.3") + ".*" + OfAddress("10.1.2.3")}}),
      Breaks("cut_and_agent_restarts", Cable(2, 0, Fault::Drop()), Cable(2, 0, Fault::None()),
             {{"link dead", OfCable(2, 0)}}),
      Breaks(
          "cable_flaps",
          [](TruthBed& bed) {
            bed.Flap(0, 0, 11, [] { return TruthBed::FlapTimes{absl::Seconds(2), absl::Seconds(2)}; });
            return absl::OkStatus();
          },
          [](TruthBed& bed) { return bed.EndFlaps(); }, {{"link flapping", OfCable(0, 0)}}),
  };
  TruthCase dark = Breaks("leaf_without_power", LeafPower(2, false), LeafPower(2, true), {{"switch dead", OfLeaf(2)}});
  dark.lasts = absl::Seconds(25);
  cases[0].lasts = absl::Seconds(35);
  cases[5].limit = cases[6].limit = absl::Minutes(1);
  cases[5].over_within = cases[6].over_within = absl::Seconds(60);  // it has to see good intervals first
  cases[7].over_within = absl::Seconds(90);                         // and paths have to be traced again
  cases[8].while_open = OnHost(Restart, 4);
  cases[8].lasts = absl::Seconds(30);
  cases[9].limit = absl::Minutes(1);
  cases[9].over_within = kForGood;
  TruthCase port =
      Breaks("port_mtu", PortMtu(1, 2, kSmallMtu), PortMtu(1, 2, kUsualMtu), {{"packet size", OfCable(1, 2)}});
  TruthCase spine = Breaks("spine_mtu", SpineMtu(1, kSmallMtu), SpineMtu(1, kUsualMtu), {{"packet size", OfSpine(1)}});
  port.limit = spine.limit = absl::Minutes(1);
  port.lasts = spine.lasts = absl::Seconds(45);
  port.over_within = spine.over_within = absl::Seconds(60);
  cases.insert(cases.begin() + 1, {dark, port, spine});  // what flaps comes last: it stays open
  return cases;
}

std::vector<TruthCase> MakeTrafficFaults() {
  const LinkDirection up = LinkDirection::LeafToSpine(1, 0);
  std::vector<TruthCase> cases = {
      Breaks("healthy_traffic",
             [](TruthBed& bed) {
               return bed.Send(Flood({{0, 2}, {3, 5}, {4, 1}}, 4, absl::Milliseconds(2), 1024, 128));
             },
             StopSending, {}),
      Breaks(
          "link_congested",
          [up](TruthBed& bed) {
            absl::Status status = bed.fabric().SetLinkRate(up, 5).status();
            status.Update(bed.Send(Flood({{2, 0}, {3, 4}}, 12, absl::Milliseconds(8), 1024, 2)));
            return status;
          },
          [up](TruthBed& bed) {
            bed.StopSending();
            return bed.fabric().SetLinkRate(up, bed.fabric().spec().link_mbps).status();
          },
          {{"congestion", OfUplink(1, 0)}}),
      Breaks("incast",
             [](TruthBed& bed) {
               return bed.Send(Flood({{0, 2}, {1, 2}, {4, 2}, {5, 2}}, 2, absl::Microseconds(1600), 4096, 6));
             },
             StopSending, {{"incast", Eth0(2) + "|" + OfHost(2)}}),
  };
  cases[0].lasts = absl::Seconds(30);
  cases[1].limit = cases[2].limit = absl::Minutes(1);
  cases[1].over_within = cases[2].over_within = absl::Seconds(60);
  return cases;
}

// Twelve flaps, each of 2 to 30 s and down for a third to two thirds of it, while hosts on both sides write.
TruthCase MakeFlapsUnderWrites() {
  TruthCase flaps = Breaks(
      "cable_flaps_under_writes",
      [](TruthBed& bed) {
        const auto random = std::make_shared<std::mt19937_64>(std::random_device{}());
        bed.Flap(0, 0, 12, [random] {
          const absl::Duration period = absl::Seconds(std::uniform_real_distribution(2.0, 30.0)(*random));
          const double down = std::uniform_real_distribution(0.34, 0.66)(*random);
          return TruthBed::FlapTimes{down * period, (1 - down) * period};
        });
        JobSpec writes = Flood({{0, 2}, {3, 1}, {4, 0}, {1, 5}}, 4, absl::Milliseconds(2), 1024, 128);
        writes.operation = Operation::kWrite;
        return bed.Send(writes);
      },
      [](TruthBed& bed) {
        const absl::Status ended = bed.EndFlaps();
        bed.StopSending();
        return ended;
      },
      {{"link flapping", OfCable(0, 0)}});
  flaps.limit = flaps.lasts = absl::Minutes(6);
  flaps.over_within = kForGood;
  return flaps;
}

std::vector<TruthCase> MakeRailFaults() {
  const LinkDirection up = LinkDirection::LeafToSpine(2, 1);
  // Ports of second NICs have the numbers after those of the first.
  const auto eth1 = [](int host) {
    return OfNic(host, "eth1", absl::StrCat("10.0.", (host / 2 + 1) % 3, ".", 106 + host));
  };
  std::vector<TruthCase> cases = {
      Breaks("rails_first_nic_silent", Port(2, true), Port(2, false), {{"NIC down", Eth0(2)}}),
      Breaks("rails_second_nic_silent", SecondPort(4, true), SecondPort(4, false), {{"NIC down", eth1(4)}}),
      Breaks("rails_nic_no_carrier", Carrier(3, false), Carrier(3, true), {{"NIC down", Eth0(3)}}),
      Breaks("rails_leaf_silent", Leaf(1, true), Leaf(1, false), {{"switch dead", OfLeaf(1)}}),
      Breaks("rails_host_without_power", OnHost(PowerOff, 5), OnHost(PowerOn, 5), {{"host down", OfHost(5)}}),
      Breaks("rails_one_direction", Link(up, Fault::Drop()), Mend(up), {{"link dead", OfUplink(2, 1)}}),
  };
  for (const size_t slow : {0, 1, 3}) cases[slow].lasts = absl::Seconds(25);
  cases[4].lasts = kLateWords;
  return cases;
}

}  // namespace

const std::vector<TruthCase>& HostFaults() {
  static const auto& cases = *new std::vector<TruthCase>(MakeHostFaults());
  return cases;
}
const std::vector<TruthCase>& FabricFaults() {
  static const auto& cases = *new std::vector<TruthCase>(MakeFabricFaults());
  return cases;
}
const std::vector<TruthCase>& TrafficFaults() {
  static const auto& cases = *new std::vector<TruthCase>(MakeTrafficFaults());
  return cases;
}
const std::vector<TruthCase>& RailFaults() {
  static const auto& cases = *new std::vector<TruthCase>(MakeRailFaults());
  return cases;
}

const TruthCase& FlapsUnderWrites() {
  static const auto& flaps = *new TruthCase(MakeFlapsUnderWrites());
  return flaps;
}

const TruthCase& CaseNamed(const std::string& name) {
  for (const auto* cases : {&HostFaults(), &FabricFaults(), &TrafficFaults(), &RailFaults()}) {
    for (const TruthCase& c : *cases) {
      if (c.name == name) return c;
    }
  }
  std::abort();
}

std::vector<TruthPair> TruthPairs() {
  std::vector<TruthPair> pairs;
  const std::vector<std::pair<const char*, const char*>> names = {
      {"host_without_power", "uplink_one_direction"},  // the other way to find it is by paths that cross both
      {"host_without_power", "host_reboots"},          // two hosts, of two racks
      {"nic_silent", "host_without_power"},            // a rack of which nothing is heard, whose leaf is well
      {"nic_mute", "host_without_power"},              // the same where its other NIC works in one direction
      {"nic_deaf", "host_without_power"},
      {"leaf_silent", "agent_killed"},
      {"nic_silent", "downlink_grey_1"},
      {"spine_silent", "nic_without_carrier"},
      {"host_starved", "cable_cut"},
      {"agent_frozen", "uplink_grey_5"},
  };
  for (const auto& [one, other] : names) pairs.push_back({&CaseNamed(one), &CaseNamed(other)});
  return pairs;
}

}  // namespace cw::lab
