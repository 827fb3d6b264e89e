// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/clock_vm_peers.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tests/bench/clock_peer_text.h"
#include "tests/bench/program.h"

namespace cw::bench {
namespace {

constexpr int kPort = 123;
constexpr char kPolled[] = "/tmp/polled-";

}  // namespace

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> VmPeer::Files() {
  std::vector<std::pair<std::string, std::string>> files;
  for (const char* name : {"chronyd", "chronyc", "ptp4l", "pmc", "chrt"}) {
    absl::StatusOr<std::string> program = FindProgram(name);
    if (!program.ok()) return program.status();
    files.emplace_back(*program, absl::StrCat("/usr/bin/", name));
  }
  return files;
}

std::string VmPeer::Folder() const { return absl::StrCat("/run/", name()); }

absl::Status VmPeer::StartDaemon(int machine) {
  const std::string server = machine == 0 ? "" : vm::Rack::FabricAddress(0), folder = Folder();
  const std::string config = folder + "/conf";
  std::string text, command;
  if (kind_ == Kind::kChrony) {
    text = absl::StrCat("cmdport 0\nbindcmdaddress ", folder, "/sock\npidfile ", folder, "/pid\n",
                        server.empty() ? ChronyServerConfig(kPort, false) : ChronyClientConfig(server, kPort, false));
    command = absl::StrCat("chronyd -x -d -u root -f ", config);
  } else {
    text = Ptp4lConfig(server);
    command = absl::StrCat("ptp4l -f ", config, " --uds_address ", folder, "/sock");
  }
  absl::Status status = rack_.machine(machine).Put(text, config);
  if (!status.ok()) return status;
  // chronyd refuses folders that others may enter. SCHED_FIFO: the agents' probers have it, too.
  auto daemon = rack_.machine(machine).Start(absl::StrCat("chmod 700 ", folder, " && exec chrt -f 1 ", command));
  if (!daemon.ok()) return daemon.status();
  daemons_[static_cast<size_t>(machine)] = *std::move(daemon);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<VmPeer>> VmPeer::Start(vm::Rack& rack, Kind kind) {
  std::unique_ptr<VmPeer> peer(new VmPeer(rack, kind));
  for (int machine = 0; machine < 2; ++machine) {
    if (absl::Status status = peer->StartDaemon(machine); !status.ok()) return status;
  }
  return peer;
}

absl::Status VmPeer::StartReading(absl::Duration length, absl::Duration period) {
  const std::string ask = kind_ == Kind::kChrony ? absl::StrCat(", tracking chronyc -n -c -h ", Folder(), "/sock")
                                                 : absl::StrCat("gmIdentity 'GET TIME_STATUS_NP' pmc -u -b 0 -s ",
                                                                Folder(), "/sock -i ", Folder(), "/pmc");
  auto poller =
      rack_.machine(1).Start(absl::StrFormat("exec cw_vm_clock poll %g %d %s%s %s", absl::ToDoubleSeconds(length),
                                             absl::ToInt64Milliseconds(period), kPolled, name(), ask));
  if (!poller.ok()) return poller.status();
  poller_ = *std::move(poller);
  return absl::OkStatus();
}

absl::StatusOr<VmPeerReadings> VmPeer::Read(const VmTruth& truth, size_t least) {
  auto polled = poller_->Wait(absl::Seconds(30));
  if (!polled.ok()) return polled.status();
  if (polled->exit_code != 0) return absl::InternalError(absl::StrCat(name(), ": ", polled->output));
  for (const auto& daemon : daemons_) {
    if (!daemon->running()) return absl::InternalError(absl::StrCat(name(), " ended by itself: ", daemon->output()));
  }
  auto text = rack_.machine(1).Get(absl::StrCat(kPolled, name()));
  if (!text.ok()) return text.status();
  VmPeerReadings readings = kind_ == Kind::kChrony ? CompareChrony(*text, truth) : ComparePtp4l(*text, truth);
  if (readings.error_ns.size() >= least) return readings;
  return absl::InternalError(
      absl::StrCat(name(), " gave ", readings.error_ns.size(), " readings of a synchronised clock, ", least,
                   " are wanted; it says: ", daemons_[1]->output(),
                   "; the last answers: ", text->substr(text->size() - std::min<size_t>(text->size(), 1000))));
}

VmPeerReadings CompareChrony(const std::string& polled, const VmTruth& truth) {
  VmPeerReadings readings;
  int64_t before = 0, after = 0;
  for (absl::string_view line : absl::StrSplit(polled, absl::ByAnyChar("\r\n"), absl::SkipEmpty())) {
    const std::vector<std::string> word = absl::StrSplit(line, ' ');
    if (word.size() == 3 && word[0] == "@") {
      if (!absl::SimpleAtoi(word[1], &before) || !absl::SimpleAtoi(word[2], &after)) before = after = 0;
      continue;
    }
    const std::optional<Tracking> tracking = ParseTracking(line);
    if (!tracking.has_value()) continue;
    // chronyd tells its offset for the moment of its answer, which lies between the two.
    const std::optional<double> difference_ns = truth.RealtimeDifferenceNs(before + (after - before) / 2);
    if (!difference_ns.has_value()) continue;
    readings.error_ns.push_back(-tracking->offset_ns - *difference_ns);
    readings.bound_ns.push_back(tracking->bound_ns);
  }
  return readings;
}

VmPeerReadings ComparePtp4l(const std::string& polled, const VmTruth& truth) {
  VmPeerReadings readings;
  for (const PtpOffset& offset : ParsePtpOffsets(polled)) {
    const std::optional<int64_t> tsc = truth.TscOfRealtime(offset.ingress_ns);
    if (!tsc.has_value()) continue;
    const std::optional<double> difference_ns = truth.RealtimeDifferenceNs(*tsc);
    if (difference_ns.has_value()) readings.error_ns.push_back(offset.offset_ns - *difference_ns);
  }
  return readings;
}

}  // namespace cw::bench
