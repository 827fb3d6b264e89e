// SPDX-License-Identifier: Apache-2.0
//
// What the service takes of those who connect: messages of bounded size, handshakes that end, connections that live.
#pragma once

#include <grpcpp/grpcpp.h>

namespace cw::fleet {

void LimitServer(grpc::ServerBuilder& builder);

}  // namespace cw::fleet
