// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/fleet_clock/clock_output.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "absl/strings/str_cat.h"
#include "fleet_clock.skel.h"
#include "maps/bpf_map.h"
#include "maps/names.h"

namespace cw::agent {
namespace {

constexpr uint32_t kFlags = BPF_F_MMAPABLE;

size_t MappedBytes() {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (sizeof(cw_fleet_clock) + page - 1) / page * page;
}

// A map of another shape is an older agent's: it is replaced, and programs that hold it see a clock that ages.
absl::StatusOr<maps::UniqueFd> OpenMap(const std::string& pin) {
  if (absl::StatusOr<maps::BpfMap> found = maps::BpfMap::OpenPinned(pin); found.ok()) {
    const maps::MapShape& shape = found->shape();
    if (shape.type == BPF_MAP_TYPE_ARRAY && shape.value_size == sizeof(cw_fleet_clock) && shape.max_entries == 1 &&
        (shape.flags & kFlags) == kFlags) {
      const int fd = bpf_obj_get(pin.c_str());
      if (fd >= 0) return maps::UniqueFd(fd);
    }
    unlink(pin.c_str());
  }
  // From an object rather than by hand: so the map has its types, and bpftool shows them.
  const std::unique_ptr<fleet_clock, decltype(&fleet_clock__destroy)> object(fleet_clock__open_and_load(),
                                                                             &fleet_clock__destroy);
  if (object == nullptr) return absl::ErrnoToStatus(errno, "cannot make the map of fleet time");
  maps::UniqueFd fd(fcntl(bpf_map__fd(object->maps.cw_fleet_clock), F_DUPFD_CLOEXEC, 0));
  if (fd.get() < 0) return absl::ErrnoToStatus(errno, "cannot keep the map of fleet time");
  if (bpf_obj_pin(fd.get(), pin.c_str()) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot pin the map of fleet time at ", pin));
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClockOutput>> ClockOutput::Create(const Options& options) {
  publish::PublisherOptions publisher_options;
  publisher_options.page.path = options.page;
  publisher_options.local.at = [clock = options.clock](int64_t monotonic_ns) { return clock->AtNs(monotonic_ns); };
  publisher_options.tai_minus_utc_s = options.tai_minus_utc.value_or(0);
  publisher_options.chrony_sock = options.chrony.sock;
  publisher_options.chrony_shm = options.chrony.shm;
  publisher_options.chrony_interval = options.chrony.interval;
  const sync::AgreementOptions agreement;
  publisher_options.max_drift_ppb = agreement.max_drift_ppb + static_cast<double>(agreement.max_slew_ppb);
  absl::StatusOr<std::unique_ptr<publish::Publisher>> publisher =
      publish::Publisher::Create(std::move(publisher_options));
  if (!publisher.ok()) return publisher.status();
  absl::StatusOr<maps::UniqueFd> map = OpenMap(options.pin);
  if (!map.ok()) return map.status();
  void* record = mmap(nullptr, MappedBytes(), PROT_READ | PROT_WRITE, MAP_SHARED, map->get(), 0);
  if (record == MAP_FAILED) return absl::ErrnoToStatus(errno, "cannot map the record of fleet time");
  return std::unique_ptr<ClockOutput>(new ClockOutput(*std::move(publisher), *std::move(map),
                                                      static_cast<cw_fleet_clock*>(record),
                                                      !options.chrony.sock.empty() || options.chrony.shm.has_value()));
}

ClockOutput::~ClockOutput() { munmap(record_, MappedBytes()); }

absl::Status ClockOutput::Publish(const FleetClock& clock, bool has_anchor) {
  const sync::FleetClaim claim = clock.Claim();
  const absl::Status status = publisher_->Publish({.time = clock.now(),
                                                   .timeline = claim.timeline,
                                                   .tai_offset_ns = claim.tai_offset_ns,
                                                   .tai_slope_ppb = clock.agreement().tai().slope_ppb,
                                                   .tai_bound_ns = claim.tai_bound_ns,
                                                   .anchor = has_anchor});
  publisher_->FillBpf(record_);
  return status;
}

}  // namespace cw::agent
