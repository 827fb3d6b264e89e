// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/frr.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "userspace/lab/fabric_layout.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

constexpr char kDaemons[] = "/usr/lib/frr/";
constexpr char kStateRoot[] = "/var/run/frr/";  // where -N PATHSPACE puts the daemons' sockets
constexpr int kSpineAs = 65100, kFirstLeafAs = 65001;

// Timers as short as FRR lets them be: what is measured is how soon it sees a fault, not how long it waits afterwards.
std::string Neighbour(const std::string& address, int as) {
  return absl::StrFormat(
      " neighbor %s remote-as %d\n neighbor %s bfd\n neighbor %s timers connect 1\n"
      " neighbor %s advertisement-interval 0\n",
      address, as, address, address, address);
}

std::string Router(int as, const std::string& id, const std::string& neighbours, const std::string& networks) {
  return absl::StrFormat(
      "router bgp %d\n bgp router-id %s\n no bgp ebgp-requires-policy\n no bgp network import-check\n timers bgp 1 3\n"
      "%s address-family ipv4 unicast\n%s  maximum-paths 64\n exit-address-family\n",
      as, id, neighbours, networks);
}

std::string LeafRouter(const FabricSpec& spec, int leaf) {
  std::string neighbours;
  for (int s = 0; s < spec.spines; ++s) neighbours += Neighbour(SpineAddr(leaf, s), kSpineAs);
  return Router(kFirstLeafAs + leaf, LeafAddr(leaf, 0), neighbours, absl::StrFormat("  network 10.0.%d.0/24\n", leaf));
}

std::string SpineRouter(const FabricSpec& spec, int spine) {
  std::string neighbours;
  for (int l = 0; l < spec.leaves; ++l) neighbours += Neighbour(LeafAddr(l, spine), kFirstLeafAs + l);
  return Router(kSpineAs, SpineAddr(0, spine), neighbours, "");
}

// bfdd asks for addresses: a peer's session takes its timers from the entry of that peer.
std::string BfdPeers(const std::string& bgp, const FrrSpec& spec) {
  std::string out = "bfd\n";
  const int64_t ms = absl::ToInt64Milliseconds(spec.bfd_interval);
  for (const auto& line : absl::StrSplit(bgp, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() != 3 || words[0] != "neighbor" || words[2] != "bfd") continue;
    absl::StrAppendFormat(
        &out, " peer %s\n  detect-multiplier %d\n  receive-interval %d\n  transmit-interval %d\n  no shutdown\n",
        words[1], spec.bfd_multiplier, ms, ms);
  }
  return out;
}

// bgpd that finds no zebra tries again after ten seconds, and until then hears nothing of BFD.
absl::Status WaitForSocket(const std::string& path) {
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (!std::filesystem::exists(path)) {
    if (absl::Now() > deadline) return absl::DeadlineExceededError("zebra does not open " + path);
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::OkStatus();
}

// How many of a switch's sessions are up by what BFD told BGP, which is what takes a next hop out. Both daemons' words
// count: bfdd's alone is worth nothing while bgpd is not listening.
absl::StatusOr<int> SessionsUp(const std::string& netns) {
  absl::StatusOr<std::string> out = RunTool({"vtysh", "-N", netns, "-d", "bgpd", "-c", "show bgp neighbors"});
  if (!out.ok()) return out.status();
  int up = 0;
  for (const absl::string_view line : absl::StrSplit(*out, '\n')) up += absl::StartsWith(line, "  Status: Up");
  return up;
}

absl::Status Write(const std::string& file, const std::string& text) {
  std::ofstream out(file);
  out << text;
  return out.good() ? absl::OkStatus() : absl::UnavailableError("cannot write " + file);
}

// How many next hops the kernel has for a prefix, in the calling thread's namespace.
absl::StatusOr<int> NextHops(const std::string& prefix) {
  absl::StatusOr<std::string> out = RunTool({"ip", "route", "show", prefix});
  if (!out.ok()) return out.status();
  int hops = 0;
  for (size_t at = out->find(" via "); at != std::string::npos; at = out->find(" via ", at + 1)) ++hops;
  return hops;
}

}  // namespace

