// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/clock_peers.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/bench/clock_peer_text.h"
#include "tests/bench/clock_poller.h"
#include "tests/bench/program.h"
#include "userspace/lab/fabric_process.h"
#include "userspace/lab/netns.h"

namespace cw::bench {
namespace {

namespace fs = std::filesystem;

absl::Status Write(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  return fs::exists(path) ? absl::OkStatus() : absl::InternalError(absl::StrCat("cannot write ", path));
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A daemon in a host's namespace that cannot set any clock, and is not late when the processors are busy: the agents'
// probers run under SCHED_FIFO, too.
class Daemon {
 public:
  ~Daemon() {
    if (process_.pid == 0) return;
    (void)lab::EndProcess(process_);
    fabric_->ForgetProcess(process_.pid);
  }

  absl::Status Start(lab::Fabric& fabric, int host, const std::vector<std::string>& command, const std::string& log) {
    absl::StatusOr<std::string> program = FindProgram(command[0]);
    if (!program.ok()) return program.status();
    std::vector<std::string> argv = {"setpriv", "--bounding-set=-sys_time", "--inh-caps=-sys_time", "chrt", "-f", "1",
                                     *program};
    argv.insert(argv.end(), command.begin() + 1, command.end());
    absl::Status status = lab::RunInNetns(fabric.HostNetns(host), [&] {
      absl::StatusOr<lab::ProcessId> started = lab::StartProcess(argv, log);
      if (started.ok()) process_ = *started;
      return started.status();
    });
    if (!status.ok()) return status;
    fabric_ = &fabric;
    log_ = log;
    return fabric.RecordProcess(process_.pid, command[0]);
  }

  absl::Status Check() const {
    if (lab::IsAlive(process_)) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("ended by itself: ", ReadFile(log_)));
  }

 private:
  lab::Fabric* fabric_ = nullptr;
  lab::ProcessId process_;
  std::string log_;
};

absl::StatusOr<std::string> NewRunDir(const lab::Fabric& fabric, const std::string& name) {
  const std::string folder = absl::StrCat(fabric.RunDir(), "/", name);
  std::error_code error;
  fs::remove_all(folder, error);
  fs::create_directories(folder, error);
  // chronyd refuses folders that others may enter.
  if (!error) fs::permissions(folder, fs::perms::owner_all, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("make ", folder));
  return folder;
}

// ---- chrony ----

class Chrony final : public ClockPeer {
 public:
  explicit Chrony(bool hwts) : hwts_(hwts) {}
  std::string name() const override { return hwts_ ? "chrony_hwts" : "chrony"; }

