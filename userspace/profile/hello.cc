// SPDX-License-Identifier: Apache-2.0
#include "userspace/profile/hello.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace cw::profile {
namespace {

absl::Status Send(const Give& give, uint32_t refused, int fd) {
  const cw_prof_hello answer{.magic = CW_INPROC_MAGIC,
                             .version = CW_INPROC_VERSION,
                             .type = CW_PROF_MEMORY,
                             .layout = CW_PROF_VERSION,
                             .refused = refused,
                             .size = CW_PROF_SIZE};
  return give({reinterpret_cast<const uint8_t*>(&answer), sizeof(answer)}, fd);
}

// It is told, so that it need not wait; that it could not be told changes nothing.
absl::Status Refuse(const Give& give, uint32_t error, absl::Status why) {
  Send(give, error, -1).IgnoreError();
  return why;
}

}  // namespace

absl::Status TakeHello(Profiles& profiles, uint64_t connection, uint32_t pid, uint32_t uid,
                       absl::Span<const uint8_t> message, const Give& give) {
  cw_prof_hello hello{};
  if (message.size() == sizeof(hello)) std::memcpy(&hello, message.data(), sizeof(hello));
  if (hello.type == CW_PROF_READY) return profiles.Begin(connection);
  if (hello.type == CW_PROF_REGISTER) {
    return absl::InvalidArgumentError(
        "its NCCL profiler plug-in is of an earlier release: install libnccl-profiler-cwfabric of this one there");
  }
  if (hello.type != CW_PROF_ASK) return absl::InvalidArgumentError("its profiler sent a message that is not known");
  if (hello.layout != CW_PROF_VERSION || hello.size != CW_PROF_SIZE) {
    return Refuse(give, EPROTO,
                  absl::InvalidArgumentError("its NCCL profiler plug-in has another layout than this agent: install "
                                             "libnccl-profiler-cwfabric of this release there"));
  }
  const absl::StatusOr<int> fd = profiles.Offer(connection, pid, uid);
  if (!fd.ok()) return Refuse(give, EDQUOT, fd.status());
  absl::Status status = Send(give, 0, *fd);
  close(*fd);  // ours: nobody can make that wait
  return status;
}

}  // namespace cw::profile
