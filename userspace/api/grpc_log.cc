// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/grpc_log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <cstdio>
#include <cstdlib>

#include "absl/time/clock.h"
#include "userspace/api/audit.h"

namespace cw::api {
namespace {

bool LinesAreWanted() { return std::getenv("GRPC_VERBOSITY") != nullptr; }

void PrintSome(gpr_log_func_args* line) {
  static auto& limiter = *new RefusalLimiter;
  const std::optional<uint64_t> untold = limiter.Tell("gRPC", absl::Now());
  if (!untold) return;
  std::fprintf(stderr, "gRPC: %s (%llu lines before it were left out)\n", line->message,
               static_cast<unsigned long long>(*untold));
}

}  // namespace

void SilenceGrpc() {
  if (!LinesAreWanted()) gpr_set_log_function([](gpr_log_func_args*) {});
}

void LimitGrpc() {
  google::protobuf::SetLogHandler(nullptr);  // it complains of each call that is no UTF-8, which is refused
  if (!LinesAreWanted()) gpr_set_log_function(PrintSome);
}

}  // namespace cw::api
