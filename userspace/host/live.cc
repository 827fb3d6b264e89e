// SPDX-License-Identifier: Apache-2.0
#include "userspace/host/live.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "maps/names.h"
#include "userspace/dataplane/first_attach.h"
#include "userspace/dataplane/tc_dump.h"
#include "userspace/dataplane/tcx_query.h"
#include "userspace/host/roots.h"
#include "userspace/rdma/nldev.h"

namespace cw::host {
namespace {

// The kernel keeps 15 characters of a program's name.
bool IsOurs(const std::string& name, const char* full) {
  return !name.empty() && name == std::string(full).substr(0, BPF_OBJ_NAME_LEN - 1);
}

// "": it may not be asked for.
std::string ProgramName(uint32_t id) {
  const int fd = bpf_prog_get_fd_by_id(id);
  if (fd < 0) return "";
  bpf_prog_info info{};
  uint32_t length = sizeof(info);
  const int rc = bpf_obj_get_info_by_fd(fd, &info, &length);
  close(fd);
  if (rc != 0) return "";
  return info.name[0] == 0 ? "(no name)" : info.name;
}

// Features that are on, by the names of ethtool -k (ETHTOOL_GFEATURES); empty where the kernel does not tell.
std::set<std::string> ActiveFeatures(int socket, const char* nic) {
  ifreq request{};
  std::strncpy(request.ifr_name, nic, IFNAMSIZ - 1);
  const auto ask = [&](void* argument) {
    request.ifr_data = static_cast<char*>(argument);
    return ioctl(socket, SIOCETHTOOL, &request) == 0;
  };
  // Both end in arrays whose length is told first.
  std::vector<uint64_t> room(sizeof(ethtool_sset_info) / 8 + 1);
  auto* sets = reinterpret_cast<ethtool_sset_info*>(room.data());
  sets->cmd = ETHTOOL_GSSET_INFO;
  sets->sset_mask = uint64_t{1} << ETH_SS_FEATURES;
  if (!ask(sets) || sets->sset_mask == 0) return {};
  const uint32_t count = std::min<uint32_t>(sets->data[0], 1024), blocks = (count + 31) / 32;
  std::vector<uint64_t> names_room((sizeof(ethtool_gstrings) + size_t{count} * ETH_GSTRING_LEN) / 8 + 1);
  auto* names = reinterpret_cast<ethtool_gstrings*>(names_room.data());
  names->cmd = ETHTOOL_GSTRINGS;
  names->string_set = ETH_SS_FEATURES;
  names->len = count;
  std::vector<uint64_t> states_room((sizeof(ethtool_gfeatures) + blocks * sizeof(ethtool_get_features_block)) / 8 + 1);
  auto* states = reinterpret_cast<ethtool_gfeatures*>(states_room.data());
  states->cmd = ETHTOOL_GFEATURES;
  states->size = blocks;
  if (!ask(names) || !ask(states)) return {};
  std::set<std::string> active;
  for (uint32_t i = 0; i < std::min(count, names->len) && i / 32 < states->size; ++i) {
    const char* name = reinterpret_cast<const char*>(names->data) + size_t{i} * ETH_GSTRING_LEN;
    if ((states->features[i / 32].active >> i % 32 & 1) != 0) active.emplace(name, strnlen(name, ETH_GSTRING_LEN));
  }
  return active;
}

// netdevice(7), ethtool's SIOCETHTOOL. A device that goes away in between has what was told until then.
Interface Ask(int socket, const char* name) {
  Interface out{.name = name};
  ifreq request{};
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  if (ioctl(socket, SIOCGIFMTU, &request) == 0) out.mtu = request.ifr_mtu;
  if (ioctl(socket, SIOCGIFFLAGS, &request) == 0) {
    const bool up = (request.ifr_flags & IFF_UP) != 0, running = (request.ifr_flags & IFF_RUNNING) != 0;
    out.state = !up ? "down" : running ? "up" : "no carrier";
  }
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  request.ifr_data = reinterpret_cast<char*>(&driver);
  const bool told = ioctl(socket, SIOCETHTOOL, &request) == 0;
  out.on_bus = told && driver.bus_info[0] != 0;
  if (told) out.driver = driver.driver;
  ethtool_value flags{};
  flags.cmd = ETHTOOL_GFLAGS;
  request.ifr_data = reinterpret_cast<char*>(&flags);
  if (ioctl(socket, SIOCETHTOOL, &request) == 0) {
    out.strips_vlan = (flags.data & ETH_FLAG_RXVLAN) != 0;
    out.merges = (flags.data & ETH_FLAG_LRO) != 0;
  }
  const std::set<std::string> features = ActiveFeatures(socket, name);
  out.segments_udp = features.contains("tx-udp-segmentation");
  for (const char* gathers : {"rx-gro-list", "rx-udp-gro-forwarding"}) {
    if (features.contains(gathers)) out.gathers_udp.emplace_back(gathers);
  }
  out.needs_clsact = dataplane::NeedsClsact(if_nametoindex(name));
  return out;
}

// /proc/net/vlan/config: "eth0.10 | 10 | eth0" behind two lines of heads. Of the thread's network namespace.
void AddVlans(std::vector<Interface>& interfaces) {
  std::ifstream file("/proc/thread-self/net/vlan/config");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, '|');
    if (fields.size() != 3) continue;
    const std::string device(absl::StripAsciiWhitespace(fields[2])), vlan(absl::StripAsciiWhitespace(fields[0]));
    for (Interface& interface : interfaces) {
      if (interface.name == device) interface.vlans.push_back(vlan);
    }
  }
}

