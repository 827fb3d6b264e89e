// SPDX-License-Identifier: Apache-2.0
// cw_vm_demo (`make demo-rdma`): real soft-RoCE queue pairs of perftest in two virtual machines, across four spines of
// 100 Mbit/s. One queue pair is moved by hand, then a spine that carries some is cut silently; perftest goes on.
// Ends with 0 when all of that was seen on the wire and perftest finished without an error.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/vm/agents.h"
#include "tests/vm/perftest.h"
#include "tests/vm/rack.h"

namespace cw::vm {
namespace {

constexpr char kLab[] = "vmdemo";
constexpr size_t kQueuePairs = 4;
// One message of 64 KiB in flight per queue pair: between two of them a move costs nothing. Acknowledgement timeout 1
// s.
constexpr char kPerftest[] = "-q 4 -t 1 -D 35 -s 65536 -u 18";

using SpineByQpn = std::map<uint32_t, int>;

struct Options {
  std::string cwagentd, cwctl, kernel = "6.1", log_dir;
};

// What is told of each queue pair at the end.
struct Row {
  SentFlow flow;  // as last seen
  int before = -1, moved = -1, after = -1;
  uint64_t naks_after_move = 0;
};

void Say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

bool Eventually(absl::Duration limit, const std::function<bool()>& done) {
  for (absl::Time end = absl::Now() + limit; absl::Now() < end; absl::SleepFor(absl::Milliseconds(200))) {
    if (done()) return true;
  }
  return false;
}

class Demo {
 public:
  explicit Demo(const Options& options) : options_(options) {}

  absl::Status Run() {
    for (auto step : {&Demo::Boot, &Demo::StartTraffic, &Demo::Move, &Demo::Cut, &Demo::Finish}) {
      if (absl::Status status = (this->*step)(); !status.ok()) return status;
    }
    PrintTable();
    return absl::OkStatus();
  }

 private:
  absl::Status Boot();
  absl::Status StartTraffic();
  absl::Status Move();
  absl::Status Cut();
  absl::Status Finish();
  absl::StatusOr<uint64_t> DataPacketsLost() const;
  void PrintTable() const;

  // Runs cwctl in machine 0 as a person would.
  absl::Status Show(const std::string& arguments) {
    auto text = agents_->CtlText(0, arguments);
    if (!text.ok()) return text.status();
    Say(absl::StrCat("\nvm0# cwctl ", arguments, "\n", *text));
    return absl::OkStatus();
  }
  SpineByQpn Spines() const { return rack_->SpinesByQpn().value_or(SpineByQpn()); }
  int SpineOf(const SentFlow& flow) const {
    const SpineByQpn spines = Spines();
    auto spine = spines.find(flow.remote_qpn);
    return spine == spines.end() ? -1 : spine->second;
  }
  absl::Status RefreshRows(const std::function<void(Row&)>& note);
  absl::StatusOr<uint64_t> SequenceErrors() {
    auto counters = RxeCounters(rack_->machine(0));
    if (!counters.ok()) return counters.status();
    return counters->at("rcvd_seq_err");
  }