  absl::Status Start(lab::Fabric& fabric, int server, int client, int port) {
    for (const auto& [side, host] :
         {std::pair{std::string("server"), server}, std::pair{std::string("client"), client}}) {
      absl::StatusOr<std::string> folder = NewRunDir(fabric, absl::StrCat(name(), "-", side));
      if (!folder.ok()) return folder.status();
      const bool serves = side == "server";
      const std::string config = *folder + "/chrony.conf";
      const std::string files =
          absl::StrCat("cmdport 0\nbindcmdaddress ", *folder, "/chronyd.sock\npidfile ", *folder, "/chronyd.pid\n");
      absl::Status status = Write(config, files + (serves ? ChronyServerConfig(port, hwts_)
                                                          : ChronyClientConfig(fabric.HostAddr(server), port, hwts_)));
      if (!status.ok()) return status;
      if (!serves) client_dir_ = *folder;
      status = (serves ? server_ : client_)
                   .Start(fabric, host, {"chronyd", "-x", "-d", "-u", "root", "-f", config}, *folder + "/log");
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status StartReading(absl::Duration period) override {
    return poller_.Start({"chronyc", "-n", "-c", "-h", client_dir_ + "/chronyd.sock"}, "tracking", period,
                         client_dir_ + "/tracking.csv");
  }

  absl::StatusOr<PeerReadings> StopReading(size_t least) override {
    absl::StatusOr<std::string> text = poller_.Stop();
    if (!text.ok()) return text.status();
    for (const Daemon* daemon : {&server_, &client_}) {
      if (absl::Status status = daemon->Check(); !status.ok())
        return absl::InternalError(absl::StrCat(name(), ": ", std::string(status.message())));
    }
    PeerReadings readings;
    for (absl::string_view line : absl::StrSplit(*text, '\n')) {
      const std::optional<Tracking> tracking = ParseTracking(line);
      if (!tracking.has_value()) continue;
      readings.error_ns.push_back(tracking->offset_ns);
      readings.bound_ns.push_back(tracking->bound_ns);
    }
    if (readings.error_ns.size() < least) {
      return absl::InternalError(absl::StrCat(name(), " gave ", readings.error_ns.size(),
                                              " readings of a synchronised clock, ", least,
                                              " are wanted: ", ReadFile(client_dir_ + "/log")));
    }
    readings.stamps = Stamps();
    return readings;
  }

 private:
  std::string Stamps() const {
    absl::StatusOr<std::string> text = lab::RunTool({"chronyc", "-n", "-h", client_dir_ + "/chronyd.sock", "ntpdata"});
    if (!text.ok()) return std::string(text.status().message());
    std::string stamps;
    for (absl::string_view line : absl::StrSplit(*text, '\n')) {
      if (absl::StrContains(line, "timestamping") || absl::StrContains(line, "Interleaved")) {
        const std::vector<absl::string_view> parts = absl::StrSplit(line, ':');
        absl::StrAppend(&stamps, stamps.empty() ? "" : ", ", absl::StripAsciiWhitespace(parts[0]), " ",
                        absl::StripAsciiWhitespace(parts.back()));
      }
    }
    return stamps;
  }

  bool hwts_;
  std::string client_dir_;
  Daemon server_, client_;
  Poller poller_;
};

// ---- ptp4l ----

class Ptp4l final : public ClockPeer {
 public:
  std::string name() const override { return "ptp4l"; }

  absl::Status Start(lab::Fabric& fabric, int server, int client) {
    for (const auto& [side, host] :
         {std::pair{std::string("server"), server}, std::pair{std::string("client"), client}}) {
      absl::StatusOr<std::string> folder = NewRunDir(fabric, absl::StrCat(name(), "-", side));
      if (!folder.ok()) return folder.status();
      const bool serves = side == "server";
      const std::string config = *folder + "/ptp4l.conf";
      absl::Status status = Write(config, Ptp4lConfig(serves ? "" : fabric.HostAddr(server)));
      if (!status.ok()) return status;
      if (!serves) client_dir_ = *folder;
      status = (serves ? server_ : client_)
                   .Start(fabric, host, {"ptp4l", "-f", config, "--uds_address", *folder + "/uds"}, *folder + "/log");
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status StartReading(absl::Duration period) override {
    absl::StatusOr<std::string> pmc = FindProgram("pmc");
    if (!pmc.ok()) return pmc.status();
    return poller_.Start({*pmc, "-u", "-b", "0", "-s", client_dir_ + "/uds", "-i", client_dir_ + "/pmc"},
                         "GET TIME_STATUS_NP", period, client_dir_ + "/status");
  }

  absl::StatusOr<PeerReadings> StopReading(size_t least) override {
    absl::StatusOr<std::string> text = poller_.Stop();
    if (!text.ok()) return text.status();
    for (const Daemon* daemon : {&server_, &client_}) {
      if (absl::Status status = daemon->Check(); !status.ok())
        return absl::InternalError(absl::StrCat(name(), ": ", std::string(status.message())));
    }
    PeerReadings readings;
    for (const PtpOffset& offset : ParsePtpOffsets(*text)) readings.error_ns.push_back(offset.offset_ns);
    if (readings.error_ns.size() < least) {
      return absl::InternalError(absl::StrCat(name(), " gave ", readings.error_ns.size(), " fresh offsets, ", least,
                                              " are wanted: ", ReadFile(client_dir_ + "/log")));
    }
    readings.stamps = "software (SO_TIMESTAMPING, sent in the driver, received in the stack)";
    return readings;
  }

 private:
  std::string client_dir_;
  Daemon server_, client_;
  Poller poller_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ClockPeer>> StartChrony(lab::Fabric& fabric, int server, int client, int port,
                                                       bool hwts) {
  auto peer = std::make_unique<Chrony>(hwts);
  if (absl::Status status = peer->Start(fabric, server, client, port); !status.ok()) return status;
  return peer;
}

absl::StatusOr<std::unique_ptr<ClockPeer>> StartPtp4l(lab::Fabric& fabric, int server, int client) {
  auto peer = std::make_unique<Ptp4l>();
  if (absl::Status status = peer->Start(fabric, server, client); !status.ok()) return status;
  return peer;
}

}  // namespace cw::bench
