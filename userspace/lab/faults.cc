// SPDX-License-Identifier: Apache-2.0
//
// Faults, rates and link state of a lab that is up.
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bpf/lab/switch_abi.h"
#include "userspace/lab/fabric_impl.h"
#include "userspace/lab/fabric_layout.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

absl::StatusOr<uint64_t> FaultWordOf(const Fault& fault) {
  if (fault.kind == Fault::Kind::kNone) return 0;
  if (fault.kind == Fault::Kind::kPause) {
    if (fault.match != Fault::Match::kAll) return absl::InvalidArgumentError("a pause holds all packets of a port");
    return LAB_FAULT_PAUSED;
  }
  const double share = fault.kind == Fault::Kind::kDrop ? 1.0 : fault.drop_share;
  if (!(share >= 0 && share <= 1)) return absl::InvalidArgumentError("drop_share: choose 0 to 1");
  const uint64_t per_million = std::llround(share * LAB_FAULT_ALWAYS);
  const uint64_t word = per_million | static_cast<uint64_t>(fault.match) << 32;
  return fault.kind == Fault::Kind::kCorrupt ? word | LAB_FAULT_CORRUPT : word;
}

Fault FaultOf(uint64_t word) {
  if (word & LAB_FAULT_PAUSED) return Fault::Pause();
  const uint32_t per_million = static_cast<uint32_t>(word);
  const auto match = static_cast<Fault::Match>((word >> 32) & 0xff);
  if (!per_million) return Fault::None();
  if (word & LAB_FAULT_CORRUPT) return Fault::Corrupt(per_million / static_cast<double>(LAB_FAULT_ALWAYS), match);
  if (per_million >= LAB_FAULT_ALWAYS) return Fault::Drop(match);
  return Fault::Share(per_million / static_cast<double>(LAB_FAULT_ALWAYS), match);
}

static_assert(static_cast<int>(Fault::Match::kAll) == LAB_MATCH_ALL);
static_assert(static_cast<int>(Fault::Match::kRoceData) == LAB_MATCH_ROCE_DATA);
static_assert(static_cast<int>(Fault::Match::kProbes) == LAB_MATCH_PROBES);
static_assert(static_cast<int>(SwitchHash::kAddresses) == LAB_HASH_ADDRESSES);
static_assert(static_cast<int>(SwitchHash::kTtl) == LAB_HASH_TTL);
static_assert(static_cast<int>(SwitchHash::kSpray) == LAB_HASH_SPRAY);
static_assert(static_cast<int>(SwitchHash::kQpn) == LAB_HASH_QPN);

// A shaper that waits for its old, slow rate looks up only when a packet comes: send it one that everybody ignores.
absl::Status Kick(const std::string& device) {
  constexpr uint16_t kLocalExperimental = 0x88B5;  // IEEE 802, for local experiments
  int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "packet socket");
  unsigned char frame[ETH_ZLEN] = {};
  std::memset(frame, 0xff, ETH_ALEN);
  const uint16_t type = htons(kLocalExperimental);
  std::memcpy(frame + 2 * ETH_ALEN, &type, sizeof(type));
  sockaddr_ll to = {};
  to.sll_family = AF_PACKET;
  to.sll_ifindex = static_cast<int>(if_nametoindex(device.c_str()));
  to.sll_protocol = type;
  const ssize_t n = sendto(fd, frame, sizeof(frame), 0, reinterpret_cast<sockaddr*>(&to), sizeof(to));
  // A full queue answers ENOBUFS and has looked up all the same; a port that is down has nothing to wake.
  absl::Status status =
      n < 0 && errno != ENOBUFS && errno != ENETDOWN ? absl::ErrnoToStatus(errno, "wake a queue") : absl::OkStatus();
  close(fd);
  return status;
}

}  // namespace

void Fabric::Impl::ConfigureLink(const LinkDirection& link, double mbps) {
  lab_link_config* config = maps->Config(DirectionNumber(link));
  const double bytes_per_ns = mbps * 1e6 / 8 / 1e9;
  config->rate_bps = static_cast<uint64_t>(mbps * 1e6);
  config->vq_min_bytes = static_cast<uint64_t>(spec().ecn_min_bytes);
  config->vq_max_bytes = static_cast<uint64_t>(spec().ecn_max_bytes);
  config->vq_p_max = static_cast<uint64_t>(spec().ecn_p_max * 4294967296.0);
  const bool marks = spec().ecn && mbps > 0;
  config->vq_rate = marks ? static_cast<uint64_t>(bytes_per_ns * spec().ecn_drain * (1 << LAB_VQ_SHIFT)) : 0;
}

absl::Status Fabric::Impl::Reshape(const LinkDirection& link, const std::string& shaper) const {
  const SwitchPort port = Sender(link);
  return RunInNetns(NetnsPath(port.netns), [&] {
    std::vector<std::string> argv = {"tc", "qdisc", "replace", "dev", port.device, "root"};
    for (absl::string_view word : absl::StrSplit(shaper, ' ')) argv.emplace_back(word);
    absl::Status status = RunTool(argv).status();
    status.Update(Kick(port.device));
    return status;
  });
}