  Options options_;
  std::unique_ptr<Rack> rack_;
  std::unique_ptr<Agents> agents_;
  std::unique_ptr<Perftest> run_;
  std::vector<Row> rows_;
  int cut_spine_ = -1;
  uint64_t errors_before_ = 0, errors_moved_ = 0, errors_end_ = 0;
};

absl::Status Demo::Boot() {
  Say(absl::StrCat("Booting two virtual machines with soft-RoCE (Debian's kernel ", options_.kernel,
                   ") on two leaves and four spines of 100 Mbit/s ..."));
  RackOptions rack_options;
  rack_options.lab = kLab;
  rack_options.log_dir = options_.log_dir;
  rack_options.image.kernel = options_.kernel;
  rack_options.image.files = AgentFiles(options_.cwagentd, options_.cwctl);
  auto rack = Rack::Up(rack_options);
  if (!rack.ok()) return rack.status();
  rack_ = *std::move(rack);
  auto agents = Agents::Start(*rack_, AgentConfig());
  if (!agents.ok()) return agents.status();
  agents_ = *std::move(agents);
  if (absl::Status status = agents_->WaitForPaths(absl::Seconds(120)); !status.ok()) return status;
  return Show("status");
}

absl::Status Demo::StartTraffic() {
  Say(absl::StrCat("Starting ib_write_bw ", kPerftest, " from vm0 to vm1 ..."));
  auto errors = SequenceErrors();
  if (!errors.ok()) return errors.status();
  errors_before_ = *errors;
  auto run = Perftest::Start(*rack_, {.arguments = kPerftest});
  if (!run.ok()) return run.status();
  run_ = *std::move(run);
  std::vector<SentFlow> flows;
  bool known = Eventually(absl::Seconds(60), [&] {
    flows = agents_->SentFlows().value_or(std::vector<SentFlow>());
    return flows.size() == kQueuePairs && std::all_of(flows.begin(), flows.end(), [](const SentFlow& flow) {
             return flow.slot >= 0 && flow.owd_samples > 0;
           });
  });
  if (!known) return absl::InternalError("the agent does not show four queue pairs with their delays");
  for (const SentFlow& flow : flows) {
    rows_.push_back({.flow = flow});
    rows_.back().before = SpineOf(flow);
  }
  return Show("qps");
}

absl::Status Demo::RefreshRows(const std::function<void(Row&)>& note) {
  auto flows = agents_->SentFlows();
  if (!flows.ok()) return flows.status();
  for (Row& row : rows_) {
    for (const SentFlow& flow : *flows) {
      if (flow.id == row.flow.id) row.flow = flow;
    }
    note(row);
  }
  return absl::OkStatus();
}

// A queue pair that shares its spine, if there is one, goes to the other spine with the fewest: new queue pairs take
// the spines in turn, so that often each has its own.
absl::Status Demo::Move() {
  std::map<int, int> load;
  for (int spine = 0; spine < rack_->fabric().spec().spines; spine++) load[spine] = 0;
  for (const Row& row : rows_) load[row.before]++;
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  const int from = std::max_element(load.begin(), load.end(), fewer)->first;
  std::map<int, int> others = load;
  others.erase(from);
  const int to = std::min_element(others.begin(), others.end(), fewer)->first;
  const Row& row = *std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) { return r.before == from; });
  Say(absl::StrFormat("The switches saw %d queue pairs on spine %d and %d on spine %d: moving qp 0x%x there.",
                      load[from], from, load[to], to, row.flow.local_qpn));
  auto paths = agents_->LivePathsBySpine(0);
  if (!paths.ok()) return paths.status();
  if (paths->count(to) == 0) return absl::InternalError(absl::StrCat("no live path over spine ", to));
  absl::Status set = Show(absl::StrCat("steer set ", row.flow.id, " --path ", paths->at(to)));
  if (!set.ok()) return set;
  if (!Eventually(absl::Seconds(60), [&] { return SpineOf(row.flow) == to; })) {
    return absl::InternalError(absl::StrCat("the queue pair was not seen on spine ", to));
  }
  auto errors = SequenceErrors();
  if (!errors.ok()) return errors.status();
  errors_moved_ = *errors - errors_before_;
  Say(absl::StrFormat("Spine %d carries it now; soft-RoCE counts %d sequence errors.", to, errors_moved_));
  return RefreshRows([&](Row& r) {
    r.moved = SpineOf(r.flow);
    r.naks_after_move = r.flow.nak_seq;
  });
}

absl::Status Demo::Cut() {
  std::map<int, int> load;
  for (const Row& row : rows_) load[row.moved]++;
  cut_spine_ = std::max_element(load.begin(), load.end(), [](const auto& a, const auto& b) {
                 return a.second < b.second;
               })->first;
  Say(absl::StrFormat(
      "\nCutting spine %d -> leaf 1 silently under %d queue pairs: the link stays up, every packet is lost.",
      cut_spine_, load[cut_spine_]));
  auto cut = rack_->fabric().SetFault(lab::LinkDirection::SpineToLeaf(cut_spine_, 1), lab::Fault::Drop());
  if (!cut.ok()) return cut.status();
  bool left = Eventually(absl::Seconds(60), [&] {
    const SpineByQpn spines = Spines();
    return std::all_of(rows_.begin(), rows_.end(),
                       [&](const Row& row) { return spines.at(row.flow.remote_qpn) != cut_spine_; });
  });
  if (!left) return absl::InternalError(absl::StrCat("queue pairs are still on spine ", cut_spine_));
  const bool running = run_->running();
  absl::Status shown = Show("events --type path --last 3");
  if (shown.ok()) shown = Show("events --type move --last 6");
  if (!shown.ok()) return shown;
  if (!running) return absl::InternalError("perftest ended before the cut: its queue pairs prove nothing");
  return RefreshRows([&](Row& row) { row.after = SpineOf(row.flow); });
}

