// SPDX-License-Identifier: Apache-2.0
#include "userspace/phc/phc_clock.h"

#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "sync/clock_domain_reader.h"

namespace cw::phc {
namespace {

constexpr int kReads = 5;
constexpr int64_t kPreciseNs = 20;    // what a read at one instant may be off by: the two counters' own steps
constexpr int64_t kSlewedNs = 1'000;  // CLOCK_REALTIME against CLOCK_MONOTONIC while the NIC was read

int RealIoctl(int fd, unsigned long request, void* argument) { return ioctl(fd, request, argument); }

int64_t Ns(const ptp_clock_time& t) { return int64_t{t.sec} * 1'000'000'000 + t.nsec; }

// CLOCK_REALTIME − CLOCK_MONOTONIC now.
std::optional<int64_t> RealtimeAhead() {
  const std::optional<sync::PairedRead> read = sync::ReadPaired(CLOCK_MONOTONIC, CLOCK_REALTIME);
  if (!read) return std::nullopt;
  return read->b_ns - (read->a_before_ns + (read->a_after_ns - read->a_before_ns) / 2);
}

// As the kernel numbers the clocks of open devices (clock_gettime(2), "Dynamic clocks").
clockid_t ClockOf(int fd) { return static_cast<clockid_t>((~static_cast<unsigned>(fd) << 3) | 3u); }

}  // namespace

absl::StatusOr<int> PhcIndexOf(const std::string& device) {
  const maps::UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.ok()) return absl::ErrnoToStatus(errno, "socket");
  ethtool_ts_info info{};
  info.cmd = ETHTOOL_GET_TS_INFO;
  ifreq request{};
  if (device.size() >= sizeof(request.ifr_name)) return absl::InvalidArgumentError("no device's name is so long");
  std::memcpy(request.ifr_name, device.data(), device.size());
  request.ifr_data = reinterpret_cast<char*>(&info);
  if (ioctl(fd.get(), SIOCETHTOOL, &request) != 0) {
    if (errno == EOPNOTSUPP) return absl::NotFoundError(absl::StrCat(device, " has no clock"));
    return absl::ErrnoToStatus(errno, absl::StrCat("ask ", device, " for its clock"));
  }
  if (info.phc_index < 0) return absl::NotFoundError(absl::StrCat(device, " has no clock"));
  return info.phc_index;
}

absl::StatusOr<std::unique_ptr<PhcClock>> PhcClock::Open(const std::string& path, std::shared_ptr<const Clock> clock) {
  maps::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.ok()) return absl::ErrnoToStatus(errno, absl::StrCat("open ", path));
  return std::make_unique<PhcClock>(std::move(fd), std::move(clock), &RealIoctl);
}

std::optional<sync::CrossStamp> PhcClock::Read() {
  std::optional<sync::CrossStamp> read;
  if (method_ == Method::kPrecise) read = ReadPrecise();
  if (!read && method_ == Method::kExtended) read = ReadExtended();
  if (!read && method_ == Method::kPlain) read = ReadPlain();
  return read;
}

sync::CrossStamp PhcClock::Local(int64_t before_ns, int64_t nic_ns, int64_t after_ns) const {
  return {clock_->AtNs(before_ns), nic_ns, clock_->AtNs(after_ns)};
}

std::optional<sync::CrossStamp> PhcClock::ReadPrecise() {
  ptp_sys_offset_precise offset{};
  const std::optional<int64_t> ahead = RealtimeAhead();
  if (!ahead || ioctl_(fd_.get(), PTP_SYS_OFFSET_PRECISE, &offset) != 0) {
    method_ = Method::kExtended;
    return std::nullopt;
  }
  const std::optional<int64_t> later = RealtimeAhead();
  if (!later || std::abs(*later - *ahead) > kSlewedNs) return std::nullopt;
  const int64_t at_ns = Ns(offset.sys_realtime) - (*ahead + (*later - *ahead) / 2);
  return Local(at_ns - kPreciseNs, Ns(offset.device), at_ns + kPreciseNs);
}

std::optional<sync::CrossStamp> PhcClock::ReadExtended() {
  ptp_sys_offset_extended offset{};
  offset.n_samples = kReads;
  const std::optional<int64_t> ahead = RealtimeAhead();
  if (!ahead || ioctl_(fd_.get(), PTP_SYS_OFFSET_EXTENDED, &offset) != 0) {
    method_ = Method::kPlain;
    return std::nullopt;
  }
  const std::optional<int64_t> later = RealtimeAhead();
  if (!later || std::abs(*later - *ahead) > kSlewedNs) return std::nullopt;
  const ptp_clock_time* best = nullptr;
  for (unsigned i = 0; i < offset.n_samples && i < kReads; ++i) {
    const ptp_clock_time* sample = offset.ts[i];
    if (best == nullptr || Ns(sample[2]) - Ns(sample[0]) < Ns(best[2]) - Ns(best[0])) best = sample;
  }
  if (best == nullptr || Ns(best[2]) < Ns(best[0])) return std::nullopt;
  const int64_t at = *ahead + (*later - *ahead) / 2;
  return Local(Ns(best[0]) - at, Ns(best[1]), Ns(best[2]) - at);
}

std::optional<sync::CrossStamp> PhcClock::ReadPlain() {
  const std::optional<sync::PairedRead> read = sync::ReadPaired(CLOCK_MONOTONIC, ClockOf(fd_.get()), kReads);
  if (!read) return std::nullopt;
  return Local(read->a_before_ns, read->b_ns, read->a_after_ns);
}

}  // namespace cw::phc