// "NAME:[17]" → "NAME"; all else as it is.
std::string WithoutId(const std::string& name) {
  const size_t at = name.find(":[");
  if (at == std::string::npos || name.back() != ']') return name;
  const bool number = name.find_first_not_of("0123456789", at + 2) == name.size() - 1;
  return number ? name.substr(0, at) : name;
}

uint32_t ProgramOfPin(const std::string& path, bool link) {
  const int fd = bpf_obj_get(path.c_str());
  if (fd < 0) return 0;
  bpf_prog_info program{};
  bpf_link_info attachment{};
  uint32_t length = link ? sizeof(attachment) : sizeof(program);
  const int rc = bpf_obj_get_info_by_fd(fd, link ? static_cast<void*>(&attachment) : &program, &length);
  close(fd);
  if (rc != 0) return 0;
  return link ? attachment.prog_id : program.id;
}

// Of all instances: their programs, and those of their pinned attachments, which may be others (without frags, bound).
std::set<uint32_t> PinnedPrograms(const std::string& pin_root) {
  std::set<uint32_t> ids;
  for (const std::string& instance : ListFolder(pin_root)) {
    const std::string folder = pin_root + "/" + instance;
    for (const std::string& pin : ListFolder(folder)) {
      const bool link = absl::StartsWith(pin, "xdp_") || absl::StartsWith(pin, "tcx_");
      if (link || pin == CW_PROG_XDP || pin == CW_PROG_TC || pin == CW_PROG_TC_IN)
        ids.insert(ProgramOfPin(folder + "/" + pin, link));
    }
  }
  ids.erase(0);
  return ids;
}

void AddXdp(std::vector<AttachedProgram>& programs, const char* hook, uint32_t id, const std::set<uint32_t>& pinned) {
  if (id == 0) return;
  AttachedProgram program{hook, ProgramName(id), id, false};
  program.ours = IsOurs(program.name, CW_PROG_XDP) || pinned.count(id) != 0;
  programs.push_back(std::move(program));
}

// None before Linux 6.6.
void AddTcx(std::vector<AttachedProgram>& programs, unsigned ifindex, bool egress, const std::set<uint32_t>& pinned) {
  std::vector<dataplane::TcxProgram> found;
  (void)dataplane::QueryTcx(ifindex, egress, &found);
  for (const dataplane::TcxProgram& one : found) {
    AttachedProgram program{egress ? "tcx egress" : "tcx ingress", ProgramName(one.program), one.program, false};
    program.ours = IsOurs(program.name, egress ? CW_PROG_TC : CW_PROG_TC_IN) || pinned.contains(one.program);
    programs.push_back(std::move(program));
  }
}

}  // namespace

