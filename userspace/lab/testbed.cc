// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/testbed.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "maps/local_clock.h"
#include "maps/names.h"
#include "userspace/config/config.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

// The lab's group secret: it guards nothing, but the agents refuse to run without one.
constexpr char kSecret[] = "cwlab: not a secret, only this machine's lab uses it\n";

constexpr absl::Duration kAnswersWithin = absl::Seconds(20);

absl::Status WriteSecret(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  const bool ok = write(fd, kSecret, sizeof(kSecret) - 1) == static_cast<ssize_t>(sizeof(kSecret) - 1);
  close(fd);
  return ok ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("cannot write ", path));
}

nlohmann::json TestbedToJson(const HiddenClockSpec& clock) {
  nlohmann::json json = {{"offset_ns", clock.offset_ns},   {"drift_ppm", clock.drift_ppm},
                         {"wander_ppm", clock.wander_ppm}, {"step_ns", clock.step_ns},
                         {"segment_s", clock.segment_s},   {"seed", clock.seed}};
  if (clock.tai_less_monotonic_ns) json["tai_less_monotonic_ns"] = *clock.tai_less_monotonic_ns;
  return json;
}

nlohmann::json TestbedToJson(const NicClockSpec& nic) {
  nlohmann::json json = TestbedToJson(nic.clock);
  json["read_ns"] = nic.read_ns;
  json["jitter_ns"] = nic.jitter_ns;
  json["noise_ns"] = nic.noise_ns;
  return json;
}

