// SPDX-License-Identifier: Apache-2.0
// NICs of the configuration, their carriers, and what stands in for one that fails.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_format.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/balance/dry_run.h"
#include "userspace/agent/control_record.h"
#include "userspace/agent/engine_mail.h"
#include "userspace/agent/flows/draining.h"
#include "userspace/agent/host_check.h"
#include "userspace/agent/host_net.h"
#include "userspace/agent/modes.h"
#include "userspace/agent/nic_address.h"
#include "userspace/agent/nics/address_watch.h"
#include "userspace/agent/nics/addresses.h"
#include "userspace/agent/nics/blind_notes.h"
#include "userspace/agent/nics/carriers.h"
#include "userspace/agent/nics/carry_kernel.h"
#include "userspace/agent/nics/first_attach.h"
#include "userspace/agent/nics/hooks.h"
#include "userspace/agent/nics/nic_clocks.h"
#include "userspace/agent/nics/nic_failover.h"
#include "userspace/agent/nics/rounds_seen.h"
#include "userspace/agent/nics/verbs_probes.h"
#include "userspace/agent/paths/link_flaps.h"
#include "userspace/agent/recovery/tails.h"
#include "userspace/agent/scopes.h"
#include "userspace/dataplane/first_attach.h"
#include "userspace/dataplane/link_news.h"
#include "userspace/dataplane/netdev.h"
#include "userspace/dataplane/offload.h"
#include "userspace/host/live.h"
#include "userspace/rdma/nldev.h"

