// SPDX-License-Identifier: Apache-2.0
#include "userspace/host/live.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <sched.h>
#include <sys/timex.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "maps/names.h"
#include "userspace/host/tc_dump.h"

namespace cw::host {
namespace {

// The kernel keeps 15 characters of a program's name.
bool IsOurs(const std::string& name, const char* full) {
  return !name.empty() && name == std::string(full).substr(0, BPF_OBJ_NAME_LEN - 1);
}

std::string ProgramName(uint32_t id) {
  const int fd = bpf_prog_get_fd_by_id(id);
  if (fd < 0) return "";
  bpf_prog_info info{};
  uint32_t length = sizeof(info);
  const int rc = bpf_obj_get_info_by_fd(fd, &info, &length);
  close(fd);
  return rc == 0 ? info.name : "";
}

void AddXdp(std::vector<AttachedProgram>& programs, const char* hook, uint32_t id) {
  if (id == 0) return;
  AttachedProgram program{hook, ProgramName(id), id, false};
  program.ours = IsOurs(program.name, CW_PROG_XDP);
  programs.push_back(std::move(program));
}

}  // namespace

absl::StatusOr<std::vector<AttachedProgram>> KernelProbe::Programs(const std::string& nic) {
  const unsigned ifindex = if_nametoindex(nic.c_str());
  if (ifindex == 0) return absl::NotFoundError(absl::StrFormat("there is no network device %s", nic));
  std::vector<AttachedProgram> programs;
  LIBBPF_OPTS(bpf_xdp_query_opts, xdp);
  if (const int rc = bpf_xdp_query(static_cast<int>(ifindex), 0, &xdp); rc != 0) {
    return absl::UnavailableError(absl::StrFormat("asking for XDP programs on %s: %s", nic, strerror(-rc)));
  }
  AddXdp(programs, "xdp native", xdp.drv_prog_id);
  AddXdp(programs, "xdp generic", xdp.skb_prog_id);
  AddXdp(programs, "xdp offload", xdp.hw_prog_id);
  for (const bool egress : {false, true}) {
    absl::StatusOr<std::vector<TcProgram>> filters = DumpTcPrograms(ifindex, egress);
    if (!filters.ok()) return filters.status();
    for (const TcProgram& filter : *filters) {
      AttachedProgram program{egress ? "tc egress" : "tc ingress", ProgramName(filter.id), filter.id, false};
      // tc shows "NAME" or "FILE:[SECTION]" of its own; the program's name is what we gave.
      if (program.name.empty()) program.name = filter.name;
      program.ours = IsOurs(program.name, CW_PROG_TC);
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
