// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/clock_peers.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/bench/clock_poller.h"
#include "userspace/lab/fabric_process.h"
#include "userspace/lab/netns.h"

namespace cw::bench {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::string> FindProgram(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (absl::string_view folder : absl::StrSplit(absl::StrCat(path ? path : "", ":/usr/sbin:/usr/bin:/sbin"), ':')) {
    const std::string file = absl::StrCat(folder, "/", name);
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return absl::NotFoundError(absl::StrCat(name, " is not installed; packaging/deps/install.sh bench installs it"));
}

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
      const std::string common = absl::StrCat("cmdport 0\nbindcmdaddress ", *folder, "/chronyd.sock\npidfile ", *folder,
                                              "/chronyd.pid\n", hwts_ ? "hwtimestamp *\n" : "");
      absl::Status status =
          Write(config, common + (serves ? absl::StrCat("port ", port, "\nallow\nlocal stratum 1\n")
                                         : absl::StrCat("port 0\n", Source(fabric.HostAddr(server), port))));
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
    for (absl::string_view line : absl::StrSplit(*text, '\n')) AddTracking(line, readings);
    if (readings.error_ns.size() < least) {
      return absl::InternalError(absl::StrCat(name(), " gave ", readings.error_ns.size(),
                                              " readings of a synchronised clock, ", least,
                                              " are wanted: ", ReadFile(client_dir_ + "/log")));
    }
    readings.stamps = Stamps();
    return readings;
  }

 private:
  // Advice of the man page, chrony.conf(5): short polls in interleaved mode, a median filter, a quantile of the delays;
  // with time stamps of the hardware 64 polls per second at most.
  std::string Source(const std::string& server, int port) const {
    const int poll = hwts_ ? -6 : -7;
    return absl::StrFormat("server %s port %d minpoll %d maxpoll %d filter 31 maxdelayquant 0.3 xleave\n", server, port,
                           poll, poll);
  }

  // chronyc -c tracking: reference, address, stratum, reference time, offset to NTP time, last and RMS offset, three
  // frequencies, root delay, root dispersion, interval, leap. Seconds. The offset is what chronyd believes that this
  // clock is wrong by, now; under -x it stands where the correction of the clock would.
  static void AddTracking(absl::string_view line, PeerReadings& readings) {
    const std::vector<std::string> field = absl::StrSplit(line, ',');
    double offset_s = 0, delay_s = 0, dispersion_s = 0;
    if (field.size() < 14 || field[2] != "2" || !absl::SimpleAtod(field[4], &offset_s) ||
        !absl::SimpleAtod(field[10], &delay_s) || !absl::SimpleAtod(field[11], &dispersion_s))
      return;
    readings.error_ns.push_back(offset_s * 1e9);
    readings.bound_ns.push_back((dispersion_s + delay_s / 2) * 1e9);
  }

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

constexpr char kPtpCommon[] =
    "[global]\n"
    "free_running 1\n"
    "time_stamping software\n"
    "network_transport UDPv4\n"
    "delay_mechanism E2E\n"
    "inhibit_multicast_service 1\n"
    "logAnnounceInterval 0\n"
    "logSyncInterval -7\n"
    "logMinDelayReqInterval -7\n"
    "tx_timestamp_timeout 100\n"
    "use_syslog 0\n"
    "verbose 1\n";

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
      absl::Status status = Write(config, absl::StrCat(kPtpCommon, "uds_address ", *folder, "/uds\n",
                                                       serves ? ServerPart() : ClientPart(fabric.HostAddr(server))));
      if (!status.ok()) return status;
      if (!serves) client_dir_ = *folder;
      status = (serves ? server_ : client_).Start(fabric, host, {"ptp4l", "-f", config}, *folder + "/log");
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
    PeerReadings readings = Parse(*text);
    if (readings.error_ns.size() < least) {
      return absl::InternalError(absl::StrCat(name(), " gave ", readings.error_ns.size(), " fresh offsets, ", least,
                                              " are wanted: ", ReadFile(client_dir_ + "/log")));
    }
    readings.stamps = "software (SO_TIMESTAMPING, sent in the driver, received in the stack)";
    return readings;
  }

 private:
  static std::string ServerPart() { return "masterOnly 1\nunicast_listen 1\n[eth0]\n"; }

  static std::string ClientPart(const std::string& server) {
    return absl::StrCat(
        "slaveOnly 1\noperLogSyncInterval -7\ndelay_filter moving_median\ndelay_filter_length 100\ntsproc_mode filter\n"
        "[unicast_master_table]\ntable_id 1\nlogQueryInterval 0\nUDPv4 ",
        server, "\n[eth0]\nunicast_master_table 1\n");
  }

  // The offset of the newest Sync message; an answer with the ingress time of the one before says nothing new.
  static PeerReadings Parse(const std::string& text) {
    PeerReadings readings;
    double offset_ns = 0;
    int64_t ingress = 0, last_ingress = 0;
    bool present = false;
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      const std::vector<std::string> word = absl::StrSplit(absl::StripAsciiWhitespace(line), ' ', absl::SkipEmpty());
      if (word.size() != 2) continue;
      if (word[0] == "master_offset") (void)absl::SimpleAtod(word[1], &offset_ns);
      if (word[0] == "ingress_time") (void)absl::SimpleAtoi(word[1], &ingress);
      if (word[0] == "gmPresent") present = word[1] == "true";
      if (word[0] != "gmIdentity") continue;  // the last line of an answer
      if (present && ingress != 0 && ingress != last_ingress) readings.error_ns.push_back(offset_ns);
      last_ingress = ingress;
    }
    return readings;
  }

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