absl::StatusOr<int64_t> Fabric::SetFault(const LinkDirection& link, const Fault& fault) {
  if (absl::Status status = impl_->Check(link); !status.ok()) return status;
  absl::StatusOr<uint64_t> word = FaultWordOf(fault);
  if (!word.ok()) return word.status();
  const int direction = DirectionNumber(link);
  const bool pause = fault.kind == Fault::Kind::kPause;
  const double mbps = impl_->maps->Config(direction)->rate_bps / 1e6;
  if (pause && (link.tier != LinkDirection::Tier::kSpine || mbps <= 0)) {
    return absl::UnimplementedError("only shaped leaf-spine links can be paused");
  }
  const bool paused = impl_->maps->FaultWord(direction) & LAB_FAULT_PAUSED;
  impl_->maps->SetFaultWord(direction, *word);
  int64_t now = MonotonicNs();
  if (pause != paused) {
    const std::string shaper = pause ? PausedShaper(spec()) : Shaper(spec(), mbps);
    if (absl::Status status = impl_->Reshape(link, shaper); !status.ok()) return status;
    now = MonotonicNs();
  }
  return now;
}

absl::Status Fabric::SetLonger(const LinkDirection& link, int64_t longer_ns) {
  if (absl::Status status = impl_->Check(link); !status.ok()) return status;
  if (longer_ns < 0 || longer_ns > LAB_MAX_LONGER_NS) return absl::InvalidArgumentError("longer: choose 0 to 100 us");
  std::atomic_ref<__u64>(impl_->maps->Config(DirectionNumber(link))->longer_ns).store(static_cast<__u64>(longer_ns));
  return absl::OkStatus();
}

void Fabric::SetHash(SwitchHash hash) {
  for (const LinkDirection& link : LinkDirections()) {
    if (link.tier != LinkDirection::Tier::kHost || link.toward != LinkDirection::Toward::kUp) continue;
    std::atomic_ref<__u64>(impl_->maps->Config(DirectionNumber(link))->hash).store(static_cast<__u64>(hash));
  }
}

absl::Status Fabric::SpreadFlowlets(absl::Duration gap) {
  if (gap < absl::Microseconds(1) || gap > absl::Seconds(4))
    return absl::InvalidArgumentError("gap: choose 1 us to 4 s");
  if (!spec().ecn || spec().link_mbps <= 0) return absl::FailedPreconditionError("flowlets need shaped links with ecn");
  for (int host = 0; host < hosts(); ++host) {
    const uint64_t word = LAB_HASH_FLOWLETS | static_cast<uint64_t>(HostLeaf(host)) << LAB_HASH_LEAF_SHIFT |
                          static_cast<uint64_t>(spec().spines) << LAB_HASH_SPINES_SHIFT |
                          static_cast<uint64_t>(absl::ToInt64Nanoseconds(gap)) << LAB_HASH_GAP_SHIFT;
    std::atomic_ref<__u64>(impl_->maps->Config(DirectionNumber(LinkDirection::HostToLeaf(host)))->hash).store(word);
  }
  return absl::OkStatus();
}

absl::StatusOr<Fault> Fabric::GetFault(const LinkDirection& link) const {
  if (absl::Status status = impl_->Check(link); !status.ok()) return status;
  return FaultOf(impl_->maps->FaultWord(DirectionNumber(link)));
}

absl::Status Fabric::ClearFaults() {
  absl::Status status;
  for (const LinkDirection& link : LinkDirections()) {
    status.Update(ClearFault(link).status());
    if (link.tier != LinkDirection::Tier::kSpine) continue;
    if (absl::StatusOr<double> mbps = LinkRateMbps(link); mbps.ok() && *mbps != spec().link_mbps) {
      status.Update(SetLinkRate(link, spec().link_mbps).status());
    }
    if (link.toward != LinkDirection::Toward::kUp) continue;
    absl::StatusOr<bool> up = IsLinkUp(link.leaf, link.spine);
    status.Update(up.status());
    if (up.ok() && !*up) status.Update(SetLinkUp(link.leaf, link.spine, true).status());
  }
  return status;
}

