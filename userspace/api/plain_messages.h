// SPDX-License-Identifier: Apache-2.0
//
// gRPC inflates a compressed message whole before it compares its size with the limit, so that a megabyte of a peer's
// may take a gigabyte here. Nothing of ours sends compressed messages: both ends take none (UNIMPLEMENTED).
#pragma once

#include <grpcpp/grpcpp.h>

namespace cw::api {

void TakeNoCompression(grpc::ServerBuilder& builder);
void TakeNoCompression(grpc::ChannelArguments& arguments);
grpc::ChannelArguments PlainMessages();  // of a channel that has no other arguments

}  // namespace cw::api