config::Mode ModeOf(const std::string& name) {
  absl::StatusOr<config::Mode> mode = config::ParseMode(name);
  return mode.ok() ? *mode : config::Mode::kOptimize;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Testbed>> Testbed::Up(const TestbedSpec& spec) {
  std::unique_ptr<Testbed> testbed(new Testbed(spec));
  absl::StatusOr<std::unique_ptr<Fabric>> fabric = Fabric::Up(spec.fabric);
  if (!fabric.ok()) return fabric.status();
  testbed->fabric_ = std::move(*fabric);
  for (size_t host = 0; host < spec.second_nics.size(); ++host) {
    absl::StatusOr<int> port = testbed->fabric_->AddHostNic(static_cast<int>(host), spec.second_nics[host], "eth1");
    if (!port.ok()) return port.status();
    testbed->second_ports_.push_back(*port);
  }
  if (spec.agents) {
    if (absl::Status status = testbed->StartAgents(); !status.ok()) return status;
    if (spec.wait_paths) {
      // Traces to absent peers share one budget with those to living ones: 300 of them took 23-31 s.
      const absl::Duration limit = absl::Seconds(30) + absl::Milliseconds(300) * testbed->spec_.extra_peers;
      if (absl::Status status = testbed->WaitPathsUp(limit); !status.ok()) return status;
    }
  }
  testbed->origin_ns_ = MonotonicNs();
  return testbed;
}

Testbed::~Testbed() {
  agents_.clear();
  if (fabric_ == nullptr || released_) return;
  for (int host = 0; host < fabric_->hosts(); ++host) {
    const std::string instance = DescribeAgentHost(*fabric_, host).instance;
    for (const std::string& pin : {HiddenClockPin(instance), NicClockPin(instance)}) (void)unlink(pin.c_str());
  }
}

void Testbed::Release() {
  released_ = true;
  fabric_->Release();
}

absl::StatusOr<std::string> Testbed::AgentConfig(int host) const {
  const AgentHost description = DescribeAgentHost(*fabric_, host);
  config::Config config;
  config.instance = description.instance;
  config.run_dir = description.run_dir;
  config.state_dir = absl::StrCat(description.run_dir, "/state");
  config.host_name = absl::StrCat("h", host);
  config.mode = ModeOf(spec_.mode);
  config.nics.push_back({.name = "eth0"});
  if (spec_.fabric.ipv6) config.nics[0].address = fabric_->HostAddr(host);
  const double host_mbps = spec_.fabric.host_link_mbps > 0 ? spec_.fabric.host_link_mbps : spec_.fabric.link_mbps;
  config.nics[0].rate_mbps = static_cast<int64_t>(host_mbps);
  if (static_cast<size_t>(host) < spec_.nic_clocks.size()) config.nics[0].rx_stamps = config::RxStamps::kHardware;
  if (!second_ports_.empty()) config.nics.push_back({.name = "eth1"});
  if (!second_ports_.empty() && spec_.fabric.ipv6) config.nics[1].address = fabric_->PortAddress(second_port(host));
  for (int peer = 0; peer < fabric_->hosts(); ++peer) {
    if (peer == host || (!spec_.all_hosts && fabric_->HostLeaf(peer) == fabric_->HostLeaf(host))) continue;
    config.peers.push_back({.name = absl::StrCat("h", peer), .addresses = {fabric_->HostAddr(peer)}});
    if (!second_ports_.empty()) config.peers.back().addresses.push_back(fabric_->PortAddress(second_port(peer)));
  }
  config.keys.secret_file = absl::StrCat(fabric_->RunDir(), "/secret");
  for (int i = 0; host == 0 && i < spec_.extra_peers; ++i) {
    config.peers.push_back({.name = absl::StrCat("absent", i),
                            .addresses = {absl::StrFormat("10.%d.%d.%d", 2 + i / 60000, i / 250 % 250, 1 + i % 250)}});
  }
  config.probe.active_interval = spec_.active_interval;
  config.probe.cpu_percent = 100;  // all hosts of the lab share this machine's processors
  config.probe.idle_interval = spec_.idle_interval;
  config.probe.budget_pps = spec_.probe_budget_pps;
  config.probe.clock_neighbours = spec_.clock_neighbours;
  config.probe.discovery_pps = 2000;  // lab switches do not limit ICMP
  config.probe.max_ttl = 4;           // leaf, spine, leaf, and the host's silence, which proves that they are all
  config.steering.contention_window = absl::Milliseconds(40);  // suits links of a few 100 Mbit/s
  config.samples.level_tx = spec_.sample_level;
  config.samples.level_rx = spec_.sample_level;
  config.limits = {.max_pairs = 64 + spec_.extra_peers, .max_flows = 4096, .max_tx_flows = 2048};
  config.log.events_file = absl::StrCat(description.run_dir, "/events.jsonl");
  if (spec_.adjust) spec_.adjust(host, config);
  return config::ToToml(config);
}

absl::Status Testbed::StartAgents() {
  if (absl::Status status = WriteSecret(absl::StrCat(fabric_->RunDir(), "/secret")); !status.ok()) return status;
  for (int host = 0; host < fabric_->hosts(); ++host) {
    const AgentHost description = DescribeAgentHost(*fabric_, host);
    if (static_cast<size_t>(host) < spec_.clocks.size()) {
      absl::Status status = WriteFile(absl::StrCat(description.run_dir, "/hidden_clock.json"),
                                      TestbedToJson(spec_.clocks[static_cast<size_t>(host)]).dump());
      if (!status.ok()) return status;
    }
    if (static_cast<size_t>(host) < spec_.nic_clocks.size()) {
      absl::Status status = WriteFile(absl::StrCat(description.run_dir, "/nic_clock.json"),
                                      TestbedToJson(spec_.nic_clocks[static_cast<size_t>(host)]).dump());
      if (!status.ok()) return status;
    }
    agents_.push_back(std::make_unique<api::Client>(description.socket, kAnswersWithin));
    agent_pids_.push_back(0);
    if (absl::Status status = StartAgent(host); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Testbed::StartAgent(int host) {
  absl::StatusOr<std::string> config = AgentConfig(host);
  if (!config.ok()) return config.status();
  AgentLauncher launcher{.binary = spec_.agent_binary,
                         .config = [&](const AgentHost&) { return *config; },
                         .ready_within = absl::Seconds(20)};
  absl::StatusOr<pid_t> pid = launcher.Start(*fabric_, host);
  if (!pid.ok()) return pid.status();
  agent_pids_[static_cast<size_t>(host)] = *pid;
  // A client that knew the agent before would first tell that the old connection is gone, and so does a new one where
  // another of this process (a sampler's) keeps that connection.
  std::unique_ptr<api::Client>& client = agents_[static_cast<size_t>(host)];
  client.reset();
  client = std::make_unique<api::Client>(DescribeAgentHost(*fabric_, host).socket, kAnswersWithin);
  const absl::Time deadline = absl::Now() + kAnswersWithin;
  while (absl::IsUnavailable(client->Status().status()) && absl::Now() < deadline)
    absl::SleepFor(absl::Milliseconds(20));
  return absl::OkStatus();
}

absl::Status Testbed::LoseAgent(int host) {
  const std::string& run_dir = DescribeAgentHost(*fabric_, host).run_dir;
  const pid_t pid = agent_pid(host);
  siginfo_t ended{};
  if (kill(pid, SIGKILL) != 0 || waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("end the agent of h", host));
  }
  absl::StatusOr<std::string> binary = AgentLauncher{.binary = spec_.agent_binary}.FindBinary();
  if (!binary.ok()) return binary.status();
  const std::string line = absl::StrCat(*binary, " --config ", run_dir, "/agent.toml --detach >/dev/null");
  std::error_code error;
  std::filesystem::remove(run_dir + "/drains.json", error);
  return RunInNetns(fabric_->HostNetns(host), [&] {
    return std::system(line.c_str()) == 0 ? absl::OkStatus() : absl::InternalError(absl::StrCat("failed: ", line));
  });
}

absl::Status Testbed::WaitPathsUp(absl::Duration limit) {
  const absl::Time deadline = absl::Now() + limit;
  for (size_t host = 0; host < agents_.size(); ++host) {
    while (true) {
      absl::StatusOr<api::v1::PathsReply> reply = agents_[host]->Paths({});
      if (!reply.ok()) return reply.status();
      std::string missing;
      for (const auto& pair : reply->pairs()) {
        if (pair.peer().rfind("absent", 0) == 0) continue;
        if (pair.table() != "valid") missing = absl::StrCat("paths to ", pair.peer(), " are ", pair.table());
        for (const auto& path : pair.paths()) {
          if (path.state() != api::v1::PATH_STATE_UP)
            missing = absl::StrCat("path ", path.slot(), " to ", pair.peer(), " is not up");
        }
      }
      if (reply->pairs().empty()) missing = "no pairs";
      if (missing.empty()) break;
      if (absl::Now() > deadline) return absl::DeadlineExceededError(absl::StrCat("agent of h", host, ": ", missing));
      absl::SleepFor(absl::Milliseconds(20));
    }
  }
  return absl::OkStatus();
}

EmulatorConfig EmulatedHosts(const Fabric& fabric, bool agents) {
  EmulatorConfig config;
  for (int host = 0; host < fabric.hosts(); ++host) {
    config.hosts.push_back({.name = absl::StrCat("h", host),
                            .netns_path = fabric.HostNetns(host),
                            .address = fabric.HostAddr(host),
                            .agent_socket = agents ? DescribeAgentHost(fabric, host).run_dir + "/inproc.sock" : ""});
  }
  return config;
}

absl::StatusOr<std::unique_ptr<Emulator>> Testbed::NewEmulator(uint64_t seed, uint32_t stamp_every,
                                                               PortChoice choose_port) {
  EmulatorConfig config = EmulatedHosts(*fabric_, spec_.agents);
  config.seed = seed;
  config.stamp_every = stamp_every;
  config.realtime = true;
  config.choose_port = std::move(choose_port);
  return Emulator::Create(config);
}

int Testbed::SpineOf(const FlowReport& flow, int64_t newer_than_ns, bool acknowledgements) const {
  const uint32_t qpn = acknowledgements ? flow.source_qpn : flow.destination_qpn;
  const int from = acknowledgements ? flow.destination : flow.source;
  const int to = acknowledgements ? flow.source : flow.destination;
  absl::StatusOr<std::vector<FlowCounters>> flows = fabric_->Flows();
  if (!flows.ok()) return -1;
  int spine = -1;
  int64_t newest_ns = newer_than_ns;
  for (const FlowCounters& seen : *flows) {
    if (seen.probe || seen.link.tier != LinkDirection::Tier::kSpine || seen.link.toward != LinkDirection::Toward::kUp)
      continue;
    if (seen.dest_qpn != qpn || seen.source != fabric_->HostAddr(from) || seen.destination != fabric_->HostAddr(to))
      continue;
    if (seen.last_ns > newest_ns) {
      newest_ns = seen.last_ns;
      spine = seen.link.spine;
    }
  }
  return spine;
}

std::vector<Mark> Testbed::Events(int64_t origin_ns, const std::string& type) {
  // Events carry wall-clock time; the charts use CLOCK_MONOTONIC.
  const int64_t wall_minus_monotonic_ns = absl::GetCurrentTimeNanos() - MonotonicNs();
  std::vector<Mark> marks;
  for (size_t host = 0; host < agents_.size(); ++host) {
    api::v1::EventsRequest request;
    request.set_type(type);
    (void)agents_[host]->Events(request, [&](const api::v1::Event& event) {
      const int64_t at_ns = event.time_unix_ns() - wall_minus_monotonic_ns;
      if (at_ns >= origin_ns) {
        marks.push_back(
            {static_cast<double>(at_ns - origin_ns) / 1e9, event.type(), absl::StrCat("h", host, ": ", event.text())});
      }
      return true;
    });
  }
  std::sort(marks.begin(), marks.end(), [](const Mark& a, const Mark& b) { return a.at_s < b.at_s; });
  return marks;
}

std::vector<Testbed::PathDeath> Testbed::PathDeaths(int64_t since_ns) { return PathEvents(since_ns, true); }

std::vector<Testbed::PathDeath> Testbed::PathNews(int64_t since_ns) { return PathEvents(since_ns, false); }

std::vector<Testbed::PathDeath> Testbed::PathEvents(int64_t since_ns, bool deaths) {
  const int64_t wall_minus_monotonic_ns = absl::GetCurrentTimeNanos() - MonotonicNs();
  std::vector<PathDeath> found;
  for (size_t host = 0; host < agents_.size(); ++host) {
    api::v1::EventsRequest request;
    request.set_type("path");
    (void)agents_[host]->Events(request, [&](const api::v1::Event& event) {
      PathDeath death{.at_ns = event.time_unix_ns() - wall_minus_monotonic_ns,
                      .host = static_cast<int>(host),
                      .text = event.text()};
      int port = 0;
      for (const auto& evidence : event.evidence()) {
        if (evidence.name() == "udp_port") (void)absl::SimpleAtoi(evidence.value(), &port);
        absl::StrAppend(&death.text, ", ", evidence.name(), " ", evidence.value());
      }
      death.udp_port = static_cast<uint16_t>(port);
      const bool is_death = event.severity() == api::v1::SEVERITY_ALERT && port != 0;
      if (is_death == deaths && death.at_ns >= since_ns && absl::SimpleAtoi(event.peer().substr(1), &death.peer))
        found.push_back(death);
      return true;
    });
  }
  return found;
}

uint64_t Testbed::CounterSum(const std::string& name) {
  uint64_t sum = 0;
  for (const auto& agent : agents_) {
    absl::StatusOr<api::v1::CountersReply> reply = agent->Counters();
    if (!reply.ok()) continue;
    for (const auto& counter : reply->counters()) {
      if (counter.name() == name) sum += counter.value();
    }
  }
  return sum;
}

namespace {

// Where NTP slews the machine's clock, what an agent adds to it is part of what its host's clock shows.
void AddLine(const std::string& instance, cw_lab_clock& clock) {
  const int fd = bpf_obj_get(absl::StrCat(CW_PIN_ROOT, "/", instance, "/", CW_MAP_LOCAL_CLOCK).c_str());
  if (fd < 0) return;  // no agent yet
  const uint32_t zero = 0;
  cw_local_clock local{};
  if (bpf_map_lookup_elem(fd, &zero, &local) == 0) {
    cw_local_line line{};
    cw_local_get(&local, &line);
    for (uint32_t i = 0; i < clock.segments; ++i) {
      clock.base_ns[i] += static_cast<int64_t>(cw_local_at(&line, clock.start_ns[i]) - clock.start_ns[i]);
      clock.drift_ppb[i] += std::llround(static_cast<double>(line.rate_q32) * 1e9 * 0x1p-32);
    }
  }
  close(fd);
}

absl::StatusOr<cw_lab_clock> ReadPinned(const std::string& pin) {
  const int fd = bpf_obj_get(pin.c_str());
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("no clock is pinned at ", pin));
  const uint32_t zero = 0;
  cw_lab_clock clock{};
  const int error = bpf_map_lookup_elem(fd, &zero, &clock);
  close(fd);
  if (error != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read the clock at ", pin));
  return clock;
}

}  // namespace

absl::StatusOr<cw_lab_clock> ReadHiddenClock(const Fabric& fabric, int host) {
  const std::string instance = DescribeAgentHost(fabric, host).instance;
  absl::StatusOr<cw_lab_clock> clock = ReadPinned(HiddenClockPin(instance));
  if (clock.ok()) AddLine(instance, *clock);
  return clock;
}

absl::StatusOr<cw_lab_clock> ReadNicClock(const Fabric& fabric, int host) {
  return ReadPinned(NicClockPin(DescribeAgentHost(fabric, host).instance));
}

// The series with the smallest figure first. None is empty.
static void SortBy(Chart& chart, double (*figure)(const std::vector<double>&)) {
  std::sort(chart.series.begin(), chart.series.end(),
            [&](const Series& a, const Series& b) { return figure(a.values) < figure(b.values); });
}

LoadSampler::LoadSampler(const Fabric& fabric, absl::Duration period) : fabric_(fabric) {
  for (const LinkDirection& link : fabric.LinkDirections()) {
    if (link.tier == LinkDirection::Tier::kSpine) links_.push_back(link);
  }
  thread_ = std::thread([this, period] {
    while (!stop_.load()) {
      Sample sample{MonotonicNs(), {}};
      for (const LinkCounters& counters : fabric_.Links()) {
        if (counters.link.tier == LinkDirection::Tier::kSpine)
          sample.bytes.push_back(counters.carried_bytes - counters.fault_drop_bytes);
      }
      samples_.push_back(std::move(sample));
      absl::SleepFor(period);
    }
  });
}

LoadSampler::~LoadSampler() { Stop(); }

void LoadSampler::Stop() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

Chart LoadSampler::LinkLoad(int64_t origin_ns) const {
  Chart chart{.title = "Load per leaf-spine link", .unit = "Mbit/s", .series = {}};
  for (size_t link = 0; link < links_.size(); ++link) {
    Series series{.name = links_[link].Name(), .at_s = {}, .values = {}};
    double peak = 0;
    for (size_t i = 1; i < samples_.size(); ++i) {
      const double seconds = static_cast<double>(samples_[i].at_ns - samples_[i - 1].at_ns) / 1e9;
      const double mbps = static_cast<double>(samples_[i].bytes[link] - samples_[i - 1].bytes[link]) * 8e-6 / seconds;
      series.at_s.push_back(static_cast<double>(samples_[i].at_ns - origin_ns) / 1e9);
      series.values.push_back(mbps);
      peak = std::max(peak, mbps);
    }
    const double rate_mbps = fabric_.spec().link_mbps;
    if (peak > 0.05 * rate_mbps || peak > 20) chart.series.push_back(std::move(series));
  }
  SortBy(chart, [](const std::vector<double>& values) { return -*std::max_element(values.begin(), values.end()); });
  return chart;
}

DelaySampler::DelaySampler(Testbed& testbed, int host, absl::Duration period) {
  thread_ = std::thread([this, &testbed, host, period] {
    // A client of its own: the testbed's belong to its thread.
    api::Client client(DescribeAgentHost(testbed.fabric(), host).socket);
    std::map<std::string, size_t> index;
    while (!stop_.load()) {
      absl::StatusOr<api::v1::PathsReply> reply = client.Paths({});
      const int64_t at_ns = MonotonicNs();
      for (int p = 0; reply.ok() && p < reply->pairs_size(); ++p) {
        const auto& pair = reply->pairs(p);
        for (const auto& path : pair.paths()) {
          if (path.windows().empty() || path.windows(0).forward().samples() == 0) continue;
          const std::string name = absl::StrFormat("h%d to %s path %d", host, pair.peer(), path.slot());
          auto [it, added] = index.try_emplace(name, lines_.size());
          if (added) lines_.push_back({name, {}, {}});
          lines_[it->second].at_ns.push_back(at_ns);
          lines_[it->second].p50_us.push_back(std::max(path.windows(0).forward().p50_ns(), 0.0) / 1e3);
        }
      }
      absl::SleepFor(period);
    }
  });
}

DelaySampler::~DelaySampler() { Stop(); }

void DelaySampler::Stop() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

Chart DelaySampler::PathDelay(int64_t origin_ns) const {
  Chart chart{.title = "One-way delay per path, median of the last second", .unit = "µs", .series = {}};
  for (const Line& line : lines_) {
    Series series{.name = line.name, .at_s = {}, .values = line.p50_us};
    for (int64_t at_ns : line.at_ns) series.at_s.push_back(static_cast<double>(at_ns - origin_ns) / 1e9);
    chart.series.push_back(std::move(series));
  }
  SortBy(chart, [](const std::vector<double>& values) { return -*std::max_element(values.begin(), values.end()); });
  return chart;
}

Chart Goodput(const Snapshot& snapshot, int job, int64_t origin_ns, absl::Duration bin) {
  const auto merged = static_cast<size_t>(absl::ToInt64Nanoseconds(bin) / snapshot.bin_ns);
  const int64_t bin_ns = static_cast<int64_t>(merged) * snapshot.bin_ns;
  Chart chart{.title = "Goodput per queue pair", .unit = "Mbit/s", .series = {}};
  for (const FlowReport& flow : snapshot.flows) {
    if (job >= 0 && flow.job != job) continue;
    const std::string name = absl::StrFormat("h%d to h%d qp 0x%x", flow.source, flow.destination, flow.destination_qpn);
    Series series{.name = name, .at_s = {}, .values = {}};
    const std::vector<uint64_t>& bins = flow.receive.bins();
    // It ends with the flow: what is not sent is no stall.
    const int64_t last_ns = flow.finished ? flow.receive.last_ns() : snapshot.taken_ns;
    for (size_t first = 0;; first += merged) {
      const int64_t from_ns = snapshot.origin_ns + static_cast<int64_t>(first) * snapshot.bin_ns;
      if (from_ns + bin_ns > last_ns) break;
      if (from_ns < flow.receive.first_ns()) continue;
      uint64_t bytes = 0;
      for (size_t i = first; i < std::min(first + merged, bins.size()); ++i) bytes += bins[i];
      series.at_s.push_back(static_cast<double>(from_ns + bin_ns / 2 - origin_ns) / 1e9);
      series.values.push_back(static_cast<double>(bytes) * 8e3 / static_cast<double>(bin_ns));
    }
    if (!series.values.empty()) chart.series.push_back(std::move(series));
  }
  SortBy(chart, [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  });
  return chart;
}

}  // namespace cw::lab
