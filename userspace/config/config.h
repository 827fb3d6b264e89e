// SPDX-License-Identifier: Apache-2.0
//
// The agent's configuration: one TOML file. Every field, its unit, range and default stands once, in schema.cc;
// parsing, printing and docs/config.md are made from it.
//
// Errors are InvalidArgument with one line per fault, "file:line:column: what is wrong; what to do"; all faults of a
// file are reported together. NotFound and PermissionDenied name the file. Thread rule: plain values, no shared state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/config/listen.h"

namespace cw::config {

enum class Mode { kObserve, kProtect, kOptimize };
enum class LogLevel { kError, kWarn, kInfo, kDebug };
// kAuto: fields of the journal where systemd's journal takes stderr, text elsewhere.
enum class LogFormat { kAuto, kText, kJson };
// How the ingress program is attached. kAuto: native, else generic with a warning, and nothing on a NIC that offloads
// RoCE (the programs would see nothing).
enum class Attach { kAuto, kNative, kGeneric, kNone };

// Who stamps the arrival of probes for the clock. kHardware: the NIC, where its driver gives stamps to XDP (Linux 6.3).
enum class RxStamps { kSoftware, kHardware };

// What probes of a NIC go by. kOffload: verbs where the NIC offloads RoCE and nothing is attached, else the kernel.
// kAuto: the same, and the kernel's end understands peers by verbs.
enum class Transport { kKernel, kVerbs, kAuto, kOffload };
enum class NicTransport { kProbe, kKernel, kVerbs, kAuto, kOffload };  // kProbe: as probe.transport says
inline constexpr int kFirstVerbsPort = 49152;  // of UDP sources: RoCE v2's over verbs begin there
// How the thread that answers probes by verbs waits for them.
enum class VerbsWait { kEvents, kBusy };

struct NicConfig {
  std::string name;              // network device
  std::string address = "auto";  // "auto": the device's first global one, of IPv4 if there is any
  Attach attach = Attach::kAuto;
  int64_t rate_mbps = 0;  // of its link; 0: as the device says, where it is a real one
  RxStamps rx_stamps = RxStamps::kSoftware;
  bool wait_for_idle = false;  // programs come first while no queue pair uses it
  std::string clock = "auto";  // the NIC's own: /dev/ptpN; "auto": as its driver says; "none"
  NicTransport transport = NicTransport::kProbe;
  std::string origin;  // "file:line" it was read from, for messages; not part of the configuration
};

// A mode for one NIC, one rail or one job, where it is less than the host's: of all that apply the least holds.
struct ScopeConfig {
  std::string nic;          // exactly one of the three: a NIC's name …
  std::optional<int> rail;  // … the place of one among the [[nic]] tables, from 0 …
  std::string label;        // … or the label of flows' processes
  bool others = false;      // it holds for all but those
  Mode mode = Mode::kObserve;
  std::string origin;  // "file:line" it was read from, for messages; not part of the configuration
};
inline constexpr int kLongestLabel = 64;  // bytes

struct PeerConfig {
  std::string name;                    // host name for people, unique
  std::vector<std::string> addresses;  // one per NIC of the peer
  std::string origin;                  // "file:line" it was read from, for messages; not part of the configuration
};

struct KeysConfig {
  std::string secret_file;         // group secret, key id 0; needed as soon as there are peers
  std::string second_secret_file;  // key id 1: accepted too while the group changes its secret; "" = none
  int send_key_id = 0;             // the key that this host sends with
};

struct ProbeConfig {
  absl::Duration active_interval = absl::Microseconds(400);  // round interval of pairs with data or a suspect path
  absl::Duration idle_interval = absl::Milliseconds(100);
  int64_t budget_pps = 10'000;    // requests per second, whole host; intervals grow to stay below it
  int first_port = 49152;         // candidates for entropy are first_port … first_port + ports − 1
  int ports = 64;                 // 51 see 8 equal paths with 99 % probability, 115 see 16
  int max_paths = 12;             // slots for discovered paths; the rest of the 16 is for native ports
  int64_t discovery_pps = 10;     // path-discovery packets per second and switch
  int max_ttl = 7;                // hops that discovery looks at
  std::optional<int> dscp;        // nullopt ("flows"): that of the flows on the pair, 0 until one is seen
  std::optional<int> pause_dscp;  // of questions on silent paths; nullopt ("auto"): 0, or 8 where probes are below 8
  absl::Duration reverify_interval = absl::Seconds(30);    // each path's hops are checked this often
  bool realtime = true;                                    // SCHED_FIFO for the prober where permitted
  std::string cpus;                                        // of the prober, as ParseCpuList takes them; "": any
  int cpu_percent = 10;                                    // of the host's processors, for the prober at most
  bool lock_memory = true;                                 // keeps the agent's memory in RAM where permitted
  absl::Duration clock_interval = absl::Milliseconds(20);  // round interval of idle pairs that measure the clock
  int clock_neighbours = 4;                                // to so many hosts; 0: none, all idle pairs are alike
  Transport transport = Transport::kOffload;
  int verbs_port = 47910;  // UDP: agents tell each other their probe queue pairs there
  VerbsWait verbs_wait = VerbsWait::kEvents;
};

struct LivenessConfig {
  int misses = 3;                                    // proved misses in a row after which a path is dead
  int revive = 8;                                    // replies in a row that revive it
  absl::Duration patience = absl::Milliseconds(15);  // the most that is learned from silences that ended by themselves
};

// What one capability may do, whatever the mode says. kMode: as the mode says.
enum class AllowSetting { kMode, kOff, kObserve, kAct };

struct AllowConfig {
  AllowSetting failover = AllowSetting::kMode;
  AllowSetting loss = AllowSetting::kMode;
  AllowSetting tails = AllowSetting::kMode;
  AllowSetting balance = AllowSetting::kMode;
  AllowSetting place = AllowSetting::kMode;
  AllowSetting nic = AllowSetting::kMode;
};

struct SteeringConfig {
  bool assign_new_flows = true;                              // protect and optimize: from the first packet
  bool repair_tails = true;                                  // protect and optimize: ask for what died with a path
  absl::Duration move_gap = absl::Microseconds(500);         // a pause longer than this is long enough for a move
  absl::Duration lease = absl::Minutes(10);                  // without an agent, then native ports; 0 = no lease
  absl::Duration contention_window = absl::Milliseconds(2);  // two windows of evidence make a move
  absl::Duration queueing_floor = absl::Microseconds(10);    // congested: queueing > max(floor, factor × base)
  double queueing_factor = 0.5;
  double target_factor = 0.8;     // a target must be better than this × the present path
  double path_gbps = 0;           // what a path's slowest link carries; 0 = not known
  bool nic_failover = false;      // packets of a dead NIC go by another one
  double moves_per_second = 0.1;  // share of the host's flows; failures are not counted
  bool find_causes = true;        // tell why flows are slow, and hold moves that cannot help
  double loss_limit = 0.005;      // a path that loses a larger share alone is left as if it were dead; 0 = never
  absl::Duration return_step = absl::Seconds(1);    // a path that recovered gets 1, 2, 4, ... flows back; 0 = none
  bool breaker = true;                              // moves for balance that do harm are undone, and end
  absl::Duration breaker_hold = absl::Minutes(10);  // for so long; 0 = until an operator says so
  AllowConfig allow;
};

struct SamplesConfig {
  int level_tx = 6;  // one packet in 2^level is sampled; 32 = none
  int level_rx = 6;
};

struct LimitsConfig {
  int64_t max_pairs = 1024;      // {local NIC, remote NIC}
  int64_t max_flows = 32768;     // received flows, and sent ones to unknown peers
  int64_t max_tx_flows = 16384;  // sent flows to peers; above it they stay native
};

// What ties this host's fleet time to TAI, besides what other hosts know.
enum class Anchor { kNone, kRealtime };

// Fleet time's TAI as a reference clock of this host's chronyd.
struct ChronyConfig {
  std::string sock;                                   // chronyd's "refclock SOCK"; "" = none
  std::optional<int> shm;                             // unit of chronyd's "refclock SHM"
  absl::Duration interval = absl::Milliseconds(250);  // between samples
};

struct ClockConfig {
  Anchor anchor = Anchor::kNone;
  absl::Duration anchor_bound = absl::Milliseconds(1);  // the anchor is never trusted to be closer than this
  std::string page = "auto";                            // where fleet time is published for programs; "" = nowhere
  std::optional<int> tai_minus_utc;                     // s; nullopt: from the system's list of leap seconds
  ChronyConfig chrony;
};

// Processes that own queue pairs and say so (libcwverbs).
struct InprocConfig {
  bool place = true;                    // protect and optimize: answer them with a path
  int64_t max_qps = 16384;              // of one process; more are not known
  int64_t messages_per_second = 10000;  // of one process; more are not read
};

// Collectives, as the NCCL profiler plug-in tells of them.
struct ProfileConfig {
  absl::Duration stall = absl::Seconds(10);  // one that stands for longer is an event; 0 = never
  double slow_factor = 2;                    // slow: took longer than this × the median of its like
};

// What Prometheus and its like read (docs/metrics.md).
struct MetricsConfig {
  std::string listen = "auto";  // see ParseListen; "auto": RunDir()/metrics.sock
  bool allow_remote = false;    // listen may be an address that other hosts reach
  int worst_paths = 0;          // so many paths with the longest queues have time series of their own
  int top_flows = 0;            // so many queue pairs with the highest rates
};

// Who may use the API (userspace/api): the unix socket is always there, TCP only with mutual TLS.
struct ApiConfig {
  std::string read_group;   // members of a unix group may look; "" = nobody more than below
  std::string steer_group;  // and steer by hand
  std::string admin_group =
      "auto";                       // and do everything; "auto": whom the socket's mode lets in; "": root and the agent
  std::vector<std::string> listen;  // addresses and ports, see ParseListen; none: no TCP
  std::string tls_cert, tls_key,
      tls_ca;                      // PEM files: own certificate (with its chain) and key, whose clients are taken
  std::string tls_crl;             // and which of their certificates are not; "" = no list
  std::string acts_file = "auto";  // who changed what; "auto": StateDir()/acts.jsonl; "" = nowhere
};

// What is told to the fleet service, and what it may ask for (docs/fleet.md).
struct FleetConfig {
  std::vector<std::string> endpoints;  // HOST:PORT; none: nothing is told
  std::string spool_dir = "auto";      // "auto": StateDir()/spool
  int spool_mib = 256;
  int ring_mib = 256;                     // 0: no ring
  std::vector<std::string> allow;         // of plan, drain, label, mode, audit
  std::string metrics_address = "auto";   // HOST:PORT; see MetricsAddress
  std::string tls_cert, tls_key, tls_ca;  // "": those of [api]
};

struct LogConfig {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kAuto;
  std::string events_file;        // one JSON object per line; "" = memory only
  std::string observations_file;  // what the contention rule saw and decided, for cwctl replay; "" = off
  int observations_mib = 64;      // the file becomes FILE.1 at this size
  std::string report_file;        // what was only observed, for cwctl report; "" = off
  int report_mib = 64;            // FILE and FILE.1 together
};

struct Config {
  std::string instance = "default";  // names pins, sockets and folders: [a-z0-9-], at most 32 characters
  std::string host_name;             // where no peer file has one for it: see OwnName; "" = the kernel's
  Mode mode = Mode::kObserve;
  std::string run_dir;    // ParseConfig fills in the default, /run/cwfabric/INSTANCE
  std::string state_dir;  // the same, /var/lib/cwfabric/INSTANCE; what is to outlive a reboot
  std::vector<NicConfig> nics;
  std::vector<ScopeConfig> scopes;
  std::vector<PeerConfig> peers;
  std::string peers_file;  // [[peer]] tables in a file of their own, read after this one
  std::string peers_dir;   // every *.toml of a folder, in order of names
  KeysConfig keys;
  ProbeConfig probe;
  LivenessConfig liveness;
  SteeringConfig steering;
  SamplesConfig samples;
  LimitsConfig limits;
  InprocConfig inproc;
  ClockConfig clock;
  ProfileConfig profile;
  MetricsConfig metrics;
  ApiConfig api;
  FleetConfig fleet;
  LogConfig log;

