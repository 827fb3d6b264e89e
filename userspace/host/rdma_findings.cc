// SPDX-License-Identifier: Apache-2.0
#include "userspace/host/rdma_findings.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "userspace/host/nic_checks.h"

namespace cw::host {
namespace {

using Level = RdmaFinding::Level;

constexpr int kSoftRoceHeaders = 80;  // RXE_MAX_HDR_LENGTH

std::string PortName(const RdmaTreeNic& nic, const RdmaTreePort& port) {
  return nic.ports.size() == 1 ? nic.name : absl::StrFormat("%s port %d", nic.name, port.number);
}

// fe80::/64 is there without any configuration, and no switch routes it.
bool LinkLocal(const Addr& address) { return address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80; }

const Gid* FirstGid(const RdmaTreePort& port, GidType type, bool v4) {
  const auto found = std::find_if(port.gids.begin(), port.gids.end(), [&](const Gid& gid) {
    return gid.type == type && gid.address.is_v4() == v4 && !LinkLocal(gid.address);
  });
  return found == port.gids.end() ? nullptr : &*found;
}

bool CarriesRoce(const RdmaTreeNic& nic, const RdmaTreePort& port) { return !nic.iwarp && port.ethernet(); }

class Judge {
 public:
  explicit Judge(const RdmaTree& tree) : tree_(tree) {}

  std::vector<RdmaFinding> All() {
    for (const RdmaTreeNic& nic : tree_.nics) {
      Device(nic);
      for (const RdmaTreePort& port : nic.ports) {
        State(nic, port);
        if (!CarriesRoce(nic, port)) continue;
        Gids(nic, port);
        Mtu(nic, port);
        Bond(nic, port);
      }
    }
    GidIndexes();
    Rates();
    return std::move(out_);
  }

 private:
  void Add(const RdmaTreeNic& nic, uint32_t port, const char* kind, Level level, std::string text,
           std::string todo = "") {
    out_.push_back({nic.name, port, kind, level, std::move(text), std::move(todo)});
  }

  void Device(const RdmaTreeNic& nic) {
    if (nic.iwarp) {
      Add(nic, 0, "iwarp", Level::kNote,
          nic.name + " speaks iWARP, which is TCP: nothing here measures or steers it (irdma: devlink enable_roce)");
    }
    if (!nic.physical_function.empty()) {
      Add(nic, 0, "vf", Level::kNote,
          absl::StrFormat("%s is a virtual function of %s: a NIC of its own here; its queue pairs are placed by label "
                          "like the physical function's, and its RoCE can be taken away by devlink on the host",
                          nic.name, nic.physical_function));
    }
  }

  void State(const RdmaTreeNic& nic, const RdmaTreePort& port) {
    if (port.active() || port.state.empty()) return;
    const std::string todo =
        port.netdev.empty() ? "look at the cable and the switch port; its counters tell the rest"
                            : absl::StrFormat("ip link set %s up; check the cable and the switch port", port.netdev);
    Add(nic, port.number, "port_down", Level::kFail,
        absl::StrFormat("%s is %s, physically %s", PortName(nic, port), port.state, port.physical_state), todo);
  }

  void Gids(const RdmaTreeNic& nic, const RdmaTreePort& port) {
    if (FirstGid(port, GidType::kRoceV2, true) != nullptr) return;
    const bool any_v2 =
        std::any_of(port.gids.begin(), port.gids.end(), [](const Gid& gid) { return gid.type == GidType::kRoceV2; });
    if (!any_v2 && !port.gids.empty()) {
      return Add(nic, port.number, "only_roce_v1", Level::kFail,
                 absl::StrFormat("%s has GIDs of RoCE v1 only: its packets are not routed, and no switch hashes them",
                                 PortName(nic, port)),
                 "turn RoCE v2 on in the driver or the firmware; ConnectX-3 without Pro has none");
    }
    if (const Gid* v6 = FirstGid(port, GidType::kRoceV2, false); v6 != nullptr) {
      return Add(nic, port.number, "no_ipv4_gid", Level::kNote,
                 absl::StrFormat("%s has RoCE v2 GIDs of IPv6 only, the first at index %d (%s)", PortName(nic, port),
                                 v6->index, v6->address.ToString()));
    }
    // A port that is down has lost its addresses with it.
    if (!port.active()) return;
    Add(nic, port.number, "no_ipv4_gid", Level::kFail,
        absl::StrFormat("%s has no RoCE v2 GID of an IPv4 address%s", PortName(nic, port),
                        port.gids.empty() ? "" : ", only link-local ones"),
        port.netdev.empty() ? "give its network device an address in this network namespace"
                            : absl::StrFormat("ip addr add ADDRESS dev %s", port.netdev));
  }