absl::StatusOr<std::vector<Interface>> KernelProbe::Interfaces() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket to ask for network devices");
  std::vector<Interface> interfaces;
  if (struct if_nameindex* names = if_nameindex(); names != nullptr) {
    for (const struct if_nameindex* at = names; at->if_index != 0; ++at) interfaces.push_back(Ask(fd, at->if_name));
    if_freenameindex(names);
  }
  close(fd);
  AddVlans(interfaces);
  return interfaces;
}

absl::StatusOr<std::vector<RdmaPort>> KernelProbe::RdmaPorts() {
  absl::StatusOr<std::unique_ptr<rdma::NldevClient>> client = rdma::NldevClient::Open();
  absl::StatusOr<std::vector<rdma::Link>> links = client.ok() ? (*client)->Links() : client.status();
  if (absl::IsUnavailable(links.status())) return std::vector<RdmaPort>();
  if (!links.ok()) return links.status();
  std::vector<RdmaPort> ports;
  for (const rdma::Link& link : *links) {
    if (link.ifindex != 0) ports.push_back({link.device, link.netdev});
  }
  return ports;
}

absl::StatusOr<std::vector<AttachedProgram>> KernelProbe::Programs(const std::string& nic) {
  const unsigned ifindex = if_nametoindex(nic.c_str());
  if (ifindex == 0 && errno == ENODEV)
    return absl::NotFoundError(absl::StrFormat("there is no network device %s", nic));
  if (ifindex == 0) return absl::UnavailableError(absl::StrFormat("asking for device %s: %s", nic, strerror(errno)));
  std::vector<AttachedProgram> programs;
  LIBBPF_OPTS(bpf_xdp_query_opts, xdp);
  if (const int rc = bpf_xdp_query(static_cast<int>(ifindex), 0, &xdp); rc != 0) {
    return absl::UnavailableError(absl::StrFormat("asking for XDP programs on %s: %s", nic, strerror(-rc)));
  }
  const std::set<uint32_t> pinned = PinnedPrograms(pin_root_);
  AddXdp(programs, "xdp native", xdp.drv_prog_id, pinned);
  AddXdp(programs, "xdp generic", xdp.skb_prog_id, pinned);
  AddXdp(programs, "xdp offload", xdp.hw_prog_id, pinned);
  for (const bool egress : {false, true}) {
    AddTcx(programs, ifindex, egress, pinned);
    absl::StatusOr<std::vector<dataplane::TcProgram>> filters = dataplane::DumpTcPrograms(ifindex, egress);
    if (!filters.ok()) return filters.status();
    for (const dataplane::TcProgram& filter : *filters) {
      AttachedProgram program{egress ? "tc egress" : "tc ingress", ProgramName(filter.id), filter.id, false};
      // tc shows "FILE:[SECTION]", or "NAME:[ID]" where libbpf attached it; the program's name is what we gave.
      if (program.name.empty()) program.name = WithoutId(filter.name);
      program.ours = IsOurs(program.name, egress ? CW_PROG_TC : CW_PROG_TC_IN) || pinned.count(filter.id) != 0;
      programs.push_back(std::move(program));
    }
  }
  return programs;
}

absl::Status KernelProbe::Realtime() {
  // In a thread of its own: the class is a thread's, so ours stays as it is.
  int error = 0;
  std::thread trial([&error] {
    sched_param parameters{};
    parameters.sched_priority = 1;
    if (sched_setscheduler(0, SCHED_FIFO, &parameters) != 0) error = errno;
  });
  trial.join();
  if (error == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrFormat("SCHED_FIFO is refused: %s", strerror(error)));
}

absl::StatusOr<ClockDiscipline> KernelProbe::Clock() {
  timex state{};
  if (adjtimex(&state) < 0) return absl::UnavailableError(absl::StrFormat("adjtimex: %s", strerror(errno)));
  return ClockDiscipline{(state.status & STA_UNSYNC) == 0, state.maxerror};
}

}  // namespace cw::host