absl::StatusOr<int64_t> Fabric::SetLinkRate(const LinkDirection& link, double mbps) {
  if (absl::Status status = impl_->Check(link); !status.ok()) return status;
  if (link.tier != LinkDirection::Tier::kSpine) return absl::UnimplementedError("only leaf-spine links change rate");
  const bool unshaped = spec().link_mbps == 0 && mbps == 0;
  if (!unshaped && !(mbps >= 0.1 && mbps <= 400'000)) {
    return absl::InvalidArgumentError("rate: choose 0.1 to 400000 Mbit/s");
  }
  if (impl_->maps->FaultWord(DirectionNumber(link)) & LAB_FAULT_PAUSED) {
    return absl::FailedPreconditionError(absl::StrCat(link.Name(), " is paused: clear that first"));
  }
  impl_->ConfigureLink(link, mbps);
  const std::string shaper = unshaped ? "pfifo" : Shaper(spec(), mbps);
  if (absl::Status status = impl_->Reshape(link, shaper); !status.ok()) return status;
  return MonotonicNs();
}

absl::StatusOr<double> Fabric::LinkRateMbps(const LinkDirection& link) const {
  if (absl::Status status = impl_->Check(link); !status.ok()) return status;
  return impl_->maps->Config(DirectionNumber(link))->rate_bps / 1e6;
}

absl::StatusOr<bool> Fabric::IsLinkUp(int leaf, int spine) const {
  const LinkDirection down = LinkDirection::SpineToLeaf(spine, leaf);
  if (absl::Status status = impl_->Check(down); !status.ok()) return status;
  const SwitchPort port = impl_->Receiver(down);
  bool up = false;
  absl::Status status = RunInNetns(NetnsPath(port.netns), [&] {
    absl::StatusOr<bool> answer = IsDeviceUp(port.device);
    if (answer.ok()) up = *answer;
    return answer.status();
  });
  if (!status.ok()) return status;
  return up;
}

// A port is known by its address. So the addresses are exchanged, not the devices, by which our programs know links.
absl::Status Fabric::SetCablesSwapped(int leaf, int one, int other, bool swapped) {
  for (const int spine : {one, other}) {
    if (absl::Status status = impl_->Check(LinkDirection::SpineToLeaf(spine, leaf)); !status.ok()) return status;
  }
  if (one == other) return absl::InvalidArgumentError("two different spines, please");
  if (spec().ipv6) return absl::UnimplementedError("ports of labs with IPv6 have no address of their own");
  std::vector<std::string> lines;
  for (const auto& [port, far] : {std::pair{one, other}, {other, one}}) {
    const std::string own = absl::StrCat(LeafAddr(leaf, port), "/31 dev spine", port);
    const std::string foreign = absl::StrCat(LeafAddr(leaf, far), "/32 dev spine", port);
    // The new one first: the kernel takes the routes of a port that has no address.
    lines.push_back(absl::StrCat("addr add ", swapped ? foreign : own));
    lines.push_back(absl::StrCat("addr del ", swapped ? own : foreign));
  }
  const absl::Status done = RunInNetns(LeafNetns(leaf), [&] {
    return RunTool({"ip", "-batch", "-"}, absl::StrJoin(lines, "\n") + "\n").status();
  });
  if (done.ok()) return done;
  return absl::FailedPreconditionError(absl::StrCat("cables of leaf", leaf, " to spine", one, " and spine", other,
                                                    " cannot be exchanged; are they already? ", done.message()));
}

absl::StatusOr<int64_t> Fabric::SetLinkUp(int leaf, int spine, bool up) {
  const LinkDirection down = LinkDirection::SpineToLeaf(spine, leaf);
  if (absl::Status status = impl_->Check(down); !status.ok()) return status;
  const SwitchPort port = impl_->Receiver(down);
  std::vector<std::string> lines = {absl::StrCat("link set ", port.device, up ? " up" : " down")};
  if (up) {
    // The kernel forgets neighbours of a port that goes down, and the whole route when the last uplink does.
    lines.push_back(UplinkNeighbour(leaf, spine));
    for (const std::string& line : spec().ipv6 ? UplinkLines6(leaf, spine) : std::vector<std::string>()) {
      lines.push_back(line);
    }
    std::vector<int> spines;
    for (int s = 0; s < spec().spines; ++s) {
      absl::StatusOr<bool> other = IsLinkUp(leaf, s);
      if (!other.ok()) return other.status();
      if (s == spine || *other) spines.push_back(s);
    }
    for (int remote = 0; remote < spec().leaves; ++remote) {
      if (remote == leaf) continue;
      lines.push_back(absl::StrCat("route replace ", EcmpRoute(leaf, remote, spines)));
      if (spec().ipv6) lines.push_back(absl::StrCat("route replace ", EcmpRoute6(leaf, remote, spines)));
    }
  }
  absl::Status status = RunInNetns(NetnsPath(port.netns), [&] {
    absl::Status done = RunTool({"ip", "-batch", "-"}, absl::StrJoin(lines, "\n") + "\n").status();
    return done.ok() && up ? WaitUntilRunning({port.device}) : done;
  });
  const SwitchPort far = impl_->Sender(down);
  if (status.ok() && up) status = RunInNetns(NetnsPath(far.netns), [&] { return WaitUntilRunning({far.device}); });
  if (!status.ok()) return status;
  return MonotonicNs();
}

}  // namespace cw::lab
