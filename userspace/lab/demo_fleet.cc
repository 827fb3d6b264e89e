// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/demo_fleet.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/fleet_bed.h"
#include "userspace/lab/testbed.h"
#include "userspace/lab/waiting_rank.h"

namespace cw::lab {
namespace {

constexpr int kCutSpine = 0, kFlapSpine = 1, kSwapOne = 2, kSwapOther = 3, kFlaps = 9;
constexpr int kSlowHost = 2;
constexpr absl::Duration kPatience = absl::Minutes(2), kLook = absl::Milliseconds(100);
constexpr absl::Duration kSettled = absl::Seconds(15);  // the service hears all hosts first
constexpr char kJob[] = "train-7b";

bool WaitFor(const std::function<bool()>& done, absl::Duration limit = kPatience) {
  for (const absl::Time end = absl::Now() + limit; absl::Now() < end; absl::SleepFor(kLook)) {
    if (done()) return true;
  }
  return false;
}

std::string IdOf(const nlohmann::json& finding) { return finding.value("id", ""); }

class FleetRehearsal {
 public:
  explicit FleetRehearsal(const FleetDemoSpec& spec) : spec_(spec) {}

  absl::StatusOr<FleetDemo> Run() {
    if (absl::Status status = Up(); !status.ok()) return status;
    before_ = absl::Now() - absl::Seconds(2);
    for (auto step :
         {&FleetRehearsal::CutSpine, &FleetRehearsal::SwapCables, &FleetRehearsal::Flap, &FleetRehearsal::SlowSender}) {
      if (absl::Status status = (this->*step)(); !status.ok()) return status;
    }
    emulator_->Stop();
    CountEvents();
    ShowTopology();
    return std::move(demo_);
  }

 private:
  absl::Status Up() {
    const int hosts = 2 * spec_.hosts_per_rack;
    TestbedSpec lab;
    lab.fabric = {.lab = "demofleet",
                  .leaves = 2,
                  .spines = spec_.spines,
                  .hosts_per_leaf = spec_.hosts_per_rack,
                  .link_mbps = 100,
                  .host_link_mbps = 100,
                  .ecmp_seed = 1};
    std::error_code error;
    const std::string folder = std::filesystem::absolute(spec_.out, error).string() + "/fleet";
    std::filesystem::remove_all(folder, error);
    std::filesystem::create_directories(folder, error);
    if (error) return absl::FailedPreconditionError(absl::StrCat("cannot make ", folder, ": ", error.message()));
    absl::StatusOr<std::unique_ptr<FleetBed>> bed =
        FleetBed::Make({.folder = folder, .hosts = hosts, .fabric_file = FabricFileOf(lab.fabric)});
    if (!bed.ok()) return bed.status();
    bed_ = *std::move(bed);
    lab.mode = "protect";
    lab.all_hosts = true;
    lab.active_interval = absl::Milliseconds(5);  // all agents share this machine
    lab.adjust = [this](int host, config::Config& config) {
      bed_->Configure(host, config);
      config.probe.reverify_interval = absl::Seconds(5);  // how soon other hops are noticed; 30 s if not given
    };
    std::fprintf(stderr,
                 "A lab on this machine: %d hosts in two racks behind %d spines, an agent each, one cwfleetd.\n", hosts,
                 spec_.spines);
    absl::StatusOr<std::unique_ptr<Testbed>> testbed = Testbed::Up(lab);
    if (!testbed.ok()) return testbed.status();
    testbed_ = *std::move(testbed);
    if (absl::Status status = bed_->Start(testbed_->fabric()); !status.ok()) return status;
    const absl::Time begun = absl::Now();
    const size_t links = 2 * static_cast<size_t>(2 * spec_.spines + hosts);
    const bool there = WaitFor([&] {
      if (!bed_->AllThere() || absl::Now() < begun + kSettled) return false;
      const nlohmann::json reply = bed_->Ask({"fleet", "topology"});
      return reply.contains("links") && reply["links"].size() == links;
    });
    if (!there) return absl::DeadlineExceededError("the service does not see the whole fabric: " + bed_->Log());
    absl::StatusOr<std::unique_ptr<Emulator>> emulator = testbed_->NewEmulator(1);
    if (!emulator.ok()) return emulator.status();
    emulator_ = *std::move(emulator);
    std::fprintf(stderr, "All hosts and links are known after %.0f s.\n", absl::ToDoubleSeconds(absl::Now() - begun));
    return absl::OkStatus();
  }

