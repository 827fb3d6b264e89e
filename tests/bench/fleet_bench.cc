// SPDX-License-Identifier: Apache-2.0
//
// The fleet service as a whole, cwfleetd itself with SQLite, on one machine: hosts connect (memory of an idle one),
// replay past minutes as fast as they are acknowledged (batches for each second of its processor), people ask
// meanwhile and at the usual pace, and a spine dies under all of them (how long until there is a finding). Beside it
// Prometheus, told the same as numbers. BENCH_HOSTS (default 500), BENCH_MINUTES of fleet time (20), BENCH_PEER_HOSTS
// (100).
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/bench/fleet_hosts.h"
#include "tests/bench/fleet_prometheus.h"
#include "tests/bench/must.h"
#include "tests/bench/process_sample.h"
#include "userspace/api/fleet_client.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/fabric_process.h"

namespace cw::bench {
namespace {

namespace v1 = ::cwfabric::v1;

constexpr char kServer[] = "127.0.0.1:19480";
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int kDeaths = 5;
// Batches that a host has under way, and all of them: the service takes 4096 ahead of its store, then hosts wait.
constexpr int kAhead = 8, kAheadOfAll = 4000;
constexpr absl::Duration kFindingPatience = absl::Seconds(60);

int AheadOf(const FleetHosts& hosts) { return std::clamp(kAheadOfAll / hosts.shape().hosts, 1, kAhead); }

// User and system, of all its threads (proc(5)).
double ProcessorSeconds(pid_t pid) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/stat"));
  std::string text((std::istreambuf_iterator<char>(in)), {});
  text.erase(0, text.rfind(')') + 1);
  std::istringstream fields(text);
  std::string skipped;
  for (int i = 3; i <= 13; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

void WriteSecret(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

// cwfleetd of its own in a folder of its own, which goes with it.
class Service {
 public:
  explicit Service(std::string folder) : folder_(std::move(folder)) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    const tls::Life life{absl::Now(), 2};
    authority_ = Must(tls::MakeAuthority("bench", life));
    const tls::Issued own = Must(tls::MakeHost(authority_, "fleet", {"127.0.0.1"}, life));
    const tls::Issued user = Must(tls::MakeUser(authority_, "alice", "read", life));
    for (const auto& [name, text] : {std::pair<const char*, const std::string*>{"ca.crt", &authority_.certificate},
                                     {"fleet.crt", &own.certificate},
                                     {"fleet.key", &own.key},
                                     {"alice.crt", &user.certificate},
                                     {"alice.key", &user.key}})
      WriteSecret(folder_ + "/" + name, *text);
    std::ofstream(folder_ + "/cwfleetd.toml") << absl::StrFormat(
        "listen = [\"%s\"]\nconnections_per_address = 100000\ntls_cert = \"%s/fleet.crt\"\ntls_key = "
        "\"%s/fleet.key\"\ntls_ca = \"%s/ca.crt\"\n"
        "store = \"%s/fleet.db\"\n",
        kServer, folder_, folder_, folder_, folder_);
    process_ = Must(lab::StartProcess(
        {Must(lab::AgentLauncher{.binary = CWFLEETD_BINARY}.FindBinary()), "--config", folder_ + "/cwfleetd.toml"},
        folder_ + "/log"));
    api::FleetClient client = Client();
    absl::StatusOr<v1::FleetHostsReply> hosts = client.Hosts();
    for (const absl::Time end = absl::Now() + absl::Seconds(20); !hosts.ok() && absl::Now() < end;) {
      absl::SleepFor(absl::Milliseconds(50));
      hosts = client.Hosts();
    }
    Must(hosts.status());
  }
  ~Service() {
    lab::EndProcess(process_, absl::Seconds(20)).IgnoreError();
    std::filesystem::remove_all(folder_);
  }

  api::FleetClient Client() const {
    return api::FleetClient(
        {.server = kServer,
         .tls = {.cert = folder_ + "/alice.crt", .key = folder_ + "/alice.key", .ca = folder_ + "/ca.crt"}},
        absl::Seconds(60));
  }
  const tls::Issued& authority() const { return authority_; }
  pid_t pid() const { return process_.pid; }
  double ResidentMib() const { return Must(ReadProcess(process_.pid)).rss_mib; }
  double DiskBytes() const {
    double bytes = 0;
    for (const char* file : {"fleet.db", "fleet.db-wal"}) {
      std::error_code error;
      const auto size = std::filesystem::file_size(folder_ + "/" + file, error);
      if (!error) bytes += static_cast<double>(size);
    }
    return bytes;
  }

 private:
  std::string folder_;
  tls::Issued authority_;
  lab::ProcessId process_;
};

// What people and pages ask, over and over, from a connection of their own.
class Questions {
 public:
  Questions(const Service& service, const FleetShape& shape, int64_t from_ns, int64_t to_ns)
      : client_(service.Client()), shape_(shape), from_ns_(from_ns), to_ns_(to_ns), thread_([this] { Run(); }) {}
  ~Questions() { Stop(); }
  void End() {
    Stop();
    Must(fault_);
  }
  void Tell(Report& report, const std::string& at) const {
    for (const auto& [name, ms] : ms_) report.Add(at, "cwfabric", name, "ms", ms);
  }

 private:
  template <typename Ask>
  void Take(const std::string& name, Ask ask) {
    const auto start = std::chrono::steady_clock::now();
    Must(ask().status());
    ms_[name].push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void Run() {
    try {
      Ask();
    } catch (const Failed& why) {
      fault_ = absl::UnavailableError(why.what());
    }
  }
  void Ask() {
    for (int round = 0; !stop_; ++round) {
      Take("hosts", [&] { return client_.Hosts(); });
      v1::FleetPathsRequest paths;
      paths.set_host(FleetHosts::NameOf(round % shape_.hosts));
      Take("paths_of_a_host", [&] { return client_.Paths(paths); });
      paths.set_at_ns(from_ns_ + (to_ns_ - from_ns_) / 8 * (1 + round % 4));
      Take("paths_of_a_host_then", [&] { return client_.Paths(paths); });
      Take("topology", [&] { return client_.Topology({}); });
      Take("findings", [&] { return client_.Findings({}); });
      Take("events", [&] { return client_.Events({}); });
      absl::SleepFor(absl::Milliseconds(100));
    }
  }

  api::FleetClient client_;
  const FleetShape shape_;
  const int64_t from_ns_, to_ns_;
  std::map<std::string, std::vector<double>> ms_;
  absl::Status fault_;  // of the thread; read when it is over
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void Load(Service& service, FleetHosts& hosts, int minutes, Report& report) {
  const int64_t end_ns = absl::GetCurrentTimeNanos() - 10 * kSecondNs;
  const int64_t begin_ns = end_ns - minutes * 60 * kSecondNs;
  Must(hosts.Tell(begin_ns, AheadOf(hosts)));  // with all names, which a host tells once
  Must(hosts.WaitForAcknowledgements());
  const double disk = service.DiskBytes();
  const double before_s = ProcessorSeconds(service.pid());
  const uint64_t before = hosts.batches();
  const absl::Time start = absl::Now();
  Questions questions(service, hosts.shape(), begin_ns, end_ns);
  for (int tick = 1; tick <= minutes * 6; ++tick) Must(hosts.Tell(begin_ns + tick * 10 * kSecondNs, AheadOf(hosts)));
  Must(hosts.WaitForAcknowledgements());
  const double wall_s = absl::ToDoubleSeconds(absl::Now() - start);
  questions.End();
  const auto batches = static_cast<double>(hosts.batches() - before);
  const double cpu_s = ProcessorSeconds(service.pid()) - before_s;
  report.Add("load", "cwfabric", "batches_per_s", "1/s", {batches / wall_s});
  report.Add("load", "cwfabric", "processor_of_a_batch", "us", {1e6 * cpu_s / batches});
  report.Add("load", "cwfabric", "hosts_per_core", "count", {10 * batches / cpu_s});
  report.Add("load", "cwfabric", "uplink_of_a_host", "B/s",
             {static_cast<double>(hosts.bytes()) / static_cast<double>(hosts.of_bytes()) / 10});
  report.Add("load", "cwfabric", "resident", "MiB", {service.ResidentMib()});
  report.Add("load", "cwfabric", "disk_per_path_and_day", "bytes",
             {(service.DiskBytes() - disk) / batches / hosts.shape().PathsOfHost() * 8640});
  questions.Tell(report, "ask_in_replay");
}

// Hosts tell every 10 s, as they do, and people ask.
void AskInPeace(Service& service, FleetHosts& hosts, int minutes, Report& report) {
  constexpr int kRounds = 3;
  const int64_t now_ns = absl::GetCurrentTimeNanos();
  Questions questions(service, hosts.shape(), now_ns - minutes * 60 * kSecondNs, now_ns);
  for (int round = 0; round < kRounds; ++round) {
    Must(hosts.Tell(absl::GetCurrentTimeNanos(), AheadOf(hosts)));
    absl::SleepFor(absl::Seconds(10));
  }
  questions.End();
  questions.Tell(report, "ask");
}

// All hosts tell at once that their paths over one spine died, as agents do; asked until there is a finding that goes
// on and names no more than that.
void Deaths(Service& service, FleetHosts& hosts, Report& report) {
  api::FleetClient client = service.Client();
  std::vector<double> found_ms;
  int wrong = 0;
  for (int death = 0; death < kDeaths; ++death) {
    const absl::Time start = absl::Now();
    hosts.TellDead(absl::ToUnixNanos(start), death % hosts.shape().spines);
    const auto open = [&] {
      const v1::FleetFindingsReply reply = Must(client.Findings({}));
      return std::count_if(reply.findings().begin(), reply.findings().end(),
                           [](const v1::FleetFinding& finding) { return finding.end_ns() == 0; });
    };
    auto count = open();
    for (; count == 0 && absl::Now() < start + kFindingPatience; count = open()) absl::SleepFor(absl::Milliseconds(10));
    if (count == 0) Must(absl::DeadlineExceededError("a dead spine is no finding"));
    found_ms.push_back(absl::ToDoubleMilliseconds(absl::Now() - start));
    wrong += count > 1;
    for (const absl::Time again = absl::Now(); open() > 0;) {
      if (absl::Now() > again + kFindingPatience) Must(absl::DeadlineExceededError("a finding does not end"));
      hosts.TellDead(absl::GetCurrentTimeNanos(), -1);
      Must(hosts.WaitForAcknowledgements());
      absl::SleepFor(absl::Seconds(1));
    }
  }
  report.Add("spine_dies", "cwfabric", "until_the_finding", "ms", found_ms);
  report.Add("spine_dies", "cwfabric", "more_than_one_finding", "count", {static_cast<double>(wrong)});
}

// The first hosts' numbers, a request for each host and interval, as its own remote write would send them.
void Peer(const std::string& folder, const FleetHosts& hosts, int minutes, Report& report) {
  std::filesystem::remove_all(folder);
  absl::StatusOr<std::unique_ptr<Prometheus>> prometheus = Prometheus::Start(folder);
  if (!prometheus.ok()) {
    std::printf("no peer: %s\n", prometheus.status().ToString().c_str());
    return;
  }
  const int count = std::min(hosts.shape().hosts, FromEnvironment("BENCH_PEER_HOSTS", 100));
  const int64_t end_ms = absl::ToUnixMillis(absl::Now()) - 10'000;
  const std::vector<std::string> names = FleetHosts::NamesOfNumbers();
  double cpu_s = 0;
  uint64_t requests = 0;
  for (int tick = 0; tick <= minutes * 6; ++tick) {
    for (int h = 0; h < count; ++h) {
      std::vector<Series> series;
      for (const FleetHosts::Numbers& path : hosts.NumbersOf(h, static_cast<uint64_t>(tick))) {
        for (size_t n = 0; n < names.size(); ++n)
          series.push_back({.labels = {{"__name__", names[n]},
                                       {"host", FleetHosts::NameOf(h)},
                                       {"local", path.local},
                                       {"port", absl::StrCat(path.port)},
                                       {"remote", path.remote}},
                            .value = path.values[n]});
      }
      Must((*prometheus)->Write(series, end_ms - (minutes * 6 - tick) * 10'000));
      ++requests;
    }
    if (tick == 0) {  // names alone cost much, once
      cpu_s = -ProcessorSeconds((*prometheus)->pid());
      requests = 0;
    }
  }
  cpu_s += ProcessorSeconds((*prometheus)->pid());
  const auto batches = static_cast<double>(requests);
  report.Add("load", "prometheus", "processor_of_a_batch", "us", {1e6 * cpu_s / batches});
  report.Add("load", "prometheus", "hosts_per_core", "count", {10 * batches / cpu_s});
  report.Add("load", "prometheus", "resident", "MiB", {Must(ReadProcess((*prometheus)->pid())).rss_mib});
  if (const double bytes = (*prometheus)->BytesOfASample(); bytes > 0)
    report.Add("load", "prometheus", "disk_per_path_and_day", "bytes",
               {bytes * static_cast<double>(names.size()) * 8640});
  prometheus->reset();
  std::filesystem::remove_all(folder);
}

int Main(const std::string& out) {
  rlimit files{65536, 65536};
  setrlimit(RLIMIT_NOFILE, &files);
  const FleetShape shape{.hosts = FromEnvironment("BENCH_HOSTS", 500)};
  const int minutes = FromEnvironment("BENCH_MINUTES", 20);
  Report report("fleet");
  const std::string absolute = std::filesystem::absolute(out);
  Service service(absolute + ".fleet");
  const std::unique_ptr<FleetHosts> hosts = Must(FleetHosts::Make(shape, service.authority(), kServer));
  const double alone = service.ResidentMib();
  Must(hosts->Connect(absl::Minutes(2)));
  report.Add("connect", "cwfabric", "memory_of_an_idle_host", "KiB",
             {(service.ResidentMib() - alone) * 1024 / shape.hosts});
  Load(service, *hosts, minutes, report);
  AskInPeace(service, *hosts, minutes, report);
  Deaths(service, *hosts, report);
  report.Add("load", "cwfabric", "refusals", "count", {static_cast<double>(hosts->refusals())});
  Peer(absolute + ".prometheus", *hosts, minutes, report);
  std::printf("%d hosts of %d paths, %d minutes of fleet time\n%s", shape.hosts, shape.PathsOfHost(), minutes,
              report.Table().c_str());
  return report.Write(out).ok() ? 0 : 1;
}

}  // namespace
}  // namespace cw::bench

int main(int argc, char** argv) {
  try {
    return cw::bench::Main(cw::bench::OutPath(argc, argv, "build/bench/fleet.json"));
  } catch (const cw::bench::Failed& why) {
    std::fprintf(stderr, "%s\n", why.what());
    return 1;
  }
}
