// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/plain_messages.h"

#include <grpc/compression.h>

namespace cw::api {

void TakeNoCompression(grpc::ServerBuilder& builder) {
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP})
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);  // and nothing that would inflate one
}

void TakeNoCompression(grpc::ChannelArguments& arguments) {
  arguments.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
}

grpc::ChannelArguments PlainMessages() {
  grpc::ChannelArguments arguments;
  TakeNoCompression(arguments);
  return arguments;
}

}  // namespace cw::api
