// SPDX-License-Identifier: Apache-2.0
//
// A NIC's PTP hardware clock (PHC) behind sync::NicClock: cross-stamps of /dev/ptpN with the host's local clock.
//
// How: by what the driver offers, best first. PTP_SYS_OFFSET_PRECISE: both clocks at one instant, by hardware.
// PTP_SYS_OFFSET_EXTENDED: CLOCK_REALTIME, NIC, CLOCK_REALTIME, read by the driver around a single register. Otherwise
// clock_gettime() of the device between two of CLOCK_MONOTONIC. The tightest of several reads counts. CLOCK_REALTIME is
// converted by reads beside CLOCK_MONOTONIC before and after; if it was set or slewed far in between, the read is void.
//
// Threads: one per object. Source: linux/ptp_clock.h; Documentation/driver-api/ptp.rst.
#pragma once

#include <linux/ptp_clock.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "maps/unique_fd.h"
#include "sync/nic_clock.h"
#include "userspace/model/clock.h"

namespace cw::phc {

// The number N of the /dev/ptpN that belongs to a network device of this namespace. NotFound: it has none.
absl::StatusOr<int> PhcIndexOf(const std::string& device);

// What the driver says to ioctl(); tests put their own here.
using IoctlFn = int (*)(int fd, unsigned long request, void* argument);

class PhcClock final : public sync::NicClock {
 public:
  enum class Method { kPrecise, kExtended, kPlain };

  // clock: the host's local clock, which cross-stamps are told in. NotFound, PermissionDenied: the device.
  static absl::StatusOr<std::unique_ptr<PhcClock>> Open(const std::string& path, std::shared_ptr<const Clock> clock);
  PhcClock(maps::UniqueFd fd, std::shared_ptr<const Clock> clock, IoctlFn ioctl)
      : fd_(std::move(fd)), clock_(std::move(clock)), ioctl_(ioctl) {}

  std::optional<sync::CrossStamp> Read() override;
  Method method() const { return method_; }

 private:
  std::optional<sync::CrossStamp> ReadPrecise();
  std::optional<sync::CrossStamp> ReadExtended();
  std::optional<sync::CrossStamp> ReadPlain();
  sync::CrossStamp Local(int64_t before_ns, int64_t nic_ns, int64_t after_ns) const;

  const maps::UniqueFd fd_;
  const std::shared_ptr<const Clock> clock_;
  const IoctlFn ioctl_;
  Method method_ = Method::kPrecise;  // the best that has not failed yet
};

}  // namespace cw::phc
