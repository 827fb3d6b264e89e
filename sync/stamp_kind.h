// SPDX-License-Identifier: Apache-2.0
//
// Receive stamps of two kinds: by software (XDP or the stack), always there, and by the NIC, where the driver gives
// them (XDP metadata). They are taken at different places, so one series of measurements never holds both.
//
// A NIC's stamps are of the NIC's own clock: they have to be converted to the host's first (clock_domain.h).
// Pure; one thread per object.
#pragma once

#include <cstdint>
#include <optional>

namespace cw::sync {

enum class StampKind : uint8_t { kSoftware, kHardware };

struct RxStamp {
  int64_t ns = 0;
  StampKind kind = StampKind::kSoftware;
};

// Drivers say "none" in two ways: no stamp, or 0 (Linux, XDP rx metadata: bpf_xdp_metadata_rx_timestamp).
inline RxStamp ChooseRxStamp(int64_t software_ns, std::optional<int64_t> hardware_ns) {
  if (!hardware_ns || *hardware_ns <= 0) return {software_ns, StampKind::kSoftware};
  return {*hardware_ns, StampKind::kHardware};
}

// Keeps a series to one kind: the first one seen. Single stamps of the other kind are left out; when the series' own
// kind has been missing for hold_ns, the other one takes over and the series starts anew.
class SeriesKind {
 public:
  enum class Admission { kUse, kLeaveOut, kStartAnew };

  explicit SeriesKind(int64_t hold_ns = 1'000'000'000) : hold_ns_(hold_ns) {}

  // now_ns of one clock, whichever.
  Admission Admit(int64_t now_ns, StampKind kind) {
    const bool first = !kind_;
    const bool other = !first && *kind_ != kind;
    if (other && now_ns >= last_ns_ && now_ns - last_ns_ < hold_ns_) return Admission::kLeaveOut;
    kind_ = kind;
    last_ns_ = now_ns;
    return other ? Admission::kStartAnew : Admission::kUse;
  }
  std::optional<StampKind> kind() const { return kind_; }

 private:
  int64_t hold_ns_;
  int64_t last_ns_ = 0;
  std::optional<StampKind> kind_;
};

}  // namespace cw::sync
