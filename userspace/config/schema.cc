// SPDX-License-Identifier: Apache-2.0
#include "userspace/config/schema.h"

#include <arpa/inet.h>

#include <algorithm>
#include <functional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "userspace/model/cpu_list.h"

namespace cw::config {
namespace {

constexpr int64_t kMillion = 1'000'000;

template <typename Enum>
void Pick(Visitor& v, absl::string_view key, Enum& value, const std::vector<std::string>& words,
          absl::string_view doc) {
  value = static_cast<Enum>(v.Choice(key, static_cast<size_t>(value), words, doc));
}

template <typename Int>
void Number(Visitor& v, absl::string_view key, Int& value, IntegerRange range, absl::string_view doc) {
  value = static_cast<Int>(v.Integer(key, value, range, doc));
}

void Time(Visitor& v, absl::string_view key, absl::Duration& value, DurationRange range, absl::string_view doc) {
  value = v.Duration(key, value, range, doc);
}

void Words(Visitor& v, absl::string_view key, std::string& value, TextRule rule, absl::string_view doc) {
  value = v.Text(key, value, rule, doc);
}

template <typename Element>
void Array(Visitor& v, absl::string_view key, std::vector<Element>& elements, absl::string_view doc,
           const std::function<void(Element&, const std::string& origin)>& walk) {
  elements.resize(v.BeginArray(key, elements.size(), doc));
  for (size_t i = 0; i < elements.size(); ++i) {
    const std::string origin = v.BeginElement(i);
    walk(elements[i], origin);
    v.EndElement();
  }
  v.EndArray();
}

void WalkNics(Visitor& v, std::vector<NicConfig>& nics) {
  Array<NicConfig>(
      v, "nic", nics, "A network device whose RoCEv2 traffic is measured and steered; one table each.",
      [&](NicConfig& nic, const std::string& origin) {
        if (!origin.empty()) nic.origin = origin;
        Words(v, "name", nic.name, TextRule::kDevice,
              "Network device, by its name in ip link; no alternative name, no label of an address (eth0:1).");
        Words(v, "address", nic.address, TextRule::kAutoAddress,
              "Its address; \"auto\" takes the first global one, of IPv4 if there is any. One that is named has to be "
              "on this host: "
              "on the device, on lo or a dummy device, on the bond, bridge or VRF that the device is a port of, or on "
              "a VLAN on top of it.");
        Pick(v, "attach", nic.attach, AttachWords(),
             "How the ingress program is attached; auto tries native, then generic with a warning, and "
             "attaches nothing where the NIC offloads RoCE.");
        nic.wait_for_idle = v.Flag(
            "wait_for_idle", nic.wait_for_idle,
            "Programs come to it first in a moment without queue pairs: before Linux 6.6, and with drivers that open "
            "their queues anew, packets are lost then. Until then the NIC is not measured. Restarts wait for nothing.");
        Number(v, "rate_mbps", nic.rate_mbps, {0, 10 * kMillion},
               "Rate of its link in Mbit/s, which tells whether a flow is slow; 0 for what the device says "
               "(virtual ones say nothing that is true).");
        Pick(
            v, "rx_stamps", nic.rx_stamps, RxStampsWords(),
            "Who stamps the arrival of probes for the fleet clock: the program, or the NIC where its driver "
            "gives stamps to XDP (Linux 6.3) and its clock is read. Probes by verbs take a device's stamps wherever it "
            "gives some. Not yet run on a real NIC.");
        Words(v, "clock", nic.clock, TextRule::kFree,
              "The NIC's own clock, which is tied to the host's: a PTP device, \"auto\" for the one that "
              "its driver names, or \"none\".");
        Pick(v, "transport", nic.transport, NicTransportWords(),
             "What this NIC's probes go by, where it is not what probe.transport says.");
      });
}

void WalkScopes(Visitor& v, std::vector<ScopeConfig>& scopes) {
  Array<ScopeConfig>(
      v, "scope", scopes,
      "A mode for one NIC, one rail or one job, where it is less than the host's; one table each, which names one of "
      "nic, rail and label. Of the host's mode and all tables that apply the least holds.",
      [&](ScopeConfig& scope, const std::string& origin) {
        if (!origin.empty()) scope.origin = origin;
        Words(v, "nic", scope.nic, TextRule::kFree, "Name of a [[nic]].");
        std::optional<int64_t> rail = scope.rail;
        rail =
            v.IntegerOr("rail", rail, "none", {0, 255}, "The place of a NIC among the [[nic]] tables; the first is 0.");
        scope.rail = rail ? std::optional<int>(static_cast<int>(*rail)) : std::nullopt;
        Words(v, "label", scope.label, TextRule::kFree,
              "Label of a job, as cwctl qps shows it: its flows on any NIC, once it is known whose they are.");
        scope.others = v.Flag("others", scope.others,
                              "It holds for all NICs, or flows, but those: mode = \"protect\", rail = 3, others = true "
                              "lets only rail 3 do more.");
        Pick(v, "mode", scope.mode, ModeWords(),
             "The most that is done there: observe leaves every flow on its native port and logs what would have been "
             "done.");
      });
}

void WalkKeys(Visitor& v, KeysConfig& keys) {
  v.BeginTable("keys", "The group's secrets: hosts accept each other's probes only when they share one.");
  Words(v, "secret_file", keys.secret_file, TextRule::kPath,
        "File of the group secret (key id 0): at least 16 bytes, readable by its owner only. Needed with peers, unless "
        "the "
        "second one is sent with.");
  Words(v, "second_secret_file", keys.second_secret_file, TextRule::kPath,
        "Second secret (key id 1), accepted as well while the group changes its secret; empty for none.");
  Number(v, "send_key_id", keys.send_key_id, {0, 1}, "The key that this host sends with.");
  v.EndTable();
}

void WalkProbe(Visitor& v, ProbeConfig& probe) {
  v.BeginTable("probe", "Probes: liveness, delay, clock and path discovery.");
  Time(v, "active_interval", probe.active_interval, {absl::Microseconds(100), absl::Seconds(10)},
       "Round interval of pairs that carry data or have a suspect path.");
  Time(v, "idle_interval", probe.idle_interval, {absl::Microseconds(100), absl::Seconds(60)},
       "Round interval of all other pairs; not below active_interval.");
  Number(v, "budget_pps", probe.budget_pps, {10, 10 * kMillion},
         "Requests per second of the whole host; intervals grow to stay below it.");
  Number(v, "first_port", probe.first_port, {1, 65535},
         "First UDP source port that discovery tries. Probes by verbs need 49152 or more: a NIC that offloads RoCE has "
         "none otherwise.");
  Number(v, "ports", probe.ports, {1, 1024},
         "How many ports discovery tries: 51 see 8 equal paths with 99 % probability, 115 see 16.");
  Number(v, "max_paths", probe.max_paths, {1, 16},
         "Discovered paths kept per pair of NICs; the rest of the 16 slots is for native ports.");
  Number(v, "discovery_pps", probe.discovery_pps, {1, 100'000},
         "Path-discovery packets per second and switch: switches answer few.");
  Number(
      v, "max_ttl", probe.max_ttl, {1, 7},
      "Hops that discovery looks at; one more than there are switches on the longest path, or the fleet does not take "
      "the last for the peer's.");
  std::optional<int64_t> dscp = probe.dscp;
  dscp = v.IntegerOr("dscp", dscp, "flows", {0, 63},
                     "DSCP of probes; \"flows\": the one that most packets of the flows between the two NICs have, so "
                     "that probes ride in their class, and 0 until one was seen.");
  probe.dscp = dscp ? std::optional<int>(static_cast<int>(*dscp)) : std::nullopt;
  std::optional<int64_t> pause_dscp = probe.pause_dscp;
  pause_dscp = v.IntegerOr("pause_dscp", pause_dscp, "auto", {0, 63},
                           "DSCP of a class that switches queue apart from dscp's: what passes there while dscp's "
                           "stands still tells a paused class from a dead path; \"auto\" (and a class that "
                           "the flows are in) is 0, or 8 where theirs is below 8.");
  probe.pause_dscp = pause_dscp ? std::optional<int>(static_cast<int>(*pause_dscp)) : std::nullopt;
  Time(v, "reverify_interval", probe.reverify_interval, {absl::Seconds(1), absl::Hours(24)},
       "How often the hops of each path are checked.");
  probe.realtime = v.Flag("realtime", probe.realtime, "Run the prober under SCHED_FIFO where permitted.");
  Words(v, "cpus", probe.cpus, TextRule::kCpus,
        "Processors of the prober's thread, such as \"0-1,8\"; empty for any. The agent does not start when its cgroup "
        "allows none of them.");
  Number(
      v, "cpu_percent", probe.cpu_percent, {1, 100},
      "Of all of the host's processors, what the prober's thread takes at most, and the main thread as much; above "
      "it probes become rarer, as if budget_pps were less, and the main thread looks at flows and clocks more rarely. "
      "Only hosts of few or slow processors notice.");
  probe.lock_memory = v.Flag("lock_memory", probe.lock_memory,
                             "Keep the agent's memory in RAM, so that the prober waits for no page; needs an unlimited "
                             "RLIMIT_MEMLOCK, as the service has.");
  Time(v, "clock_interval", probe.clock_interval, {absl::Milliseconds(1), absl::Seconds(60)},
       "Round interval of idle pairs that fleet time rests on, between active_interval and idle_interval. They are the "
       "first to be slowed down when budget_pps is short.");
  Number(v, "clock_neighbours", probe.clock_neighbours, {0, 64},
         "How many hosts are probed so, of those that the clock is compared with; 0 for none. Costs clock_neighbours × "
         "paths ÷ clock_interval probes per second: 4 × 8 ÷ 20 ms = 1600.");
  Pick(
      v, "transport", probe.transport, TransportWords(),
      "What probes go by: the kernel; a UD queue pair of the NIC (verbs), and then nothing is attached to it; offload "
      "takes verbs where the NIC offloads RoCE, and elsewhere the kernel; auto does the same, with an ear for peers by "
      "verbs, for fleets with NICs of both kinds. Not yet run on a NIC that offloads.");
  Number(
      v, "verbs_port", probe.verbs_port, {1, 65535},
      "UDP port on which agents tell each other their probe queue pairs (verbs, auto, offload where a NIC offloads); "
      "the same on all hosts.");
  Pick(v, "verbs_wait", probe.verbs_wait, VerbsWaitWords(),
       "How the thread that answers probes by verbs waits for them: for events, or busy, which takes a whole core.");
  v.EndTable();
}

void WalkLiveness(Visitor& v, LivenessConfig& liveness) {
  v.BeginTable("liveness", "When a path counts as dead.");
  Number(v, "misses", liveness.misses, {2, 100}, "Proved misses in a row after which a path is dead.");
  Number(v, "revive", liveness.revive, {1, 1000}, "Replies in a row that revive it.");
  Time(v, "patience", liveness.patience, {absl::ZeroDuration(), absl::Seconds(1)},
       "How much longer, at most, a path may be silent where it was silent lately and lost nothing; \"0s\": it never "
       "learns.");
  v.EndTable();
}

void WalkAllow(Visitor& v, AllowConfig& allow) {
  v.BeginTable("allow",
               "What each capability may do: as the mode says, nothing, decide and log, or act. Holds under every mode "
               "but off; cwctl mode CAPABILITY=... changes it while the agent runs.");
  Pick(v, "failover", allow.failover, AllowWords(), "Flows leave dead paths, and go back when those recovered.");
  Pick(v, "loss", allow.loss, AllowWords(), "Flows leave paths that lose a share of their packets.");
  Pick(v, "tails", allow.tails, AllowWords(), "What was lost with a path or a NIC is asked for (repair_tails).");
  Pick(v, "balance", allow.balance, AllowWords(), "Flows move because links are shared unevenly.");
  Pick(v, "place", allow.place, AllowWords(),
       "New flows are put on a path from their first packet (assign_new_flows).");
  Pick(v, "nic", allow.nic, AllowWords(), "Packets of a NIC out of reach leave by another one (nic_failover).");
  v.EndTable();
}

void WalkSteering(Visitor& v, SteeringConfig& steering) {
  v.BeginTable("steering", "Moves of flows; see mode for which are made at all.");
  steering.assign_new_flows = v.Flag("assign_new_flows", steering.assign_new_flows,
                                     "Put new flows on a live path from their first packet (protect, optimize).");
  steering.repair_tails = v.Flag(
      "repair_tails", steering.repair_tails,
      "When a path dies or is left, or another NIC takes over, ask at once for a resend of what was lost with it, by "
      "a NAK to this host's own queue pairs (protect, optimize).");
  Time(v, "move_gap", steering.move_gap, {absl::Microseconds(1), absl::Seconds(1)},
       "A flow may be moved at a pause longer than this.");
  Time(v, "lease", steering.lease, {absl::ZeroDuration(), absl::Hours(24 * 365)},
       "Flows go back to their native ports this long after the agent's end, at moments that keep order; \"0\" for "
       "never. Renewed every second, so not below 2s.");
  Time(v, "contention_window", steering.contention_window, {absl::Microseconds(100), absl::Seconds(60)},
       "Length of one window of evidence; two in a row make a move.");
  Time(v, "queueing_floor", steering.queueing_floor, {absl::ZeroDuration(), absl::Seconds(1)},
       "A path is congested when its queueing delay is above this and above queueing_factor × base delay.");
  steering.queueing_factor =
      v.Real("queueing_factor", steering.queueing_factor, {0, 100}, "Queueing delay wanted, as a multiple of base.");
  steering.target_factor = v.Real("target_factor", steering.target_factor, {0.01, 1},
                                  "A target must be better than this × the present path's delay.");
  steering.path_gbps =
      v.Real("path_gbps", steering.path_gbps, {0, 100000},
             "What the slowest link of a path carries, Gbit/s: how many flows share it then follows from a flow's own "
             "rate. 0: not known, and learned from what this host's flows get.");
  steering.moves_per_second =
      v.Real("moves_per_second", steering.moves_per_second, {0, 1},
             "Share of the host's flows that may move per second for balance; failures are not counted.");
  steering.find_causes = v.Flag("find_causes", steering.find_causes,
                                "Tell why flows are slow (events, status, qps), and hold moves that cannot help.");
  steering.loss_limit =
      v.Real("loss_limit", steering.loss_limit, {0, 1},
             "A path that alone loses a larger share of its probes is left like a dead one; 0 for never.");
  steering.nic_failover =
      v.Flag("nic_failover", steering.nic_failover,
             "Hosts with several NICs: queue pairs of a NIC that is out of reach go on through another one (protect, "
             "optimize). Both hosts need it; see docs/nic-failover.md.");
  Time(v, "return_step", steering.return_step, {absl::ZeroDuration(), absl::Hours(1)},
       "Where flows are not moved for balance, a path that recovered gets its flows back slowly: one after this time, "
       "then 2, 4, 8, ... each time; \"0\" leaves them where they went.");
  steering.breaker = v.Flag("breaker", steering.breaker,
                            "When moves for balance do harm (NAKs, standstill, less goodput), undo them and only "
                            "observe; see cwctl steer breaker.");
  Time(v, "breaker_hold", steering.breaker_hold, {absl::ZeroDuration(), absl::Hours(24 * 365)},
       "After so long balance may act again; \"0\" for not before cwctl steer breaker reset.");
  WalkAllow(v, steering.allow);
  v.EndTable();
}

void WalkChrony(Visitor& v, ChronyConfig& chrony) {
  v.BeginTable(
      "chrony",
      "Fleet time as a reference clock of this host's chronyd, once an anchor anywhere in the group ties it to "
      "TAI. Not on a host that is such an anchor itself.");
  Words(v, "sock", chrony.sock, TextRule::kPath,
        "Socket of chronyd's \"refclock SOCK /run/chrony/cwfabric.sock refid CWFB\"; empty for none.");
  std::optional<int64_t> unit = chrony.shm;
  unit = v.IntegerOr("shm", unit, "none", {0, 255},
                     "Unit of chronyd's \"refclock SHM 2 refid CWFB\"; 0 and 1 are root's. SOCK is to be preferred.");
  chrony.shm = unit ? std::optional<int>(static_cast<int>(*unit)) : std::nullopt;
  Time(v, "interval", chrony.interval, {absl::Milliseconds(100), absl::Seconds(60)},
       "Time between samples; at most ten per second are made.");
  v.EndTable();
}

void WalkApi(Visitor& v, ApiConfig& api) {
  v.BeginTable("api",
               "Who may ask and steer this agent, in three roles: read < steer < admin (docs/cwctl.md). Root and the "
               "agent's own user are admin.");
  Words(v, "read_group", api.read_group, TextRule::kGroup,
        "Members of this unix group may look at everything; empty for none.");
  Words(v, "steer_group", api.steer_group, TextRule::kGroup,
        "Members of this one may also place flows, drain, and switch off; empty for none.");
  Words(
      v, "admin_group", api.admin_group, TextRule::kGroup,
      "Members of this one may also set the mode. \"auto\" is the group of the agent's process; empty is root alone.");
  api.listen = v.Texts("listen", api.listen, TextRule::kTcp,
                       "Addresses to serve over TCP as well, always with mutual TLS; none by default.");
  Words(v, "tls_cert", api.tls_cert, TextRule::kPath,
        "This host's certificate and its chain, PEM. Read again when it changes, as are the two below.");
  Words(v, "tls_key", api.tls_key, TextRule::kPath, "Its key, PEM, readable by its owner only.");
  Words(v, "tls_ca", api.tls_ca, TextRule::kPath,
        "Certificates of the authorities that sign clients' certificates, PEM; see cwctl certs --help.");
  Words(v, "tls_crl", api.tls_crl, TextRule::kPath,
        "Their lists of revoked certificates (CRL), PEM, read again when it changes; see cwctl certs revoke --help.");
  Words(v, "acts_file", api.acts_file, TextRule::kAutoPath,
        "Where it is kept who changed what, one JSON object a line, 8 MiB and as much again before it; \"auto\" is "
        "STATE_DIR/acts.jsonl, empty is nowhere.");
  v.EndTable();
}

void WalkFleet(Visitor& v, FleetConfig& fleet) {
  v.BeginTable("fleet", "The fleet service that this host tells what it sees (docs/fleet.md). None by default.");
  fleet.endpoints =
      v.Texts("endpoints", fleet.endpoints, TextRule::kServer,
              "Its instances; the first that answers is told. Empty: no connection, no thread, no spool.");
  Words(v, "spool_dir", fleet.spool_dir, TextRule::kAutoPath,
        "Where what no instance has taken yet is kept; \"auto\" is STATE_DIR/spool.");
  Number(v, "spool_mib", fleet.spool_mib, {1, 65536},
         "MiB that it may take, for 24 hours at most. Then the oldest detail goes, and events last.");
  Number(v, "ring_mib", fleet.ring_mib, {0, 65536},
         "MiB of the ring file, in STATE_DIR/ring: raw samples and one-second sketches of all paths, for incidents. 0: "
         "none.");
  fleet.allow = v.Texts("allow", fleet.allow, TextRule::kName,
                        "What the fleet may ask this host for: plan, drain, label, mode, audit. Empty: nothing.");
  Words(
      v, "metrics_address", fleet.metrics_address, TextRule::kAutoServer,
      "Where Prometheus finds this host's metrics, for the service's list of targets; a proxy's address, for example. "
      "\"auto\" is metrics.listen, where other hosts reach it.");
  Words(v, "tls_cert", fleet.tls_cert, TextRule::kPath,
        "This host's certificate and its chain, PEM; its DNS name is the host's. Empty: api.tls_cert.");
  Words(v, "tls_key", fleet.tls_key, TextRule::kPath, "Its key, PEM, readable by its owner only. Empty: api.tls_key.");
  Words(v, "tls_ca", fleet.tls_ca, TextRule::kPath,
        "Certificates of the authorities that sign the service's, PEM. Empty: api.tls_ca.");
  v.EndTable();
}

void WalkMetrics(Visitor& v, MetricsConfig& metrics) {
  v.BeginTable("metrics", "Prometheus metrics of this host, by HTTP (docs/metrics.md).");
  Words(
      v, "listen", metrics.listen, TextRule::kListen,
      "Where GET /metrics is answered: \"auto\" is the socket RUN_DIR/metrics.sock, for the group cwfabric; Prometheus "
      "itself needs \"127.0.0.1:9477\" or the like; \"none\" serves nothing.");
  metrics.allow_remote =
      v.Flag("allow_remote", metrics.allow_remote,
             "listen may name an address that other hosts reach. There is no encryption and no password.");
  Number(
      v, "worst_paths", metrics.worst_paths, {0, 32},
      "So many paths, those with the longest queues, have time series of their own. Each reading then costs the agent "
      "what cwctl paths costs.");
  Number(v, "top_flows", metrics.top_flows, {0, 32},
         "So many queue pairs, those with the highest rates, have time series of their own; as cwctl qps.");
  v.EndTable();
}

void WalkLog(Visitor& v, LogConfig& log) {
  v.BeginTable("log", "What the agent writes.");
  Pick(v, "level", log.level, LogLevelWords(), "Least severity written to the log.");
  Pick(v, "format", log.format, LogFormatWords(),
       "How lines of the log are written: auto gives systemd's journal its fields and writes text elsewhere; json is "
       "one object per line on stderr.");
  Words(v, "events_file", log.events_file, TextRule::kPath,
        "Events, one JSON object per line; empty keeps them in memory only. SIGHUP opens it anew.");
  Words(v, "observations_file", log.observations_file, TextRule::kPath,
        "What the contention rule saw and decided in each window, for cwctl replay; empty records nothing.");
  Number(v, "observations_mib", log.observations_mib, {1, 65536},
         "Size in MiB at which that file becomes FILE.1, in place of the one before, and a new one begins.");
  Words(v, "report_file", log.report_file, TextRule::kPath,
        "What was decided and, by the mode, not done, with what that cost, for cwctl report; empty for none.");
  Number(v, "report_mib", log.report_mib, {1, 65536}, "MiB that report_file and the older FILE.1 may take together.");
  v.EndTable();
}

void WalkRest(Visitor& v, Config& config) {
  v.BeginTable("samples", "Production packets whose delay is measured.");
  Number(v, "level_tx", config.samples.level_tx, {0, 32}, "Sent: one packet in 2^level; 32 for none.");
  Number(v, "level_rx", config.samples.level_rx, {0, 32}, "Received: one packet in 2^level; 32 for none.");
  v.EndTable();
  v.BeginTable(
      "limits",
      "Sizes of the kernel's tables. Beyond them nothing breaks: what does not fit stays native and is counted.");
  Number(v, "max_pairs", config.limits.max_pairs, {1, 65534}, "Pairs of a local and a remote NIC.");
  Number(v, "max_flows", config.limits.max_flows, {64, 4 * kMillion},
         "Received flows, and sent ones to addresses that are no peer.");
  Number(v, "max_tx_flows", config.limits.max_tx_flows, {64, 4 * kMillion}, "Sent flows to peers.");
  v.EndTable();
  v.BeginTable("inproc", "Processes that tell of their own queue pairs; see docs/libcwverbs.md.");
  config.inproc.place =
      v.Flag("place", config.inproc.place, "Answer a queue pair that asks for one with a path (protect, optimize).");
  Number(v, "max_qps", config.inproc.max_qps, {1, kMillion}, "Queue pairs of one process; others are not known.");
  Number(v, "messages_per_second", config.inproc.messages_per_second, {10, kMillion},
         "Messages of one process, twice as many at once; others are not read, and counted.");
  v.EndTable();
  v.BeginTable("clock", "Fleet time: one timeline for all hosts of the group.");
  Pick(
      v, "anchor", config.clock.anchor, AnchorWords(),
      "This host's own tie to TAI: none, or realtime where chronyd or phc2sys disciplines the kernel's clock. One host "
      "of a group suffices, three make a wrong one harmless.");
  Time(v, "anchor_bound", config.clock.anchor_bound, {absl::ZeroDuration(), absl::Seconds(1)},
       "The anchor is never trusted to be closer to TAI than this, whatever error the kernel tells.");
  Words(v, "page", config.clock.page, TextRule::kAutoPath,
        "File on a tmpfs through which programs read fleet time (libcwclock); \"auto\" takes RUN_DIR/clock, where the "
        "library looks by itself for that of the instance \"default\"; empty publishes nothing, to BPF programs and "
        "chronyd neither.");
  std::optional<int64_t> leap = config.clock.tai_minus_utc;
  leap =
      v.IntegerOr("tai_minus_utc", leap, "list", {1, 100},
                  "TAI − UTC in seconds; \"list\" reads /usr/share/zoneinfo/leap-seconds.list, which has to be up to "
                  "date.");
  config.clock.tai_minus_utc = leap ? std::optional<int>(static_cast<int>(*leap)) : std::nullopt;
  WalkChrony(v, config.clock.chrony);
  v.EndTable();
  v.BeginTable("profile", "Collectives, as the NCCL profiler plug-in tells of them (docs/nccl.md).");
  Time(v, "stall", config.profile.stall, {absl::ZeroDuration(), absl::Hours(24)},
       "A collective that stands for longer is an event that names what holds it back; \"0\" for none.");
  config.profile.slow_factor = v.Real("slow_factor", config.profile.slow_factor, {1, 1000},
                                      "A collective is slow when it took longer than this × the median of its like.");
  v.EndTable();
  WalkMetrics(v, config.metrics);
  WalkApi(v, config.api);
  WalkFleet(v, config.fleet);
  WalkLog(v, config.log);
}

bool IsName(const std::string& text, size_t longest) {
  return !text.empty() && text.size() <= longest && std::all_of(text.begin(), text.end(), absl::ascii_isgraph);
}

bool IsUnicastIpv4(const std::string& text) {
  in_addr address{};
  if (inet_pton(AF_INET, text.c_str(), &address) != 1) return false;
  const uint32_t host = ntohl(address.s_addr);
  return (host >> 24) != 0 && (host >> 28) < 0xE;
}

// In the one spelling of RFC 5952, because addresses are compared as they are written. Not link-local: those would need
// an interface with them, and routers do not forward them.
bool IsUnicastIpv6(const std::string& text) {
  in6_addr address{};
  if (inet_pton(AF_INET6, text.c_str(), &address) != 1) return false;
  if (IN6_IS_ADDR_UNSPECIFIED(&address) || IN6_IS_ADDR_MULTICAST(&address) || IN6_IS_ADDR_LINKLOCAL(&address) ||
      IN6_IS_ADDR_V4MAPPED(&address))
    return false;
  char spelled[INET6_ADDRSTRLEN];
  return text == inet_ntop(AF_INET6, &address, spelled, sizeof(spelled));
}

bool IsUnicast(const std::string& text) { return IsUnicastIpv4(text) || IsUnicastIpv6(text); }

constexpr char kWantedAddress[] =
    "an IPv4 or global IPv6 unicast address such as 10.0.1.10 or fd00::10, IPv6 in its shortest form";

}  // namespace

void WalkPeers(Visitor& v, std::vector<PeerConfig>& peers) {
  Array<PeerConfig>(v, "peer", peers, "A host of the same group; one table each.",
                    [&](PeerConfig& peer, const std::string& origin) {
                      if (!origin.empty()) peer.origin = origin;
                      Words(v, "name", peer.name, TextRule::kName, "The host's name.");
                      peer.addresses = v.Texts("addresses", peer.addresses, TextRule::kAddress,
                                               "Addresses of its NICs, one per NIC, of the family of the NICs here.");
                    });
}

void Walk(Visitor& v, Config& config) {
  Words(v, "instance", config.instance, TextRule::kInstance,
        "Names pins, sockets and folders; several agents on one machine need different ones.");
  Words(v, "host_name", config.host_name, TextRule::kFree,
        "Name of this host where no [[peer]] table has one of its addresses (else the name there holds, as for all "
        "others); empty takes the kernel's.");
  Pick(v, "mode", config.mode, ModeWords(),
       "observe decides and logs but never acts, protect moves flows off dead paths, optimize moves them for balance "
       "too.");
  Words(v, "run_dir", config.run_dir, TextRule::kPath,
        "Folder of the agent's sockets; empty takes /run/cwfabric/INSTANCE.");
  Words(v, "state_dir", config.state_dir, TextRule::kPath,
        "Folder of what has to outlive a reboot (the last session); empty takes /var/lib/cwfabric/INSTANCE.");
  Words(v, "peers_file", config.peers_file, TextRule::kPath, "More [[peer]] tables.");
  Words(v, "peers_dir", config.peers_dir, TextRule::kPath, "A folder whose *.toml files hold [[peer]] tables.");
  WalkKeys(v, config.keys);
  WalkProbe(v, config.probe);
  WalkLiveness(v, config.liveness);
  WalkSteering(v, config.steering);
  WalkRest(v, config);
  WalkNics(v, config.nics);
  WalkPeers(v, config.peers);
  WalkScopes(v, config.scopes);
}

const std::vector<std::string>& ModeWords() {
  static const auto& words = *new std::vector<std::string>{"observe", "protect", "optimize"};
  return words;
}

const std::vector<std::string>& AllowWords() {
  static const auto& words = *new std::vector<std::string>{"mode", "off", "observe", "act"};
  return words;
}

const std::vector<std::string>& LogLevelWords() {
  static const auto& words = *new std::vector<std::string>{"error", "warn", "info", "debug"};
  return words;
}

const std::vector<std::string>& LogFormatWords() {
  static const auto& words = *new std::vector<std::string>{"auto", "text", "json"};
  return words;
}

const std::vector<std::string>& AttachWords() {
  static const auto& words = *new std::vector<std::string>{"auto", "native", "generic", "none"};
  return words;
}

const std::vector<std::string>& RxStampsWords() {
  static const auto& words = *new std::vector<std::string>{"software", "hardware"};
  return words;
}

const std::vector<std::string>& TransportWords() {
  static const auto& words = *new std::vector<std::string>{"kernel", "verbs", "auto", "offload"};
  return words;
}

const std::vector<std::string>& NicTransportWords() {
  static const auto& words = *new std::vector<std::string>{"probe", "kernel", "verbs", "auto", "offload"};
  return words;
}

const std::vector<std::string>& VerbsWaitWords() {
  static const auto& words = *new std::vector<std::string>{"events", "busy"};
  return words;
}

const std::vector<std::string>& AnchorWords() {
  static const auto& words = *new std::vector<std::string>{"none", "realtime"};
  return words;
}

std::string Violation(TextRule rule, const std::string& text) {
  switch (rule) {
    case TextRule::kFree:
      return "";
    case TextRule::kInstance: {
      const bool ok = !text.empty() && text.size() <= 32 && std::all_of(text.begin(), text.end(), [](char c) {
        return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
      });
      return ok ? "" : "1 to 32 characters from a-z, 0-9 and -";
    }
    case TextRule::kDevice:
      return IsName(text, 127) && !absl::StrContains(text, "/") ? "" : "a network device's name (see ip link)";
    case TextRule::kName:
      return IsName(text, 64) ? "" : "a name of 1 to 64 characters without blanks";
    case TextRule::kAddress:
      return IsUnicast(text) ? "" : kWantedAddress;
    case TextRule::kAutoAddress:
      return text == "auto" || IsUnicast(text) ? "" : absl::StrCat("\"auto\" or ", kWantedAddress);
    case TextRule::kPath:
      return text.empty() || text[0] == '/' ? "" : "an absolute path (it starts with /)";
    case TextRule::kAutoPath:
      return text.empty() || text == "auto" || text[0] == '/' ? "" : "\"auto\" or an absolute path (it starts with /)";
    case TextRule::kListen: {
      const absl::StatusOr<Listen> listen = ParseListen(text);
      return text == "auto" || listen.ok() ? "" : std::string(listen.status().message());
    }
    case TextRule::kTcp: {
      const absl::StatusOr<Listen> listen = ParseListen(text);
      return listen.ok() && listen->kind == Listen::Kind::kTcp
                 ? ""
                 : "an address of this host and a port, such as \"10.0.0.5:9478\" or \"[fd00::5]:9478\"";
    }
    case TextRule::kServer: {
      const size_t colon = text.rfind(':');
      uint32_t port = 0;
      const bool good = colon != std::string::npos && colon > 0 && !absl::StrContains(text, " ") &&
                        absl::SimpleAtoi(text.substr(colon + 1), &port) && port > 0 && port < 65536;
      return good ? "" : "a server's name or address and its port, such as \"fleet.site:9480\"";
    }
    case TextRule::kAutoServer:
      if (text == "auto" || Violation(TextRule::kServer, text).empty()) return "";
      return absl::StrCat("\"auto\" or ", Violation(TextRule::kServer, text));
    case TextRule::kCpus:
      return ParseCpuList(text).ok() ? "" : "processors, such as \"0-1,8\", or empty";
    case TextRule::kGroup:
      return text.empty() || IsName(text, 32) ? "" : "a unix group's name, or empty";
  }
  return "";
}

}  // namespace cw::config
