// SPDX-License-Identifier: Apache-2.0
#include "userspace/publish/chrony_output.h"

#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_format.h"

namespace cw::publish {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

// One datagram of a SOCK reference clock; chronyd refuses other lengths.
struct SockSample {
  timeval tv;     // system time
  double offset;  // true time − system time, s
  int pulse;      // 1: PPS, without seconds
  int leap;       // 1 insert, 2 delete
  int pad;
  int magic;
};
constexpr int kSockMagic = 0x534f434b;  // "SOCK"

// The segment of a SHM reference clock.
struct ShmTime {
  int mode;  // 1: count tells of a write in progress
  int count;
  time_t clock_s;
  int clock_us;
  time_t receive_s;
  int receive_us;
  int leap;
  int precision;
  int nsamples;
  int valid;
  unsigned clock_ns;
  unsigned receive_ns;
  int reserved[8];
};
constexpr key_t kShmKey = 0x4e545030;  // "NTP0"

int LeapCode(int announced) { return announced > 0 ? 1 : announced < 0 ? 2 : 0; }

class Sock final : public ChronyOutput {
 public:
  Sock(int fd, const sockaddr_un& to) : fd_(fd), to_(to) {}
  ~Sock() override { close(fd_); }

  absl::Status Send(const ChronySample& sample) override {
    SockSample message{};
    message.tv.tv_sec = sample.realtime_ns / kSecondNs;
    message.tv.tv_usec = sample.realtime_ns % kSecondNs / 1000;
    message.offset = static_cast<double>(sample.utc_ns - sample.realtime_ns) / kSecondNs;
    message.leap = LeapCode(sample.leap);
    message.magic = kSockMagic;
    const auto* address = reinterpret_cast<const sockaddr*>(&to_);
    if (sendto(fd_, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL, address, sizeof(to_)) == sizeof(message)) {
      return absl::OkStatus();
    }
    const std::string text = absl::StrFormat("chronyd's socket %s: %s", to_.sun_path, std::strerror(errno));
    const bool absent = errno == ENOENT || errno == ECONNREFUSED || errno == EAGAIN;
    return absent ? absl::UnavailableError(text) : absl::ErrnoToStatus(errno, text);
  }

 private:
  int fd_;
  sockaddr_un to_;
};

class Shm final : public ChronyOutput {
 public:
  Shm(ShmTime* at, int precision) : at_(at), precision_(precision) {}
  ~Shm() override { shmdt(at_); }

  absl::Status Send(const ChronySample& sample) override {
    // Odd while it is written; chronyd drops a sample whose count changed while it was read. Each store is a release,
    // so that none comes before an earlier one.
    Store(&at_->mode, 1);
    Store(&at_->valid, 0);
    Store(&at_->count, at_->count + 1);
    Store(&at_->clock_s, static_cast<time_t>(sample.utc_ns / kSecondNs));
    Store(&at_->clock_us, static_cast<int>(sample.utc_ns % kSecondNs / 1000));
    Store(&at_->clock_ns, static_cast<unsigned>(sample.utc_ns % kSecondNs));
    Store(&at_->receive_s, static_cast<time_t>(sample.realtime_ns / kSecondNs));
    Store(&at_->receive_us, static_cast<int>(sample.realtime_ns % kSecondNs / 1000));
    Store(&at_->receive_ns, static_cast<unsigned>(sample.realtime_ns % kSecondNs));
    Store(&at_->leap, LeapCode(sample.leap));
    Store(&at_->precision, precision_);
    Store(&at_->count, at_->count + 1);
    Store(&at_->valid, 1);
    return absl::OkStatus();
  }

 private:
  template <typename T>
  static void Store(T* at, T value) {
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
  }
  ShmTime* at_;
  int precision_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChronyOutput>> MakeChronySock(const std::string& path) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(to.sun_path)) {
    return absl::InvalidArgumentError(absl::StrFormat("chronyd's socket: a path of 1 to %d bytes is needed, not '%s'",
                                                      sizeof(to.sun_path) - 1, path));
  }
  std::memcpy(to.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "a socket for chronyd's samples");
  return std::make_unique<Sock>(fd, to);
}

absl::StatusOr<std::unique_ptr<ChronyOutput>> MakeChronyShm(int unit, int precision_log2_s) {
  if (unit < 0 || unit > 255) return absl::InvalidArgumentError(absl::StrFormat("SHM unit %d: 0 to 255 exist", unit));
  const int id = shmget(kShmKey + unit, sizeof(ShmTime), IPC_CREAT | 0600);
  if (id < 0) return absl::ErrnoToStatus(errno, absl::StrFormat("shared memory segment of SHM unit %d", unit));
  void* at = shmat(id, nullptr, 0);
  if (at == reinterpret_cast<void*>(-1))
    return absl::ErrnoToStatus(errno, absl::StrFormat("attaching SHM unit %d", unit));
  return std::make_unique<Shm>(static_cast<ShmTime*>(at), precision_log2_s);
}

}  // namespace cw::publish
