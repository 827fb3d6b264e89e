// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/rdma_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "userspace/api/nics.h"
#include "userspace/host/live.h"
#include "userspace/model/clock.h"
#include "userspace/rights/rights.h"

namespace cw::agent {
namespace {

namespace v1 = api::v1;

constexpr int kQuickMs = 1000;
constexpr int64_t kFullNs = 10'000'000'000;
constexpr size_t kMaxAsked = 64;  // devices that are opened for one answer

telemetry::Severity SeverityOf(host::RdmaChange::Severity severity) {
  switch (severity) {
    case host::RdmaChange::Severity::kAlert:
      return telemetry::Severity::kAlert;
    case host::RdmaChange::Severity::kNotice:
      return telemetry::Severity::kNotice;
    case host::RdmaChange::Severity::kInfo:
      break;
  }
  return telemetry::Severity::kInfo;
}

telemetry::Event EventOf(const host::RdmaChange& change) {
  telemetry::Event event{.type = "rdma", .severity = SeverityOf(change.severity), .text = change.text};
  event.evidence = {{"device", change.device}, {"what", change.what}};
  if (change.port != 0) event.evidence.push_back({"port", absl::StrCat(change.port)});
  if (!change.netdev.empty()) event.evidence.push_back({"netdev", change.netdev});
  return event;
}

bool Has(const host::RdmaTree& tree, const std::string& device) {
  return std::any_of(tree.nics.begin(), tree.nics.end(), [&](const auto& nic) { return nic.name == device; });
}

bool Active(const host::RdmaTree& tree, const host::RdmaChange& change) {
  for (const host::RdmaTreeNic& nic : tree.nics) {
    for (const host::RdmaTreePort& port : nic.ports) {
      if (nic.name == change.device && port.number == change.port) return port.active();
    }
  }
  return false;
}

}  // namespace

RdmaWatch::RdmaWatch(Options options) : options_(std::move(options)), stop_fd_(eventfd(0, EFD_CLOEXEC)) {
  if (auto monitor = rdma::NldevMonitor::Open(); monitor.ok()) monitor_ = *std::move(monitor);
  thread_ = std::thread([this] { Run(); });
}

RdmaWatch::~RdmaWatch() {
  const uint64_t one = 1;
  if (write(stop_fd_, &one, sizeof(one)) != sizeof(one)) spdlog::error("the thread of RDMA devices cannot be ended");
  thread_.join();
  close(stop_fd_);
}

host::RdmaTree RdmaWatch::ReadTree() const {
  host::RdmaTree tree = host::ReadRdmaTree(options_.roots);
  host::KernelProbe live;
  const absl::StatusOr<std::vector<host::Interface>> interfaces = live.Interfaces();
  const absl::StatusOr<std::vector<host::RdmaPort>> ports = live.RdmaPorts();
  if (interfaces.ok()) {
    host::AddInterfaces(*interfaces, ports.ok() ? *ports : std::vector<host::RdmaPort>(), tree);
  }
  // One that waits for us to let go keeps its files; RDMA netlink does not list it any more.
  if (ports.ok()) {
    std::erase_if(tree.nics, [&](const host::RdmaTreeNic& nic) {
      return options_.held.contains(nic.name) &&
             std::none_of(ports->begin(), ports->end(),
                          [&](const host::RdmaPort& port) { return port.device == nic.name; });
    });
  }
  return tree;
}

// What changes when something may have happened; quickly read.
std::string RdmaWatch::States() const {
  std::string states = host::PortStates(options_.roots);
  if (options_.held.empty()) return states;
  host::KernelProbe live;
  const absl::StatusOr<std::vector<host::RdmaPort>> ports = live.RdmaPorts();
  if (!ports.ok()) return states;
  for (const host::RdmaPort& port : *ports) absl::StrAppend(&states, port.device, " ");
  return states;
}

void RdmaWatch::Run() {
  rights::KeepOnly(rights::kNone).IgnoreError();  // it reads what all may read
  last_ = ReadTree();
  port_states_ = States();
  looked_ns_ = MonotonicClock().NowNs();
  KeepBaseline(last_);
  Listen(last_);
  while (true) {
    const bool told = Wait();
    pollfd stop = {.fd = stop_fd_, .events = POLLIN, .revents = 0};
    if (poll(&stop, 1, 0) > 0) return;
    std::string states = States();
    const bool changed = states != port_states_;
    port_states_ = std::move(states);
    if (told || changed || MonotonicClock().NowNs() - looked_ns_ >= kFullNs) LookAtAll();
  }
}

bool RdmaWatch::Wait() {
  std::vector<pollfd> fds = {{.fd = stop_fd_, .events = POLLIN, .revents = 0}};
  std::vector<rdma::AsyncEvents*> devices;
  for (const auto& [name, device] : devices_) {
    fds.push_back({.fd = device->fd(), .events = POLLIN, .revents = 0});
    devices.push_back(device.get());
  }
  if (monitor_ != nullptr) fds.push_back({.fd = monitor_->fd(), .events = POLLIN, .revents = 0});
  if (poll(fds.data(), fds.size(), kQuickMs) <= 0) return false;
  bool told = monitor_ != nullptr && fds.back().revents != 0 && monitor_->Drain();
  for (size_t i = 0; i < devices.size(); ++i) {
    if (fds[i + 1].revents == 0) continue;
    Hear(*devices[i]);
    told = true;
  }
  return told;
}

// What a device tells of its ports and GIDs is a reason to look: the look says what changed.
void RdmaWatch::Hear(rdma::AsyncEvents& device) {
  bool fatal = device.fd() < 0;
  while (const std::optional<rdma::AsyncEvent> event = device.Next()) {
    if (event->kind != rdma::AsyncEvent::Kind::kDeviceFatal) continue;
    fatal = true;
    options_.tell({.type = "rdma",
                   .severity = telemetry::Severity::kAlert,
                   .text = absl::StrCat("RDMA device ", event->device,
                                        " failed for good: all its queue pairs are gone, jobs on it end"),
                   .evidence = {{"device", event->device}, {"what", "fatal"}}});
    options_.device(event->device, true);
  }
  if (!fatal) return;
  const std::string name = device.device();
  devices_.erase(name);
  const std::lock_guard lock(mutex_);
  listened_.erase(name);
}

void RdmaWatch::LookAtAll() {
  looked_ns_ = MonotonicClock().NowNs();
  host::RdmaTree now = ReadTree();
  for (const host::RdmaChange& change : host::CompareRdma(last_, now)) {
    options_.tell(EventOf(change));
    if (change.what == "port" && !change.netdev.empty()) options_.port(change.netdev, Active(now, change));
    options_.device(change.device, !Has(now, change.device));
  }
  KeepBaseline(now);
  Listen(now);
  last_ = std::move(now);
}

void RdmaWatch::Listen(const host::RdmaTree& tree) {
  if (monitor_ == nullptr && !tree.nics.empty()) {
    if (auto monitor = rdma::NldevMonitor::Open(); monitor.ok()) monitor_ = *std::move(monitor);
  }
  std::map<std::string, std::unique_ptr<rdma::AsyncEvents>> kept;
  for (const host::RdmaTreeNic& nic : tree.nics) {
    if (nic.software && !options_.held.contains(nic.name)) continue;
    if (const auto have = devices_.find(nic.name); have != devices_.end()) {
      kept[nic.name] = std::move(have->second);
    } else if (auto opened = rdma::AsyncEvents::Open(nic.name); opened.ok()) {
      kept[nic.name] = *std::move(opened);
    } else {
      spdlog::debug("{}", std::string(opened.status().message()));  // it is looked at every second then
    }
  }
  devices_ = std::move(kept);
  const std::lock_guard lock(mutex_);
  listened_.clear();
  for (const auto& [name, device] : devices_) listened_.insert(name);
}

void RdmaWatch::KeepBaseline(const host::RdmaTree& tree) {
  const std::lock_guard lock(mutex_);
  if (baseline_ns_ == 0) baseline_ns_ = MonotonicClock().NowNs();
  for (const host::RdmaTreeNic& nic : tree.nics) {
    for (const host::RdmaTreePort& port : nic.ports) {
      for (const auto& [name, value] : port.counters) {
        const auto [at, added] = baseline_.try_emplace({nic.name, port.number, name}, value);
        if (value < at->second) at->second = value;  // the driver was loaded anew, or the counter went round
      }
    }
  }
}

void RdmaWatch::AddKnown(v1::NicsReply& reply) {
  const std::lock_guard lock(mutex_);
  const double over_s = baseline_ns_ == 0 ? 0 : static_cast<double>(MonotonicClock().NowNs() - baseline_ns_) / 1e9;
  for (v1::RdmaNic& nic : *reply.mutable_nics()) {
    nic.set_events(listened_.contains(nic.name()) ? "async" : "polled");
    for (v1::RdmaNicPort& port : *nic.mutable_ports()) {
      port.set_counters_over_s(over_s);
      for (v1::NicCounter& counter : *port.mutable_counters()) {
        const auto before = baseline_.find({nic.name(), port.number(), counter.name()});
        if (before != baseline_.end() && counter.value() >= before->second)
          counter.set_moved(counter.value() - before->second);
      }
    }
  }
}

v1::NicsReply RdmaWatch::Look() {
  host::RdmaTree tree = ReadTree();
  std::string note;
  size_t asked = 0;
  for (host::RdmaTreeNic& nic : tree.nics) {
    if (++asked > kMaxAsked) break;
    const absl::StatusOr<std::map<uint32_t, uint32_t>> mtus = rdma::ActiveMtus(nic.name);
    if (!mtus.ok()) {
      if (note.empty()) note = absl::StrCat("RoCE MTUs are not known: ", std::string(mtus.status().message()));
      continue;
    }
    for (host::RdmaTreePort& port : nic.ports) {
      if (const auto mtu = mtus->find(port.number); mtu != mtus->end()) port.active_mtu = mtu->second;
    }
  }
  v1::NicsReply reply = api::ToProto(tree, host::JudgeRdma(tree));
  reply.set_note(note);
  AddKnown(reply);
  return reply;
}

}  // namespace cw::agent
