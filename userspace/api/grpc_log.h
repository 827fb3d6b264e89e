// SPDX-License-Identifier: Apache-2.0
//
// gRPC's own lines on stderr: each failed handshake makes one, so whoever reaches a port could fill a log with them.
// Both change the whole process, and leave it alone where GRPC_VERBOSITY asks for lines. Any thread.
#pragma once

namespace cw::api {

void SilenceGrpc();  // for programs that say themselves what is wrong
void LimitGrpc();    // at most ten lines at once, and one in 10 s

}  // namespace cw::api
