// SPDX-License-Identifier: Apache-2.0
// What an RDMA device tells by itself, through libibverbs: ports, GIDs, its own death (ibv_get_async_event(3)).
//
// A device that is held open is one that some drivers cannot take away: soft-RoCE's `rdma link delete` waits until the
// last one has closed it, others end the connection and say so (device_fatal), after which Next() closes it at once.
// Thread rule: one thread per object.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

struct ibv_context;

namespace cw::rdma {

struct AsyncEvent {
  enum class Kind { kPortUp, kPortDown, kGidChange, kDeviceFatal, kOther };
  std::string device;
  uint32_t port = 0;  // 0: of the device
  Kind kind = Kind::kOther;
  std::string name;  // libibverbs' words for it
};

class AsyncEvents {
 public:
  // NotFound: there is no such device. Other errors: it cannot be opened, and why.
  static absl::StatusOr<std::unique_ptr<AsyncEvents>> Open(const std::string& device);
  ~AsyncEvents();
  AsyncEvents(const AsyncEvents&) = delete;
  AsyncEvents& operator=(const AsyncEvents&) = delete;

  const std::string& device() const { return device_; }
  int fd() const;  // readable when there is an event; −1 after a fatal one
  // Does not wait; nullopt: none.
  std::optional<AsyncEvent> Next();

 private:
  AsyncEvents(std::string device, ibv_context* context) : device_(std::move(device)), context_(context) {}
  std::string device_;
  ibv_context* context_;  // null: closed
};

// The RoCE MTU in use on each port (ibv_query_port(3)), bytes by port number. Opens the device for a moment.
absl::StatusOr<std::map<uint32_t, uint32_t>> ActiveMtus(const std::string& device);

}  // namespace cw::rdma
