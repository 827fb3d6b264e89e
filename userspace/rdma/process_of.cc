// SPDX-License-Identifier: Apache-2.0
#include "userspace/rdma/process_of.h"

#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace cw::rdma {

Process ProcessOf(uint32_t thread, const std::string& proc) {
  Process process{.pid = thread, .comm = ""};
  std::ifstream status(absl::StrCat(proc, "/", thread, "/status"));
  for (std::string line; std::getline(status, line);) {
    absl::string_view value = line;
    uint32_t pid = 0;
    if (!absl::ConsumePrefix(&value, "Tgid:")) continue;
    if (absl::SimpleAtoi(value, &pid) && pid != 0) process.pid = pid;
    break;
  }
  std::ifstream comm(absl::StrCat(proc, "/", process.pid, "/comm"));
  std::getline(comm, process.comm);
  return process;
}

}  // namespace cw::rdma