absl::Status Demo::Finish() {
  Say("Waiting for ib_write_bw to finish ...");
  auto result = run_->Wait(absl::Seconds(120));
  if (!result.ok()) return result.status();
  auto errors = SequenceErrors();
  if (!errors.ok()) return errors.status();
  errors_end_ = *errors - errors_before_;
  auto lost = DataPacketsLost();
  if (!lost.ok()) return lost.status();
  Say(
      absl::StrFormat("ib_write_bw finished without an error: %d messages, %.1f MB/s in all; the dead spine took %d of "
                      "their packets with it, all sent again.\n",
                      result->messages, result->average_mb_per_s, *lost));
  if (errors_moved_ != 0) return absl::InternalError("the move by hand cost sequence errors");
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Demo::DataPacketsLost() const {
  auto flows = rack_->fabric().Flows();
  if (!flows.ok()) return flows.status();
  uint64_t lost = 0;
  for (const lab::FlowCounters& flow : *flows) {
    if (!flow.probe && flow.link == lab::LinkDirection::SpineToLeaf(cut_spine_, 1)) lost += flow.fault_drops;
  }
  return lost;
}

void Demo::PrintTable() const {
  Say("QUEUE PAIR   SPINE BEFORE  AFTER THE MOVE  AFTER THE CUT   OWD P50   SEQUENCE ERRORS: MOVE  CUT");
  for (const Row& row : rows_) {
    std::string owd = row.flow.owd_samples == 0 ? "-" : absl::StrFormat("%.2f ms", row.flow.owd_p50_ns / 1e6);
    Say(absl::StrFormat("rxe0/qp0x%02x  %12d  %14d  %13d  %8s  %22d  %3d", row.flow.local_qpn, row.before, row.moved,
                        row.after, owd, row.naks_after_move, row.flow.nak_seq - row.naks_after_move));
  }
  Say(absl::StrFormat("in all, as soft-RoCE counts them %45d  %3d", errors_moved_, errors_end_ - errors_moved_));
  Say(absl::StrFormat("Spine %d was cut. OWD: of each queue pair's own packets, in one direction, by cwctl qps.",
                      cut_spine_));
}

// An interrupted demonstration leaves nothing behind: the lab goes down with its machines.
void CleanUpOnSignal() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    int signal = 0;
    sigwait(&signals, &signal);
    lab::Fabric::Down(kLab).IgnoreError();
    _exit(128 + signal);
  }).detach();
}

int Main(int argc, char** argv) {
  CLI::App app("Moves real soft-RoCE queue pairs in virtual machines between spines, and cuts one silently.",
               "cw_vm_demo");
  const std::filesystem::path build = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../..";
  Options options;
  options.cwagentd = (build / "userspace/agent/cwagentd").lexically_normal();
  options.cwctl = (build / "cli/cwctl").lexically_normal();
  app.add_option("--cwagentd", options.cwagentd, "The agent's program")
      ->check(CLI::ExistingFile)
      ->capture_default_str();
  app.add_option("--cwctl", options.cwctl, "The client's program")->check(CLI::ExistingFile)->capture_default_str();
  app.add_option("--kernel", options.kernel, "6.1, 6.12, or a Debian kernel package")->capture_default_str();
  app.add_option("--log-dir", options.log_dir, "Folder for the machines' consoles");
  CLI11_PARSE(app, argc, argv);
  CleanUpOnSignal();
  absl::Status status = Demo(options).Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "cw_vm_demo: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace cw::vm

int main(int argc, char** argv) { return cw::vm::Main(argc, argv); }