  void Mtu(const RdmaTreeNic& nic, const RdmaTreePort& port) {
    const auto netdev = tree_.netdevs.find(port.netdev);
    if (port.active_mtu == 0 || netdev == tree_.netdevs.end() || netdev->second.mtu == 0 || !port.active()) return;
    const int expected = ExpectedRoceMtu(netdev->second.mtu, nic.software);
    if (static_cast<int>(port.active_mtu) == expected) return;
    const bool too_large = static_cast<int>(port.active_mtu) > expected;
    Add(nic, port.number, "mtu", too_large ? Level::kFail : Level::kWarn,
        absl::StrFormat("%s uses a RoCE MTU of %d, and the MTU %d of %s carries %d", PortName(nic, port),
                        port.active_mtu, netdev->second.mtu, port.netdev, expected),
        too_large ? absl::StrFormat("large packets are lost: ip link set %s mtu 4500, or more", port.netdev)
                  : absl::StrFormat("set the MTU of %s again, or reload the driver: it was changed behind its back",
                                    port.netdev));
  }

  void Bond(const RdmaTreeNic& nic, const RdmaTreePort& port) {
    const auto netdev = tree_.netdevs.find(port.netdev);
    if (netdev == tree_.netdevs.end() || netdev->second.bond_mode.empty()) return;
    std::vector<std::string> down;
    for (const std::string& member : netdev->second.bond_members) {
      const auto facts = tree_.netdevs.find(member);
      if (facts != tree_.netdevs.end() && facts->second.state != "up") down.push_back(member);
    }
    const std::string members = absl::StrJoin(netdev->second.bond_members, ", ");
    Add(nic, port.number, "lag", Level::kNote,
        absl::StrFormat("%s is one device over the bond %s (%s: %s): which port of the card a queue pair leaves by is "
                        "the firmware's choice, so another source port may take another port of the card, too",
                        nic.name, port.netdev, netdev->second.bond_mode, members));
    if (down.empty()) return;
    Add(nic, port.number, "lag", Level::kWarn,
        absl::StrFormat("of the bond %s under %s, %s is not up: the device stays active at half its rate", port.netdev,
                        nic.name, absl::StrJoin(down, ", ")),
        "check the cable and the switch port");
  }