  nlohmann::json Findings(bool all) const {
    const nlohmann::json reply = all ? bed_->Ask({"fleet", "findings", "--all"}) : bed_->Ask({"fleet", "findings"});
    return reply.contains("findings") ? reply["findings"] : nlohmann::json::array();
  }

  void Begin(const std::string& name, const std::string& what) {
    demo_.cases.push_back({.name = name, .what = what, .finding = {}, .seconds = 0, .others = ""});
    known_.clear();
    for (const nlohmann::json& finding : Findings(true)) known_.insert(IdOf(finding));
    std::fprintf(stderr, "%s ... ", what.c_str());
  }

  // Until cwctl shows a new finding of this cause.
  void Await(const std::string& cause, absl::Time fault_at) {
    FleetDemoCase& now = demo_.cases.back();
    WaitFor([&] {
      for (const nlohmann::json& finding : Findings(false)) {
        if (!known_.contains(IdOf(finding)) && finding.value("cause", "") == cause) now.finding = finding;
      }
      return !now.finding.is_null();
    });
    now.seconds = absl::ToDoubleSeconds(absl::Now() - fault_at);
    std::fprintf(stderr, "%s\n",
                 now.finding.is_null() ? "no finding"
                                       : absl::StrFormat("%s: %s, %.1f s", now.finding.value("cause", ""),
                                                         now.finding.value("scope", ""), now.seconds)
                                             .c_str());
  }

  // Whatever else began is told of. `over`: the fault was mended, so its finding has to end first.
  void Finish(bool over) {
    FleetDemoCase& now = demo_.cases.back();
    const auto gone = [&] {
      const nlohmann::json open = Findings(false);
      return std::none_of(open.begin(), open.end(), [&](const nlohmann::json& f) { return !known_.contains(IdOf(f)); });
    };
    if (over) WaitFor(gone);
    std::vector<std::string> others;
    for (const nlohmann::json& finding : Findings(true)) {
      if (known_.contains(IdOf(finding)) || IdOf(finding) == IdOf(now.finding)) continue;
      others.push_back(absl::StrCat(finding.value("cause", ""), ": ", finding.value("scope", "")));
    }
    now.others = absl::StrJoin(others, "; ");
  }

  absl::Status SetLink(int leaf, int spine, const Fault& fault) {
    absl::Status status = testbed_->fabric().SetFault(LinkDirection::LeafToSpine(leaf, spine), fault).status();
    status.Update(testbed_->fabric().SetFault(LinkDirection::SpineToLeaf(spine, leaf), fault).status());
    return status;
  }

  absl::Status CutSpine() {
    Begin("spine_dead", "a spine forwards nothing any more, its ports stay up");
    const auto set = [&](const Fault& fault) {
      absl::Status status = SetLink(0, kCutSpine, fault);
      status.Update(SetLink(1, kCutSpine, fault));
      return status;
    };
    if (absl::Status status = set(Fault::Drop()); !status.ok()) return status;
    Await("switch dead", absl::Now());
    absl::Status status = set(Fault::None());
    Finish(true);
    return status;
  }

  absl::Status SwapCables() {
    Begin("cables_swapped", "two cables of a leaf are plugged in the wrong way round, and stay so");
    if (absl::Status status = testbed_->fabric().SetCablesSwapped(1, kSwapOne, kSwapOther, true); !status.ok())
      return status;
    Await("cables swapped", absl::Now());
    Finish(false);
    return absl::OkStatus();
  }

  // Paths over the cable that are dead, of all of them, as the service has them.
  std::pair<int, int> DeadOverFlapping() const {
    int dead = 0, all = 0;
    const nlohmann::json reply = bed_->Ask({"fleet", "links"});
    for (const nlohmann::json& link : reply.contains("links") ? reply["links"] : nlohmann::json::array()) {
      const std::string port = link.value("port", "");
      if (port != absl::StrCat("10.1.", kFlapSpine, ".0") && port != absl::StrCat("10.1.", kFlapSpine, ".1")) continue;
      dead += link.value("dead", 0);
      all += link.value("paths", 0);
    }
    return {dead, all};
  }

