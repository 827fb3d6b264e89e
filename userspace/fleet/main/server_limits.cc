// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/server_limits.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "userspace/api/plain_messages.h"

namespace cw::fleet {
namespace {

constexpr int kIdleMs = 60'000;
constexpr int kHandshakeMs = 10'000, kKeepaliveMs = 20'000, kKeepaliveAnswerMs = 20'000, kPingMs = 5'000;
constexpr int kMostMessageBytes = 4 << 20;
constexpr int kMostStreams = 32;  // of one connection
constexpr size_t kLeastMemory = size_t{1} << 30;
constexpr int kMostThreads = 64;  // of calls that have one

// Of gRPC's own, for what is on its way in and out: behind it streams are ended, so it has to do for all hosts.
size_t MostMemory() {
  const long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
  const size_t all = pages > 0 && bytes > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(bytes) : 0;
  return std::max(kLeastMemory, all / 2);
}

}  // namespace

void LimitServer(grpc::ServerBuilder& builder) {
  grpc::ResourceQuota quota("cwfleetd");
  quota.Resize(MostMemory());
  quota.SetMaxThreads(kMostThreads);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);  // each takes a thread of these, whatever it does
  builder.SetMaxReceiveMessageSize(kMostMessageBytes);
  api::TakeNoCompression(builder);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);  // of an ended certificate, too
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostStreams);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveAnswerMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kPingMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

}  // namespace cw::fleet