absl::Status FrrRouting::StartSwitch(const std::string& netns, const std::string& bgp, const FrrSpec& spec) {
  const std::string folder = kStateRoot + netns;
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  std::filesystem::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrCat("make ", folder, ": ", error.message()));
  folders_.push_back(folder);
  // The daemons give up root for the user that the package made.
  if (absl::StatusOr<std::string> owned = RunTool({"chown", "frr:frr", folder}); !owned.ok()) return owned.status();
  const std::pair<const char*, std::string> daemons[] = {
      {"zebra", "hostname " + netns + "\nno zebra nexthop kernel enable\n"},
      {"bfdd", BfdPeers(bgp, spec)},
      {"bgpd", bgp}};
  for (const auto& [daemon, text] : daemons) {
    const std::string file = absl::StrCat(folder, "/", daemon, ".conf");
    if (absl::Status status = Write(file, text); !status.ok()) return status;
    absl::StatusOr<ProcessId> process =
        StartProcess({std::string(kDaemons) + daemon, "-N", netns, "-f", file, "-i",
                      absl::StrCat(folder, "/", daemon, ".pid"), "-A", "127.0.0.1", "-P", "0", "--log", "stdout"},
                     absl::StrCat(fabric_.RunDir(), "/", netns, "-", daemon, ".log"));
    if (!process.ok()) return process.status();
    processes_.push_back(*process);
    if (absl::Status status = fabric_.RecordProcess(process->pid, daemon); !status.ok()) return status;
    if (std::string(daemon) != "zebra") continue;
    if (absl::Status status = WaitForSocket(folder + "/zserv.api"); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FrrRouting>> FrrRouting::Start(Fabric& fabric, const FrrSpec& spec) {
  if (!std::filesystem::exists(std::string(kDaemons) + "bgpd"))
    return absl::NotFoundError("FRR is not installed: apt-get install frr");
  std::unique_ptr<FrrRouting> routing(new FrrRouting(fabric));
  const FabricSpec& lab = fabric.spec();
  auto take_over = [&](const std::string& netns, const std::string& bgp, int own_leaf) {
    return RunInNetns(NetnsPath(netns), [&]() -> absl::Status {
      for (int l = 0; l < lab.leaves; ++l) {
        if (l == own_leaf) continue;
        absl::StatusOr<std::string> gone = RunTool({"ip", "route", "del", absl::StrFormat("10.0.%d.0/24", l)});
        if (!gone.ok()) return gone.status();
      }
      return routing->StartSwitch(netns, bgp, spec);
    });
  };
  for (int l = 0; l < lab.leaves; ++l) {
    if (absl::Status status = take_over(LeafName(lab.lab, l), LeafRouter(lab, l), l); !status.ok()) return status;
  }
  for (int s = 0; s < lab.spines; ++s) {
    if (absl::Status status = take_over(SpineName(lab.lab, s), SpineRouter(lab, s), -1); !status.ok()) return status;
  }
  if (absl::Status status = routing->WaitComplete(absl::Seconds(60)); !status.ok()) return status;
  return routing;
}

absl::Status FrrRouting::DropStaticRoutes() const {
  const FabricSpec& lab = fabric_.spec();
  for (int own = 0; own < lab.leaves; ++own) {
    absl::Status status = RunInNetns(NetnsPath(LeafName(lab.lab, own)), [&] {
      for (int l = 0; l < lab.leaves; ++l) {
        // There may be none: only the leaf whose link came back got it.
        if (l != own) (void)RunTool({"ip", "route", "del", absl::StrFormat("10.0.%d.0/24", l), "proto", "boot"});
      }
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

FrrRouting::~FrrRouting() {
  for (const ProcessId& process : processes_) {
    EndProcess(process).IgnoreError();
    fabric_.ForgetProcess(process.pid);
  }
  std::error_code ignored;
  for (const std::string& folder : folders_) std::filesystem::remove_all(folder, ignored);
}

absl::StatusOr<bool> FrrRouting::Complete() const {
  const FabricSpec& lab = fabric_.spec();
  bool complete = true;
  auto check = [&](const std::string& netns, int own_leaf, int want) {
    return RunInNetns(NetnsPath(netns), [&]() -> absl::Status {
      for (int l = 0; l < lab.leaves && complete; ++l) {
        if (l == own_leaf) continue;
        absl::StatusOr<int> hops = NextHops(absl::StrFormat("10.0.%d.0/24", l));
        if (!hops.ok()) return hops.status();
        complete = *hops == want;
      }
      return absl::OkStatus();
    });
  };
  for (int l = 0; l < lab.leaves; ++l) {
    if (absl::Status status = check(LeafName(lab.lab, l), l, lab.spines); !status.ok()) return status;
  }
  for (int s = 0; s < lab.spines; ++s) {
    if (absl::Status status = check(SpineName(lab.lab, s), -1, 1); !status.ok()) return status;
  }
  for (int l = 0; l < lab.leaves && complete; ++l) {
    absl::StatusOr<int> up = SessionsUp(LeafName(lab.lab, l));
    if (!up.ok()) return up.status();
    complete = *up == lab.spines;
  }
  for (int s = 0; s < lab.spines && complete; ++s) {
    absl::StatusOr<int> up = SessionsUp(SpineName(lab.lab, s));
    if (!up.ok()) return up.status();
    complete = *up == lab.leaves;
  }
  return complete;
}

absl::Status FrrRouting::WaitComplete(absl::Duration limit) const {
  // A session that has come up goes over from one packet per second to its own interval by an exchange of packets.
  constexpr absl::Duration kTimersSettle = absl::Milliseconds(500);
  const absl::Time deadline = absl::Now() + limit;
  while (absl::Now() < deadline) {
    absl::StatusOr<bool> complete = Complete();
    if (!complete.ok()) return complete.status();
    if (*complete) {
      absl::SleepFor(kTimersSettle);
      return absl::OkStatus();
    }
    absl::SleepFor(absl::Milliseconds(100));
  }
  return absl::DeadlineExceededError("FRR's routes are not complete; its logs are in " + fabric_.RunDir());
}

}  // namespace cw::lab
