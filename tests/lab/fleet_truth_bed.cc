// SPDX-License-Identifier: Apache-2.0
#include "tests/lab/fleet_truth_bed.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/lab/eventually.h"

namespace cw::lab {
namespace {

constexpr int kLeaves = 3, kHostsPerLeaf = 2;
constexpr absl::Duration kLook = absl::Milliseconds(250);
constexpr absl::Duration kSettled = absl::Seconds(15);   // the service hears all hosts first
constexpr absl::Duration kLeftOver = absl::Seconds(60);  // what a fault left behind is waited for before the next
constexpr absl::Duration kStays = absl::Seconds(2);      // a look at what rightly stays open

TestbedSpec LabOf(const TruthBedSpec& spec) {
  TestbedSpec lab;
  lab.fabric = {.lab = spec.lab,
                .leaves = kLeaves,
                .spines = spec.spines,
                .hosts_per_leaf = kHostsPerLeaf,
                .link_mbps = 200,
                .host_link_mbps = 100,
                .ecmp_seed = 1};
  lab.mode = spec.mode;
  lab.all_hosts = true;
  lab.active_interval = absl::Milliseconds(5);  // all agents share this machine
  lab.agent_binary = CWLAB_AGENTD_BINARY;
  if (spec.two_nics) lab.second_nics = {1, 1, 2, 2, 0, 0};
  return lab;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TruthBed>> TruthBed::Up(const TruthBedSpec& spec) {
  std::unique_ptr<TruthBed> bed(new TruthBed);
  if (absl::Status status = bed->Start(spec); !status.ok()) return status;
  return bed;
}

absl::Status TruthBed::Start(const TruthBedSpec& spec) {
  std::string name = (std::filesystem::temp_directory_path() / "cw_truth_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) return absl::ErrnoToStatus(errno, "a folder");
  folder_ = name;
  TestbedSpec lab = LabOf(spec);
  absl::StatusOr<std::unique_ptr<FleetBed>> bed = FleetBed::Make({.folder = folder_,
                                                                  .hosts = kLeaves * kHostsPerLeaf,
                                                                  .store = "",
                                                                  .fabric_file = FabricFileOf(lab.fabric),
                                                                  .more_config = "",
                                                                  .fleetd = CWFLEETD_BINARY,
                                                                  .cwctl = CWCTL_BINARY});
  if (!bed.ok()) return bed.status();
  bed_ = *std::move(bed);
  lab.adjust = [this](int host, config::Config& config) {
    bed_->Configure(host, config);
    config.probe.reverify_interval = absl::Seconds(5);  // how soon other hops are noticed; 30 s if not given
  };
  absl::StatusOr<std::unique_ptr<Testbed>> testbed = Testbed::Up(lab);
  if (!testbed.ok()) return testbed.status();
  testbed_ = *std::move(testbed);
  if (absl::Status status = bed_->Start(testbed_->fabric()); !status.ok()) return status;
  const absl::Time started = absl::Now();
  const bool there = Eventually([&] { return absl::Now() > started + kSettled && SeesAll(); }, absl::Minutes(2), kLook);
  return there ? absl::OkStatus() : absl::DeadlineExceededError("the service does not see the whole fabric: " + Why());
}

TruthBed::~TruthBed() {
  EndFlaps().IgnoreError();
  starved_.reset();
  StopSending();
  testbed_.reset();
  bed_.reset();
  std::error_code error;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
}

bool TruthBed::SeesAll() const {
  if (!bed_->AllThere()) return false;
  const FabricSpec& spec = testbed_->fabric().spec();
  const nlohmann::json reply = bed_->Ask({"fleet", "topology"});
  const size_t nics = static_cast<size_t>(testbed_->fabric().hosts()) + testbed_->spec().second_nics.size();
  return reply.contains("links") && reply.contains("switches") &&
         reply["links"].size() == 2 * (static_cast<size_t>(spec.leaves * spec.spines) + nics) &&
         reply["switches"].size() == static_cast<size_t>(spec.leaves + spec.spines);
}

absl::StatusOr<std::vector<Said>> TruthBed::Findings() const {
  const nlohmann::json reply = bed_->Ask({"fleet", "findings", "--all"});
  if (!reply.is_object() || reply.contains("error"))
    return absl::UnavailableError("cwctl fleet findings: " + reply.dump());
  return reply.contains("findings") ? SaidIn(reply["findings"]) : std::vector<Said>();
}

bool TruthBed::Quiet() const {
  const nlohmann::json reply = bed_->Ask({"fleet", "findings"});
  return reply.is_object() && !reply.contains("error") && (!reply.contains("findings") || reply["findings"].empty());
}

absl::Status TruthBed::SetCable(int leaf, int spine, const Fault& fault) {
  absl::Status status = fabric().SetFault(LinkDirection::LeafToSpine(leaf, spine), fault).status();
  status.Update(fabric().SetFault(LinkDirection::SpineToLeaf(spine, leaf), fault).status());
  return status;
}

absl::Status TruthBed::Send(const JobSpec& job) {
  absl::StatusOr<std::unique_ptr<Emulator>> made = testbed_->NewEmulator(1);
  if (!made.ok()) return made.status();
  emulator_ = *std::move(made);
  absl::Status status = emulator_->AddJob(job).status();
  if (status.ok()) status = emulator_->Start();
  return status;
}

void TruthBed::StopSending() {
  if (emulator_ != nullptr) emulator_->Stop();
  emulator_.reset();
}

void TruthBed::Starve(int host) {
  starved_ = std::make_unique<Starved>(testbed_->agent_pid(host), absl::Milliseconds(100), absl::Milliseconds(900));
}

void TruthBed::Flap(int leaf, int spine, int times, std::function<FlapTimes()> next) {
  EndFlaps().IgnoreError();
  stop_flaps_ = false;
  flaps_ = std::thread([this, leaf, spine, times, next = std::move(next)] {
    for (int i = 0; i < times && !stop_flaps_; ++i) {
      const FlapTimes flap = next();
      SetCable(leaf, spine, Fault::Drop()).IgnoreError();
      Hold(flap.down);
      SetCable(leaf, spine, Fault::None()).IgnoreError();
      Hold(flap.up);
    }
  });
}

absl::Status TruthBed::EndFlaps() {
  stop_flaps_ = true;
  if (flaps_.joinable()) flaps_.join();
  return absl::OkStatus();
}

namespace {

// Looks until `done`, or for so long. An error: the service does not answer in the end, so that nothing is known.
absl::Status Watch(const TruthBed& bed, Judge& judge, absl::Duration limit, const std::function<bool()>& done) {
  absl::Status status;
  (void)Eventually(
      [&] {
        const absl::StatusOr<std::vector<Said>> said = bed.Findings();
        status = said.status();
        if (said.ok()) judge.Look(*said, absl::Now());
        return done();
      },
      limit, kLook);
  return status;
}

struct Times {
  absl::Duration lasts, limit, over;
};

Times TimesOf(const std::vector<const TruthCase*>& cases, const TruthPace& pace) {
  Times times;
  for (const TruthCase* c : cases) {
    times.lasts = std::max(times.lasts, pace.lasts * c->lasts);
    if (c->needed && !c->right.empty()) times.limit = std::max(times.limit, c->limit);
    times.over = std::max(times.over, c->over_within == absl::InfiniteDuration() ? kStays : c->over_within);
  }
  return times;
}

absl::Status DoAll(TruthBed& bed, const std::vector<const TruthCase*>& cases,
                   std::function<absl::Status(TruthBed&)> TruthCase::*what) {
  absl::Status status;
  for (const TruthCase* c : cases) {
    if (c->*what) status.Update((c->*what)(bed));
  }
  return status;
}

// `before`: findings that do not count.
std::vector<TruthRow> TryAfter(const std::vector<Said>& before, TruthBed& bed,
                               const std::vector<const TruthCase*>& cases, const TruthPace& pace,
                               const std::string& group) {
  const Times times = TimesOf(cases, pace);
  Judge judge(cases, before, absl::Now());
  absl::Status done = DoAll(bed, cases, &TruthCase::begin);
  const absl::Time began = absl::Now();
  absl::Status between;
  bool told = false;
  if (done.ok()) {
    done = Watch(bed, judge, std::max(times.lasts, times.limit), [&] {
      if (judge.AllFound() && !told) {
        between = DoAll(bed, cases, &TruthCase::while_open);
        told = true;
      }
      return judge.AllFound() && absl::Now() > began + times.lasts;
    });
  }
  done.Update(between);
  done.Update(DoAll(bed, cases, &TruthCase::end));
  judge.Mended(absl::Now());
  done.Update(Watch(bed, judge, times.over + kStays, [&] { return judge.AllOver(); }));
  done.Update(Watch(bed, judge, pace.quiet, [] { return false; }));
  std::vector<TruthRow> rows = judge.Rows(group);
  if (!done.ok()) rows[0].wrong = absl::StrCat("the lab could not do it: ", done.message(), "; ", rows[0].wrong);
  return rows;
}

}  // namespace

std::vector<TruthRow> Try(TruthBed& bed, const std::vector<const TruthCase*>& cases, const TruthPace& pace,
                          const std::string& group) {
  (void)Eventually([&] { return bed.Quiet(); }, kLeftOver, kLook);
  return TryAfter(bed.Findings().value_or(std::vector<Said>()), bed, cases, pace, group);
}

TruthRow TryNothing(TruthBed& bed, absl::Duration time, const std::string& group) {
  TruthCase nothing{.name = "nothing", .begin = nullptr, .end = nullptr, .right = {}, .while_open = nullptr};
  nothing.lasts = time;
  nothing.over_within = absl::ZeroDuration();
  return TryAfter({}, bed, {&nothing}, {.quiet = absl::ZeroDuration()}, group)[0];
}

}  // namespace cw::lab
