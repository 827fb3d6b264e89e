// SPDX-License-Identifier: Apache-2.0
//
// Streams that hold a thread each: how many one caller, and all together, may have. One whose client has read nothing
// for a while ends where another one comes. Thread rule: any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace cw::api {

class Seats {
 public:
  struct Limits {
    size_t each, all;
    std::string what;  // "fetches of incidents"
    absl::Duration stalled = absl::Seconds(30);
  };
  explicit Seats(Limits limits) : limits_(std::move(limits)) {}

  // ResourceExhausted: so many are taken already. Whoever has one calls Leave with the same context.
  absl::Status Take(grpc::ServerContext* context, const std::string& caller);
  void Leave(grpc::ServerContext* context);

  // As writer.Write(message), and noted meanwhile.
  template <typename Writer, typename Message>
  bool Write(grpc::ServerContext* context, Writer& writer, const Message& message) {
    Note(context, true);
    const bool wrote = writer.Write(message);
    Note(context, false);
    return wrote;
  }

 private:
  struct Seat {
    std::string caller;
    std::optional<absl::Time> writing;  // since when
  };
  void Note(grpc::ServerContext* context, bool writing);

  const Limits limits_;
  std::mutex mutex_;  // of all below
  std::map<grpc::ServerContext*, Seat> seats_;
};

}  // namespace cw::api