  absl::Status Flap() {
    Begin("link_flapping", absl::StrFormat("a cable goes and comes back %d times", kFlaps));
    absl::Time last;
    for (int i = 0; i < kFlaps; ++i) {
      if (absl::Status status = SetLink(0, kFlapSpine, Fault::Drop()); !status.ok()) return status;
      last = absl::Now();
      const bool died = WaitFor(
          [&] {
            const auto [dead, all] = DeadOverFlapping();
            return all > 0 && dead >= 0.9 * all;
          },
          absl::Seconds(30));
      if (absl::Status status = SetLink(0, kFlapSpine, Fault::None()); !status.ok()) return status;
      if (i + 1 < kFlaps) WaitFor([&] { return DeadOverFlapping().first == 0; }, absl::Seconds(30));
      std::fprintf(stderr, died ? "." : "!");
    }
    Await("link flapping", last);
    Finish(false);
    return absl::OkStatus();
  }

  // Who sends little is slow only where somebody waits for it.
  absl::Status LetItsCollectiveWait() {
    const AgentHost agent = DescribeAgentHost(testbed_->fabric(), kSlowHost);
    WaitingRankSpec rank{.socket = agent.run_dir + "/inproc.sock", .job = kJob, .qpns = {}, .plugin = ""};
    for (const FlowReport& flow : emulator_->TakeSnapshot().flows) rank.qpns.push_back(flow.source_qpn);
    absl::StatusOr<std::unique_ptr<WaitingRank>> started = WaitingRank::Start(rank);
    if (!started.ok()) return started.status();
    rank_ = *std::move(started);
    return absl::OkStatus();
  }

  absl::Status SlowSender() {
    Begin("slow_sender", "a job whose collective waits for a sender that gives its network card too little");
    JobSpec job;
    job.name = kJob;
    job.pairs = {{kSlowHost, kSlowHost + spec_.hosts_per_rack}};
    job.qps_per_pair = 2;
    job.message_bytes = 256 << 10;
    job.duration = absl::Hours(1);
    job.path_mtu = 4096;
    job.rate = RateConfig::ForLine(90e6);
    job.packet_interval = absl::Milliseconds(4);
    if (absl::StatusOr<int> added = emulator_->AddJob(job); !added.ok()) return added.status();
    if (absl::Status status = emulator_->Start(); !status.ok()) return status;
    if (absl::Status status = LetItsCollectiveWait(); !status.ok()) return status;
    Await("slow sender", absl::Now());
    Finish(false);
    rank_.reset();
    return absl::OkStatus();
  }

  void CountEvents() {
    const auto lost = [&](int host, size_t& twice) {
      const FleetBed::Seen written = bed_->Written(testbed_->fabric(), host), stored = bed_->Stored(host);
      size_t missing = 0;
      twice = 0;
      for (const auto& event : written) missing += stored.contains(event) ? 0 : 1;
      for (const auto& event : stored) twice += stored.count(event) > written.count(event) ? 1 : 0;
      return missing;
    };
    for (int host = 0; host < testbed_->fabric().hosts(); ++host) {
      size_t missing = 0, twice = 0;
      WaitFor([&] { return (missing = lost(host, twice)) == 0; }, absl::Seconds(20));
      demo_.events += bed_->Written(testbed_->fabric(), host).size();
      demo_.events_lost += missing;
      demo_.events_twice += twice;
    }
  }

  void ShowTopology() {
    const std::string at = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", before_, absl::UTCTimeZone());
    const auto show = [&](const std::vector<std::string>& verb) {
      const absl::StatusOr<std::string> text = bed_->Run(verb);
      return absl::StrCat("$ cwctl --fleet 192.168.77.10:9480 ", absl::StrJoin(verb, " "), "\n",
                          text.ok() ? *text : std::string(text.status().message()));
    };
    demo_.now = show({"fleet", "topology"});
    demo_.before = show({"fleet", "topology", "--at", at});
  }

