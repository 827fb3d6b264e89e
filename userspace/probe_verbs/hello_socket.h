// SPDX-License-Identifier: Apache-2.0
//
// The UDP socket of one NIC for hello.h. Thread rule: one thread; nothing blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "maps/unique_fd.h"
#include "userspace/model/addr.h"
#include "userspace/probe_verbs/hello.h"

namespace cw::probe_verbs {

class HelloSocket {
 public:
  // On this address and port of that interface. An error says which and why.
  static absl::StatusOr<HelloSocket> Open(const Addr& address, uint32_t ifindex, uint16_t port);

  int fd() const { return fd_.get(); }
  // To the same port of another address; a datagram that cannot be sent is lost, as any may be.
  void Send(const Addr& to, const HelloBytes& bytes) const;
  struct Incoming {
    Addr from;
    absl::Span<const uint8_t> bytes;  // until the next call
  };
  std::optional<Incoming> Receive();  // nullopt: none left

 private:
  HelloSocket(maps::UniqueFd fd, uint16_t port) : fd_(std::move(fd)), port_(port) {}
  maps::UniqueFd fd_;
  uint16_t port_;
  std::array<uint8_t, 256> buffer_{};
};

}  // namespace cw::probe_verbs
