// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/flood_rig.h"

#include <bpf/bpf.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "flood_drop.skel.h"
#include "maps/names.h"
#include "maps/unique_fd.h"
#include "tests/bench/flood_mark.h"
#include "userspace/dataplane/dataplane.h"
#include "userspace/dataplane/pins.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/host_fault.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/netns.h"

namespace cw::bench {
namespace {

// Hosts 0 and 1 are on one leaf, 2 and 3 on the other; hosts of the same leaf are no peers. Host 1 has nothing to do.
constexpr int kSender = 0, kIdle = 1, kProduct = 2, kDrop = 3, kHosts = 4;
constexpr absl::Duration kSettle = absl::Milliseconds(400), kSlice = absl::Milliseconds(160);
constexpr absl::Duration kBetween = absl::Milliseconds(20);  // what is under way between two slices belongs to neither
constexpr int kSlices = 10;

std::string PortOf(int host) { return absl::StrCat("host", host); }

lab::TestbedSpec Spec() {
  lab::TestbedSpec spec;
  spec.fabric = {.lab = "flood", .spines = 2, .hosts_per_leaf = 2, .link_mbps = 0};
  spec.mode = "observe";
  spec.adjust = [](int host, config::Config& config) {
    const bool first_leaf = host == kSender || host == kIdle;
    std::erase_if(config.peers, [&](const config::PeerConfig& each) {
      return first_leaf == (each.name == absl::StrCat("h", kSender) || each.name == absl::StrCat("h", kIdle));
    });
  };
  return spec;
}

// As fast as the processors let it.
absl::StatusOr<std::unique_ptr<lab::Emulator>> StartData(const lab::Fabric& fabric, int receiver) {
  const lab::EmulatorConfig all = lab::EmulatedHosts(fabric, /*agents=*/false);
  lab::EmulatorConfig config;
  config.hosts = {all.hosts[kSender], all.hosts[static_cast<size_t>(receiver)]};
  config.seed = 1;  // the same queue pairs in each turn
  config.verify_every = 16;
  config.tick = absl::Microseconds(20);
  auto emulator = lab::Emulator::Create(config);
  if (!emulator.ok()) return emulator.status();
  lab::JobSpec job;
  job.name = "data";
  job.pairs = {{0, 1}};
  job.qps_per_pair = 4;
  job.message_bytes = 1 << 20;
  job.duration = absl::Hours(1);
  job.rate = lab::RateConfig::ForLine(40e9);
  job.rate.reacts = false;
  if (auto added = (*emulator)->AddJob(job); !added.ok()) return added.status();
  if (absl::Status status = (*emulator)->Start(); !status.ok()) return status;
  absl::SleepFor(kSettle);
  return *std::move(emulator);
}

uint64_t Delivered(const lab::Emulator& emulator) {
  uint64_t bytes = 0;
  const lab::Snapshot snapshot = emulator.TakeSnapshot();
  for (const lab::FlowReport& flow : snapshot.flows) bytes += flow.receive.bytes();
  return bytes;
}

// The last one: interrupts prefer the first.
long TheProcessor() { return sysconf(_SC_NPROCESSORS_ONLN) - 1; }

absl::Status StayOnOneProcessor() {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  CPU_SET(static_cast<size_t>(TheProcessor()), &processors);
  if (sched_setaffinity(0, sizeof(processors), &processors) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "stay on one processor");
}

// Seconds since boot that it had nothing to do: the fourth and fifth number of its line (proc(5)).
double IdleSeconds() {
  std::ifstream stat("/proc/stat");
  const std::string name = absl::StrCat("cpu", TheProcessor());
  for (std::string line; std::getline(stat, line);) {
    std::istringstream fields(line);
    std::string which;
    double user = 0, nice = 0, system = 0, idle = 0, waits = 0;
    if (fields >> which >> user >> nice >> system >> idle >> waits && which == name)
      return (idle + waits) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  return 0;
}

// Counts over several slices.
struct Meter {
  const lab::Emulator& emulator;
  const FloodSender& flood;
  double bytes = 0, frames = 0, seconds = 0, idle_seconds = 0;

  void Slice() {
    const uint64_t bytes_before = Delivered(emulator), frames_before = flood.sent();
    const double idle_before = IdleSeconds();
    const int64_t began_ns = lab::MonotonicNs();
    absl::SleepFor(kSlice);
    seconds += static_cast<double>(lab::MonotonicNs() - began_ns) / 1e9;
    frames += static_cast<double>(flood.sent() - frames_before);
    bytes += static_cast<double>(Delivered(emulator) - bytes_before);
    idle_seconds += IdleSeconds() - idle_before;
  }
  double Mbps() const { return bytes * 8e-6 / seconds; }
};

}  // namespace

FloodRig::~FloodRig() {
  to_product_.reset();
  to_drop_.reset();
  testbed_.reset();  // and with its namespaces what is attached there
  flood_drop__destroy(drop_);
}

absl::StatusOr<std::unique_ptr<FloodRig>> FloodRig::Up() {
  std::unique_ptr<FloodRig> rig(new FloodRig);
  auto testbed = lab::Testbed::Up(Spec());
  if (!testbed.ok()) return testbed.status();
  rig->testbed_ = *std::move(testbed);
  if (absl::Status status = rig->TakeAgentOff(kIdle); !status.ok()) return status;
  if (absl::Status status = rig->PutGate(); !status.ok()) return status;
  const std::string leaf = rig->testbed_->fabric().LeafNetns(rig->testbed_->fabric().HostLeaf(kProduct));
  auto to_product = FloodSender::Open(leaf, PortOf(kProduct)), to_drop = FloodSender::Open(leaf, PortOf(kDrop));
  if (!to_product.ok()) return to_product.status();
  if (!to_drop.ok()) return to_drop.status();
  rig->to_product_ = *std::move(to_product);
  rig->to_drop_ = *std::move(to_drop);
  if (absl::Status status = rig->CatchProbes(); !status.ok()) return status;
  if (absl::Status status = StayOnOneProcessor(); !status.ok()) return status;  // not the agents
  return rig;
}

absl::Status FloodRig::TakeAgentOff(int host) {
  if (absl::Status status = lab::EndAgent(*testbed_, host, SIGTERM); !status.ok()) return status;
  dataplane::Options options;
  options.instance = lab::DescribeAgentHost(testbed_->fabric(), host).instance;
  return lab::RunInNetns(testbed_->fabric().HostNetns(host), [&] { return dataplane::Dataplane::Remove(options); });
}

// In front of the program that is attached to the host's NIC, by its pinned link.
absl::Status FloodRig::PutGate() {
  drop_ = flood_drop__open_and_load();
  if (drop_ == nullptr) return absl::ErrnoToStatus(errno, "load the program that only drops");
  const dataplane::PinFolder pins(CW_PIN_ROOT, lab::DescribeAgentHost(testbed_->fabric(), kDrop).instance);
  const std::vector<uint32_t> nics = pins.LinkIfindexes();
  if (nics.size() != 1) return absl::InternalError(absl::StrCat(nics.size(), " XDP links in ", pins.path(), ", not 1"));
  const maps::UniqueFd link(bpf_obj_get(pins.XdpLink(nics[0]).c_str()));
  bpf_link_info info = {};
  uint32_t size = sizeof(info);
  if (!link.ok() || bpf_obj_get_info_by_fd(link.get(), &info, &size) != 0)
    return absl::ErrnoToStatus(errno, "open the product's XDP link");
  const maps::UniqueFd product(bpf_prog_get_fd_by_id(info.prog_id));
  const uint32_t first = 0;
  const int fd = product.get();
  if (!product.ok() || bpf_map_update_elem(bpf_map__fd(drop_->maps.bench_product), &first, &fd, BPF_ANY) != 0)
    return absl::ErrnoToStatus(errno, "hand what is not the flood's on to the product's program");
  if (bpf_link_update(link.get(), bpf_program__fd(drop_->progs.bench_flood_gate), nullptr) != 0)
    return absl::ErrnoToStatus(errno, "put the program that only drops in front of the product's");
  return absl::OkStatus();
}

absl::Status FloodRig::CatchProbes() {
  const lab::Fabric& fabric = testbed_->fabric();
  const std::string ours = fabric.HostAddr(kProduct), theirs = fabric.HostAddr(kSender);
  return WatchPort(fabric.LeafNetns(fabric.HostLeaf(kProduct)), PortOf(kProduct), absl::Seconds(30),
                   [&](const std::string& frame, bool leaves) {
                     const auto kind = KindOf(frame);
                     if (!kind) return false;
                     if (leaves && IsFrom(frame, theirs) && IsTo(frame, ours))
                       (*kind == ProbeKind::kRequest ? genuine_.request : genuine_.reply) = frame;
                     if (!leaves && *kind == ProbeKind::kRequest && IsFrom(frame, ours)) genuine_.own = frame;
                     return !genuine_.request.empty() && !genuine_.reply.empty() && !genuine_.own.empty();
                   });
}

absl::StatusOr<Turn> FloodRig::Run(Target target, const std::string& frame, double pps) {
  auto data = StartData(testbed_->fabric(), target == Target::kProduct ? kProduct : kDrop);
  if (!data.ok()) return data.status();
  FloodSender& flood = SenderTo(target);
  std::string marked = frame;
  if (target == Target::kDrop) {
    marked[6] = static_cast<char>(FLOOD_MARK_0);  // the source address, behind the destination's six bytes
    marked[7] = static_cast<char>(FLOOD_MARK_1);
  }
  Meter quiet{**data, flood}, flooded{**data, flood};
  for (int slice = 0; slice < kSlices; ++slice) {
    quiet.Slice();
    flood.Start(marked, pps);
    absl::SleepFor(kBetween);
    flooded.Slice();
    flood.Stop();
    absl::SleepFor(kBetween);
  }
  return Turn{.quiet_mbps = quiet.Mbps(),
              .flooded_mbps = flooded.Mbps(),
              .flood_pps = flooded.frames / flooded.seconds,
              .idle_percent = 100 * quiet.idle_seconds / quiet.seconds,
              .died = (*data)->TakeSnapshot().FlowsDied()};
}

// The peer's counters first and last: nothing that it sent may be missing when what was answered is counted.
absl::StatusOr<Books> FloodRig::Read() const {
  const lab::Fabric& fabric = testbed_->fabric();
  const std::string instance = lab::DescribeAgentHost(fabric, kProduct).instance;
  auto victim = ReadPinned(instance);
  if (!victim.ok()) return victim.status();
  auto peer = ReadPinned(lab::DescribeAgentHost(fabric, kSender).instance);
  if (!peer.ok()) return peer.status();
  auto fill = ReadFill(instance);
  if (!fill.ok()) return fill.status();
  return Books{*std::move(victim), *std::move(peer), *std::move(fill), to_product_->sent()};
}

uint64_t FloodRig::DroppedByPeerProgram() const { return __atomic_load_n(&drop_->bss->dropped, __ATOMIC_RELAXED); }

}  // namespace cw::bench
