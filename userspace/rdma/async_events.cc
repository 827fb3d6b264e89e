// SPDX-License-Identifier: Apache-2.0
#include "userspace/rdma/async_events.h"

#include <fcntl.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cw::rdma {
namespace {

absl::StatusOr<ibv_context*> OpenDevice(const std::string& device) {
  ibv_device** devices = ibv_get_device_list(nullptr);
  if (devices == nullptr) {
    return absl::ErrnoToStatus(errno, "no RDMA devices can be listed (is the module ib_uverbs loaded?)");
  }
  const auto free_list = absl::MakeCleanup([devices] { ibv_free_device_list(devices); });
  for (ibv_device** each = devices; *each != nullptr; ++each) {
    if (ibv_get_device_name(*each) != device) continue;
    errno = 0;
    ibv_context* context = ibv_open_device(*each);
    if (context == nullptr) {
      return absl::ErrnoToStatus(errno == 0 ? EIO : errno, absl::StrCat("RDMA device ", device, " cannot be opened"));
    }
    return context;
  }
  return absl::NotFoundError(absl::StrCat("libibverbs lists no RDMA device ", device));
}

AsyncEvent::Kind KindOf(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_PORT_ACTIVE:
      return AsyncEvent::Kind::kPortUp;
    case IBV_EVENT_PORT_ERR:
      return AsyncEvent::Kind::kPortDown;
    case IBV_EVENT_GID_CHANGE:
      return AsyncEvent::Kind::kGidChange;
    case IBV_EVENT_DEVICE_FATAL:
      return AsyncEvent::Kind::kDeviceFatal;
    default:
      return AsyncEvent::Kind::kOther;
  }
}

bool OfPort(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<AsyncEvents>> AsyncEvents::Open(const std::string& device) {
  const absl::StatusOr<ibv_context*> context = OpenDevice(device);
  if (!context.ok()) return context.status();
  const int fd = (*context)->async_fd;
  if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
    const absl::Status status = absl::ErrnoToStatus(errno, absl::StrCat("events of RDMA device ", device));
    ibv_close_device(*context);
    return status;
  }
  return std::unique_ptr<AsyncEvents>(new AsyncEvents(device, *context));
}

AsyncEvents::~AsyncEvents() {
  if (context_ != nullptr) ibv_close_device(context_);
}

int AsyncEvents::fd() const { return context_ == nullptr ? -1 : context_->async_fd; }

std::optional<AsyncEvent> AsyncEvents::Next() {
  ibv_async_event event = {};
  if (context_ == nullptr || ibv_get_async_event(context_, &event) != 0) return std::nullopt;
  ibv_ack_async_event(&event);
  AsyncEvent out{.device = device_, .kind = KindOf(event.event_type), .name = ibv_event_type_str(event.event_type)};
  if (OfPort(event.event_type)) out.port = static_cast<uint32_t>(event.element.port_num);
  if (out.kind == AsyncEvent::Kind::kDeviceFatal) ibv_close_device(std::exchange(context_, nullptr));
  return out;
}

absl::StatusOr<std::map<uint32_t, uint32_t>> ActiveMtus(const std::string& device) {
  const absl::StatusOr<ibv_context*> context = OpenDevice(device);
  if (!context.ok()) return context.status();
  const auto close = absl::MakeCleanup([&] { ibv_close_device(*context); });
  ibv_device_attr attributes = {};
  if (const int error = ibv_query_device(*context, &attributes); error != 0)
    return absl::ErrnoToStatus(error, "ibv_query_device of " + device);
  std::map<uint32_t, uint32_t> mtus;
  for (uint32_t port = 1; port <= attributes.phys_port_cnt; ++port) {
    ibv_port_attr attr = {};
    if (ibv_query_port(*context, static_cast<uint8_t>(port), &attr) == 0)
      mtus[port] = 128u << static_cast<uint32_t>(attr.active_mtu);
  }
  return mtus;
}

}  // namespace cw::rdma