  const FleetDemoSpec spec_;
  FleetDemo demo_;
  absl::Time before_;
  std::set<std::string> known_;
  std::unique_ptr<FleetBed> bed_;  // goes last: agents have its files
  std::unique_ptr<Testbed> testbed_;
  std::unique_ptr<Emulator> emulator_;
  std::unique_ptr<WaitingRank> rank_;
};

std::string JobsOf(const nlohmann::json& finding) {
  const std::vector<std::string> jobs = finding.value("jobs", std::vector<std::string>{});
  return jobs.empty() ? "-" : absl::StrJoin(jobs, " ");
}

// design: a case per fault. What rows have no room for stands beside them.
absl::Status WriteFigures(const FleetDemo& demo, const std::string& path) {
  bench::Report report("demo_fleet");
  nlohmann::json findings = nlohmann::json::array();
  for (const FleetDemoCase& c : demo.cases) {
    const bool found = !c.finding.is_null();
    report.Add(c.name, "cwfabric", "findings", "count", {found ? 1.0 : 0.0});
    if (found) report.Add(c.name, "cwfabric", "fault_to_finding", "ms", {c.seconds * 1e3});
    findings.push_back({{"case", c.name}, {"what", c.what}, {"finding", c.finding}, {"others", c.others}});
  }
  report.Add("all", "cwfabric", "events", "count", {static_cast<double>(demo.events)});
  report.Add("all", "cwfabric", "events_lost", "count", {static_cast<double>(demo.events_lost)});
  report.Add("all", "cwfabric", "events_twice", "count", {static_cast<double>(demo.events_twice)});
  if (absl::Status status = report.Write(path); !status.ok()) return status;
  std::ifstream file(path);
  nlohmann::json whole = nlohmann::json::parse(file, nullptr, false);
  if (whole.is_discarded()) return absl::DataLossError("cannot read " + path);
  whole["findings"] = std::move(findings);
  return WriteFile(path, whole.dump(2) + "\n");
}

}  // namespace

absl::StatusOr<FleetDemo> RunFleetDemo(const FleetDemoSpec& spec) {
  FleetRehearsal rehearsal(spec);
  absl::StatusOr<FleetDemo> demo = rehearsal.Run();
  if (!demo.ok()) return demo;
  if (absl::Status status = WriteFigures(*demo, spec.out + "/fleet.json"); !status.ok()) return status;
  return demo;
}

Table FleetDemoTable(const FleetDemo& demo) {
  Table table{.title = "Four faults, and what the fleet service found",
              .header = {"fault", "finding", "where", "job", "after"},
              .rows = {}};
  for (const FleetDemoCase& c : demo.cases) {
    const bool found = !c.finding.is_null();
    table.rows.push_back({c.name, found ? c.finding.value("cause", "") : "none", c.finding.value("scope", "-"),
                          found ? JobsOf(c.finding) : "-", found ? absl::StrFormat("%.1f s", c.seconds) : "-"});
  }
  return table;
}

std::string FleetDemoText(const FleetDemo& demo) {
  std::string text;
  for (const FleetDemoCase& c : demo.cases) {
    absl::StrAppend(&text, c.name, ": ", c.what, "\n");
    if (c.finding.is_null()) {
      text += "  no finding came\n";
      continue;
    }
    absl::StrAppendFormat(&text, "  %s, %s, after %.1f s\n", c.finding.value("cause", ""), c.finding.value("scope", ""),
                          c.seconds);
    for (const std::string& line : c.finding.value("evidence", std::vector<std::string>{}))
      absl::StrAppend(&text, "    evidence  ", line, "\n");
    absl::StrAppend(&text, "    hosts     ", absl::StrJoin(c.finding.value("hosts", std::vector<std::string>{}), " "),
                    "\n    job       ", JobsOf(c.finding), "\n    to do     ", c.finding.value("advice", ""), "\n");
    if (!c.others.empty()) absl::StrAppend(&text, "    beside it ", c.others, "\n");
  }
  absl::StrAppendFormat(&text, "\n%d events in the agents' own logs, %d of them not in the service, %d twice.\n",
                        demo.events, demo.events_lost, demo.events_twice);
  return text;
}

absl::Status JudgeFleetDemo(const FleetDemo& demo) {
  std::vector<std::string> wrong;
  for (const FleetDemoCase& c : demo.cases) {
    if (c.finding.is_null()) wrong.push_back(c.name + " was not found");
    if (!c.others.empty()) wrong.push_back(c.name + " has more than one finding: " + c.others);
  }
  if (demo.events_lost + demo.events_twice > 0) wrong.push_back("events were lost or doubled");
  return wrong.empty() ? absl::OkStatus() : absl::InternalError(absl::StrJoin(wrong, "; "));
}

}  // namespace cw::lab
