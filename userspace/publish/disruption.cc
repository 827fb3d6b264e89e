// SPDX-License-Identifier: Apache-2.0
#include "userspace/publish/disruption.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace cw::publish {
namespace {

constexpr int64_t kShortestSleepNs = 100'000;

// VMClock's layout, little-endian; only what is used.
constexpr uint32_t kVmclockMagic = 0x4b4c4356;  // "VCLK"
constexpr size_t kVmclockBytes = 4096;
constexpr size_t kSequenceAt = 12;  // odd while the hypervisor writes
constexpr size_t kMarkerAt = 16;
constexpr size_t kShortestVmclock = 104;

const unsigned char* MapVmclock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat status {};
  void* at = MAP_FAILED;
  const bool whole =
      fstat(fd, &status) == 0 && (S_ISCHR(status.st_mode) || status.st_size >= static_cast<off_t>(kShortestVmclock));
  if (whole) at = mmap(nullptr, kVmclockBytes, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (at == MAP_FAILED) return nullptr;
  uint32_t magic = 0;
  std::memcpy(&magic, at, sizeof(magic));
  if (magic == kVmclockMagic) return static_cast<const unsigned char*>(at);
  munmap(at, kVmclockBytes);
  return nullptr;
}

template <typename T>
T Load(const unsigned char* at) {
  return __atomic_load_n(reinterpret_cast<const T*>(at), __ATOMIC_ACQUIRE);
}

}  // namespace

DisruptionWatch::DisruptionWatch(const DisruptionSources& sources)
    : sources_(sources), vmclock_(MapVmclock(sources.vmclock)) {}

DisruptionWatch::~DisruptionWatch() {
  if (vmclock_ != nullptr) munmap(const_cast<unsigned char*>(vmclock_), kVmclockBytes);
}

bool DisruptionWatch::SuspendCountChanged() {
  char text[32] = "";
  const int fd = open(sources_.suspend_count.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t length = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (length <= 0) return false;
  const long count = std::strtol(text, nullptr, 10);
  const bool changed = suspends_ >= 0 && count != suspends_;
  suspends_ = count;
  return changed;
}

bool DisruptionWatch::MarkerChanged() {
  if (vmclock_ == nullptr) return false;
  for (int i = 0; i < 100; ++i) {
    const auto sequence = Load<uint32_t>(vmclock_ + kSequenceAt);
    const auto marker = Load<uint64_t>(vmclock_ + kMarkerAt);
    if (sequence % 2 != 0 || Load<uint32_t>(vmclock_ + kSequenceAt) != sequence) continue;
    const bool changed = marker_known_ && marker != marker_;
    marker_ = marker;
    marker_known_ = true;
    return changed;
  }
  return false;  // a write that does not end is seen in the next round
}

Disruption DisruptionWatch::Poll(const ClockRelations& clocks) {
  const bool slept = started_ && clocks.suspend_ns - suspend_ns_ > kShortestSleepNs;
  const bool counted = SuspendCountChanged();
  const bool migrated = MarkerChanged();
  started_ = true;
  suspend_ns_ = clocks.suspend_ns;
  if (migrated) return Disruption::kMigrated;
  return slept || counted ? Disruption::kSlept : Disruption::kNone;
}

}  // namespace cw::publish