namespace cw::agent {
namespace {

// Devices without hardware behind them name a rate that means nothing.
double LinkRateBps(const config::NicConfig& nic) {
  if (nic.rate_mbps > 0) return static_cast<double>(nic.rate_mbps) * 1e6;
  const std::string folder = "/sys/class/net/" + nic.name;
  std::error_code error;
  double mbps = 0;
  if (!std::filesystem::exists(folder + "/device", error) || !(std::ifstream(folder + "/speed") >> mbps)) return 0;
  return std::max(mbps, 0.0) * 1e6;
}

// Those that are not ours, by hook and name; none where they may not be listed.
std::vector<std::string> OtherPrograms(const std::string& nic) {
  host::KernelProbe live;
  std::vector<std::string> names;
  for (const host::AttachedProgram& program : live.Programs(nic).value_or(std::vector<host::AttachedProgram>())) {
    if (program.ours) continue;
    // Names take CAP_SYS_ADMIN, which the service has not.
    names.push_back(
        program.name.empty()
            ? absl::StrFormat("%s program %d (bpftool prog show id %d)", program.hook, program.id, program.id)
            : absl::StrFormat("%s program %s (id %d)", program.hook, program.name, program.id));
  }
  return names;
}

std::vector<Hooks::Rounds> RoundsOf(const NicState& nic, const PairTable& pairs, uint32_t session,
                                    probe::Engine& engine) {
  std::vector<Hooks::Rounds> out;
  for (const auto& [index, pair] : pairs) {
    const auto rounds = pair->ifindex == nic.ifindex ? RoundsOf(*pair, session, engine) : std::nullopt;
    if (!rounds) continue;
    out.push_back(*rounds);
    if (rounds->sent - rounds->seen < Hooks::kUnseenRounds) break;  // one that is seen is enough
  }
  return out;
}

}  // namespace

absl::Status Agent::OpenNics() {
  verbs_ = std::make_unique<VerbsProbes>(
      nics_, options_.config.probe, journal_,
      VerbsProbes::Asks{.is_there = probe_verbs::UdEndpoint::IsThere,
                        .start_anew = [this](telemetry::Event why) { StartAnew(std::move(why)); }});
  const maps::NicLinesView& lines = dataplane_->nic_lines();
  nic_clocks_ = std::make_unique<NicClocks>(
      nics_, pairs_, clock_,
      NicClocks::Lines{
          .put = [&lines](uint32_t ifindex, const cw_nic_line& line) { return lines.Put(ifindex, line).ok(); },
          .erase = [&lines](uint32_t ifindex) { (void)lines.Delete(ifindex); }},
      [this](const NicState& nic) { return verbs_->StampsOf(nic); }, options_.lab_nic_clock);
  const absl::StatusOr<HostNet> net = ReadHostNet();
  if (!net.ok()) return net.status();
  for (const config::NicConfig& nic_config : options_.config.nics) {
    NicState nic{.config = nic_config, .device = nic_config.name};
    absl::StatusOr<uint32_t> ifindex = DeviceCalled(*net, nic_config.name);
    if (!ifindex.ok()) return ifindex.status();
    nic.ifindex = *ifindex;
    absl::StatusOr<Addr> address = AddressOf(*net, nic_config);
    if (!address.ok()) return address.status();
    nic.address = *address;
    nic.rate_bps = LinkRateBps(nic_config);
    if (absl::StatusOr<uint32_t> mtu = dataplane::MtuOf(nic_config.name); mtu.ok()) nic.mtu = *mtu;
    const config::Transport transport = config::TransportOf(nic_config, options_.config.probe);
    if (transport == config::Transport::kVerbs) {
      nic.note = "not attached: probes go by verbs";
      nic.offloads_roce = !dataplane::RoceOffloadDevice("/sys", nic_config.name).empty();
      // Where an agent before us had attached, its programs would take probes by verbs for data.
      if (absl::Status detached = dataplane_->Detach(nic.ifindex); !detached.ok()) return detached;
    } else if (nic_config.attach == config::Attach::kNone) {
      nic.note = "not attached: attach = \"none\"";
    } else {
      absl::StatusOr<dataplane::AttachInfo> attached = AttachTo(nic);
      if (attached.ok()) {
        nic.attach = *attached;
        nic.attached = true;
        nic.note = attached->warning;
        if (!nic.note.empty()) spdlog::warn("{}: {}", nic_config.name, nic.note);
      } else if (absl::IsUnavailable(attached.status())) {
        nic.attached = true;  // each second it is tried again
        nic.hooks_trouble = absl::StrCat("NIC ", nic_config.name, ": ", attached.status().message());
        spdlog::warn("{}", nic.hooks_trouble);
      } else if (absl::IsFailedPrecondition(attached.status())) {
        nic.note = std::string(attached.status().message());
        nic.offloads_roce = true;
        spdlog::warn("{}: {}", nic_config.name, nic.note);
      } else {
        return attached.status();
      }
    }
    const bool may_choose = transport == config::Transport::kAuto || transport == config::Transport::kOffload;
    nic.by_verbs = transport == config::Transport::kVerbs || (may_choose && nic.offloads_roce && !nic.attached);
    nic.hears_verbs = transport == config::Transport::kAuto && nic.attached;
    nic_clocks_->Open(nic);
    nics_.push_back(std::move(nic));
  }
  if (nics_.empty()) return absl::InvalidArgumentError("the configuration names no NIC; add a [[nic]] table");
  return absl::OkStatus();
}

// Unavailable, with the reason, where it is to wait.
absl::StatusOr<dataplane::AttachInfo> Agent::AttachTo(const NicState& nic) {
  if (nic.config.wait_for_idle) {
    std::string why = WhyNotYet(nic.ifindex, dataplane::WhatFirstAttachDoes(nic.ifindex), rdma::NldevClient::Open);
    if (!why.empty()) return absl::UnavailableError(why);
  }
  return dataplane_->Attach(nic.ifindex, nic.config.rx_stamps == config::RxStamps::kHardware);
}

absl::Status Agent::OpenNicFailover() {
  const bool on = options_.config.steering.nic_failover;
  carry_kernel_ = std::make_unique<RealCarryKernel>(*dataplane_);
  nic_failover_ = std::make_unique<NicFailover>(
      vitals_.host_name, pairs_, nics_, qps_, engine_->mesh(), *carry_kernel_, peer_names_, monotonic_, *mail_,
      *dry_run_, journal_,
      NicFailover::Asks{.allowed = modes_->may(),
                        .drained = [this](const NicState& nic) { return draining_->IsDrained(nic); },
                        .interval_ns = [this](uint32_t pair) { return engine_->IntervalNs(pair); },
                        .read_probes = [this] { ReadProbes(); },
                        .look_at_carrier = [this](NicState& nic) { carriers_->LookAt(nic); },
                        .carried = [this](uint32_t pair) { tails_->OnCarried(pair); }});
  const absl::Status status = nic_failover_->Open(on);
  if (!on || !status.ok()) return status;
  return loop_->AddTimer(NicFailover::kPeriod, [this] { nic_failover_->Watch(); });
}

absl::Status Agent::OpenCarriers() {
  carriers_ = std::make_unique<Carriers>(
      nics_, *link_flaps_, *clock_, monotonic_, journal_,
      Carriers::Asks{.read = [](uint32_t ifindex) { return metrics::ReadLink(ifindex); },
                     .ifindex_of = dataplane::IfindexOf,
                     .is_there = [](const config::NicConfig& nic) { return CheckNic(nic).ok(); },
                     .helped =
                         [this](const NicState& nic) {
                           return nic_failover_->on() &&
                                  modes_->allowed().Less(scopes_->OnNic(nic.ifindex)).Acts(Capability::kNic);
                         },
                     .changed =
                         [this] {
                           if (nic_failover_->on()) nic_failover_->Watch();
                         },
                     .start_anew = [this](telemetry::Event why) { StartAnew(std::move(why)); }});
  carriers_->LookAtAll();
  absl::StatusOr<std::unique_ptr<dataplane::LinkNews>> news = dataplane::LinkNews::Open();
  if (!news.ok()) {
    spdlog::warn("carriers of NICs are looked at once a second only: {}", std::string(news.status().message()));
    return absl::OkStatus();
  }
  link_news_ = *std::move(news);
  return loop_->AddFd(link_news_->fd(), [this] { carriers_->OnNews(link_news_->Take()); });
}

absl::Status Agent::OpenHooks() {
  hooks_ = std::make_unique<Hooks>(
      nics_, monotonic_, journal_,
      Hooks::Dependencies{
          .look = [this](const NicState& nic) { return dataplane_->Look(nic.ifindex); },
          .attach = [this](const NicState& nic) { return AttachTo(nic); },
          .others = [](const NicState& nic) { return OtherPrograms(nic.device); },
          .rounds = [this](const NicState& nic) { return RoundsOf(nic, pairs_, control_->session(), *engine_); },
          .restore_pins = [this] { return dataplane_->RestorePins(); },
          .off = [this] { return modes_->mode() == Mode::kOff; }});
  blind_notes_ = std::make_unique<BlindNotes>(pairs_, nics_, *mail_, journal_);
  return absl::OkStatus();
}

absl::Status Agent::OpenAddresses() {
  addresses_ = std::make_unique<Addresses>(nics_, journal_,
                                           Addresses::Asks{.addresses = ReadHostAddresses, .links = ReadHostLinks});
  addresses_->LookAtAll();
  absl::StatusOr<std::unique_ptr<AddressWatch>> watch = AddressWatch::Open();
  if (!watch.ok()) {
    spdlog::warn("addresses of NICs are looked at once a second only: {}", std::string(watch.status().message()));
    return absl::OkStatus();
  }
  address_watch_ = *std::move(watch);
  return loop_->AddFd(address_watch_->fd(), [this] {
    const AddressWatch::Changed changed = address_watch_->Take();
    const bool ours =
        std::any_of(nics_.begin(), nics_.end(), [&](const NicState& nic) { return changed.Has(nic.address); });
    if (!ours) return;
    carriers_->LookAtAll();  // a device that is gone took its address along
    addresses_->LookAtAll();
  });
}

std::map<std::string, uint32_t> Agent::Ifindexes() const {
  std::map<std::string, uint32_t> out;
  for (const NicState& nic : nics_) out[nic.config.name] = nic.ifindex;
  return out;
}

absl::Status Agent::OpenVerbs() {
  absl::Status status =
      verbs_->Open(dataplane::ProgramRunner(dataplane_->xdp_fd(), dataplane_->tc_fd()), &keys_.ring());
  probe_verbs::VerbsHost* host = verbs_->host();
  if (host == nullptr) return status;
  for (const int fd : host->fds()) status.Update(loop_->AddFd(fd, [this, host] { host->OnReadable(MonotonicNs()); }));
  status.Update(loop_->AddTimer(probe_verbs::VerbsHost::kTickPeriod, [this, host] { host->Tick(MonotonicNs()); }));
  return status;
}

bool Agent::ProbesByVerbs() const { return verbs_->any(); }

}  // namespace cw::agent