  // Jobs name one index for all of a host's devices (NCCL_IB_GID_INDEX).
  void GidIndexes() {
    std::map<uint32_t, std::vector<std::string>> by_index;
    for (const RdmaTreeNic& nic : tree_.nics) {
      for (const RdmaTreePort& port : nic.ports) {
        const Gid* gid = CarriesRoce(nic, port) && port.active() ? FirstGid(port, GidType::kRoceV2, true) : nullptr;
        if (gid != nullptr) by_index[gid->index].push_back(PortName(nic, port));
      }
    }
    if (by_index.size() < 2) return;
    const auto usual = std::max_element(by_index.begin(), by_index.end(),
                                        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    for (const auto& [index, names] : by_index) {
      if (index == usual->first) continue;
      out_.push_back({names[0].substr(0, names[0].find(' ')), 0, "gid_index", Level::kWarn,
                      absl::StrFormat("the RoCE v2 GID of IPv4 has index %d on %s, and %d on %s", index,
                                      absl::StrJoin(names, ", "), usual->first, absl::StrJoin(usual->second, ", ")),
                      "do not set one NCCL_IB_GID_INDEX for all: leave the choice to the library, or set "
                      "NCCL_IB_ROCE_VERSION_NUM=2 and NCCL_IB_ADDR_FAMILY"});
    }
  }

  // Ports of one kind of card at different rates: a cable, or a switch port that is set otherwise.
  void Rates() {
    std::map<std::string, double> best;
    const auto kind = [](const RdmaTreeNic& nic) { return nic.driver + " " + nic.hca_type + " " + nic.board_id; };
    const auto counts = [](const RdmaTreeNic& nic, const RdmaTreePort& port) {
      return !nic.software && port.active() && port.rate_bps > 0 && (!nic.hca_type.empty() || !nic.board_id.empty());
    };
    for (const RdmaTreeNic& nic : tree_.nics) {
      for (const RdmaTreePort& port : nic.ports) {
        if (counts(nic, port)) best[kind(nic)] = std::max(best[kind(nic)], port.rate_bps);
      }
    }
    for (const RdmaTreeNic& nic : tree_.nics) {
      for (const RdmaTreePort& port : nic.ports) {
        if (!counts(nic, port) || port.rate_bps >= best[kind(nic)]) continue;
        Add(nic, port.number, "rate", Level::kWarn,
            absl::StrFormat("%s runs at %s, and others of its kind here at %.0f Gb/sec", PortName(nic, port), port.rate,
                            best[kind(nic)] / 1e9),
            "check the cable, and the speed that the switch port is set to");
      }
    }
  }

  const RdmaTree& tree_;
  std::vector<RdmaFinding> out_;
};

const RdmaTreeNic* FindNic(const RdmaTree& tree, const std::string& name) {
  const auto found =
      std::find_if(tree.nics.begin(), tree.nics.end(), [&](const RdmaTreeNic& nic) { return nic.name == name; });
  return found == tree.nics.end() ? nullptr : &*found;
}

std::string GidText(const Gid& gid) {
  return absl::StrFormat("%s (%s, index %d)", gid.address.ToString(), GidTypeName(gid.type), gid.index);
}

// The first few, and how many more.
std::string Some(const std::vector<std::string>& texts) {
  constexpr size_t kSome = 4;
  const std::vector<std::string> few(texts.begin(),
                                     texts.begin() + static_cast<ptrdiff_t>(std::min(kSome, texts.size())));
  const std::string text = absl::StrJoin(few, ", ");
  return texts.size() > kSome ? absl::StrCat(text, " and ", texts.size() - kSome, " more") : text;
}

void CompareGids(const RdmaTreeNic& nic, const RdmaTreePort& before, const RdmaTreePort& now,
                 std::vector<RdmaChange>& out) {
  std::vector<std::string> came, gone;
  const auto lacks = [](const RdmaTreePort& port, const Gid& gid) {
    return std::find(port.gids.begin(), port.gids.end(), gid) == port.gids.end();
  };
  for (const Gid& gid : before.gids) {
    if (lacks(now, gid)) gone.push_back(GidText(gid));
  }
  for (const Gid& gid : now.gids) {
    if (lacks(before, gid)) came.push_back(GidText(gid));
  }
  if (came.empty() && gone.empty()) return;
  std::string text = absl::StrFormat("GIDs of %s changed: ", PortName(nic, now));
  if (!gone.empty()) absl::StrAppend(&text, "gone: ", Some(gone));
  if (!came.empty()) absl::StrAppend(&text, gone.empty() ? "" : "; ", "new: ", Some(came));
  // What connects by an index that means something else now fails, or goes out by another address.
  out.push_back({nic.name, now.number, now.netdev,
                 gone.empty() ? RdmaChange::Severity::kInfo : RdmaChange::Severity::kNotice, "gid", std::move(text)});
}

void ComparePort(const RdmaTreeNic& nic, const RdmaTreePort& before, const RdmaTreePort& now,
                 std::vector<RdmaChange>& out) {
  const std::string name = PortName(nic, now);
  const auto add = [&](const char* what, RdmaChange::Severity severity, std::string text) {
    out.push_back({nic.name, now.number, now.netdev, severity, what, std::move(text)});
  };
  if (before.state != now.state) {
    const std::string under = now.netdev.empty() ? "" : " (" + now.netdev + ")";
    if (now.active()) {
      add("port", RdmaChange::Severity::kNotice, absl::StrCat("port of ", name, under, " is active again"));
    } else {
      add("port", before.active() ? RdmaChange::Severity::kAlert : RdmaChange::Severity::kNotice,
          absl::StrCat("port of ", name, under, " went from ", before.state, " to ", now.state, ", physically ",
                       now.physical_state));
    }
  }
  if (before.rate_bps != now.rate_bps && before.active() && now.active()) {
    const bool slower = now.rate_bps < before.rate_bps;
    add("rate", slower ? RdmaChange::Severity::kAlert : RdmaChange::Severity::kNotice,
        absl::StrFormat("%s runs at %s, before at %s", name, now.rate, before.rate));
  }
  if (before.netdev != now.netdev) {
    add("netdev", RdmaChange::Severity::kNotice,
        absl::StrFormat("network device of %s is %s now, before %s", name, now.netdev.empty() ? "none" : now.netdev,
                        before.netdev.empty() ? "none" : before.netdev));
  }
  CompareGids(nic, before, now, out);
}

}  // namespace

int ExpectedRoceMtu(int netdev_mtu, bool software) {
  if (!software) return RoceMtu(netdev_mtu);
  for (const int mtu : std::array{4096, 2048, 1024, 512, 256}) {
    if (netdev_mtu - kSoftRoceHeaders >= mtu) return mtu;
  }
  return 0;
}

std::vector<RdmaFinding> JudgeRdma(const RdmaTree& tree) { return Judge(tree).All(); }

std::vector<RdmaChange> CompareRdma(const RdmaTree& before, const RdmaTree& now) {
  std::vector<RdmaChange> out;
  for (const RdmaTreeNic& old : before.nics) {
    if (FindNic(now, old.name) == nullptr) {
      out.push_back({old.name, 0, "", RdmaChange::Severity::kAlert, "device", "RDMA device " + old.name + " is gone"});
    }
  }
  for (const RdmaTreeNic& nic : now.nics) {
    const RdmaTreeNic* old = FindNic(before, nic.name);
    if (old == nullptr) {
      out.push_back({nic.name, 0, nic.ports.empty() ? "" : nic.ports[0].netdev, RdmaChange::Severity::kNotice, "device",
                     absl::StrCat("RDMA device ", nic.name, " appeared")});
      continue;
    }
    for (const RdmaTreePort& port : nic.ports) {
      for (const RdmaTreePort& past : old->ports) {
        if (past.number == port.number) ComparePort(nic, past, port, out);
      }
    }
  }
  return out;
}

}  // namespace cw::host