  std::string RunDir() const;      // run_dir, or the default with the instance filled in
  std::string StateDir() const;    // state_dir, likewise
  std::string SocketPath() const;  // RunDir()/agent.sock
  std::string ClockPage() const;   // clock.page; "auto" is RunDir()/clock, where libcwclock looks for "default"'s
  std::string ActsFile() const;    // api.acts_file; "auto" is StateDir()/acts.jsonl
  std::string SpoolDir() const;    // fleet.spool_dir; "auto" is StateDir()/spool
  std::string RingDir() const;     // StateDir()/ring
  // fleet's own TLS files, or api's.
  std::string FleetCert() const { return fleet.tls_cert.empty() ? api.tls_cert : fleet.tls_cert; }
  std::string FleetKey() const { return fleet.tls_key.empty() ? api.tls_key : fleet.tls_key; }
  std::string FleetCa() const { return fleet.tls_ca.empty() ? api.tls_ca : fleet.tls_ca; }
  // Where other hosts find the metrics: "HOST:PORT", ":PORT" for any address of this host, "" for nowhere.
  std::string MetricsAddress() const;
  Listen MetricsListen() const;  // metrics.listen; "auto" is unix:RunDir()/metrics.sock
};

// `file` names the text in errors. Checks ranges and cross-field rules, but touches no other file.
absl::StatusOr<Config> ParseConfig(absl::string_view text, absl::string_view file);
absl::StatusOr<Config> LoadConfig(const std::string& path);

// Peers of the configuration itself, of peers_file and of peers_dir, in that order. Called again when those change.
// A name or an address that occurs twice is an error that names both places. skipped: what is called like a file of the
// folder and is none, a line each for people; it is no error, since it may be somebody else's.
absl::StatusOr<std::vector<PeerConfig>> LoadPeers(const Config& config, std::vector<std::string>* skipped = nullptr);

// Without the addresses that are this host's own, and without peers that then have none: so that all hosts of a group
// may share the same peer files.
std::vector<PeerConfig> PeersExceptSelf(std::vector<PeerConfig> peers, const std::vector<std::string>& own_addresses);

// What the peer files call the host with one of these addresses: the name by which all others know it. "": nothing.
std::string OwnName(const std::vector<PeerConfig>& peers, const std::vector<std::string>& own_addresses);

// FailedPrecondition unless the file is a regular file that only its owner can read or write, with at least 16 bytes.
// "" passes: no secret configured.
absl::Status CheckSecretFile(const std::string& path);

// The effective configuration, every key present with its unit; ParseConfig gives the same Config back.
std::string ToToml(const Config& config);

// The reference table of docs/config.md.
std::string ReferenceMarkdown();
// The same for cwagentd.toml(5), and as a file of comments to begin with.
std::string ReferenceRoff();
std::string ExampleToml();

absl::string_view ToString(Mode mode);
absl::string_view ToString(LogLevel level);
absl::string_view ToString(Attach attach);
absl::string_view ToString(RxStamps stamps);
// What the NIC's probes go by.
Transport TransportOf(const NicConfig& nic, const ProbeConfig& probe);
absl::string_view ToString(Anchor anchor);
absl::StatusOr<Mode> ParseMode(absl::string_view text);

}  // namespace cw::config
