// SPDX-License-Identifier: Apache-2.0
#include "cli/format.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

constexpr double kLeastErrorNs = 10;

// Three significant digits, or all digits before the point.
std::string Significant(double value) {
  const double size = std::fabs(value);
  return absl::StrFormat("%.*f", size < 9.995 ? 2 : size < 99.95 ? 1 : 0, value);
}

struct Unit {
  double scale;
  const char* name;
};

// In the largest unit in which the value is at least 1; the first one for values below. Nothing needs no unit.
template <size_t N>
std::string Scaled(double value, const std::array<Unit, N>& units) {
  if (value == 0) return "0";
  const Unit* unit = &units[0];
  for (const Unit& candidate : units) {
    if (std::fabs(value) >= candidate.scale * 0.9995) unit = &candidate;
  }
  return absl::StrFormat("%s %s", Significant(value / unit->scale), unit->name);
}

}  // namespace

const char kNoValue[] = "–";

std::string NsText(double ns) {
  if (!std::isfinite(ns)) return kNoValue;
  static constexpr std::array<Unit, 3> kUnits = {{{1e3, "µs"}, {1e6, "ms"}, {1e9, "s"}}};
  return Scaled(ns, kUnits);
}

std::string DelayText(double delay_ns, double error_ns) {
  if (!std::isfinite(delay_ns) || !std::isfinite(error_ns)) return kNoValue;
  const double error = std::max(error_ns, kLeastErrorNs);
  return delay_ns < error ? "< " + NsText(error) : NsText(delay_ns);
}

std::string DurationText(double seconds) {
  if (!std::isfinite(seconds)) return kNoValue;
  static constexpr std::array<Unit, 6> kUnits = {
      {{1e-6, "µs"}, {1e-3, "ms"}, {1, "s"}, {60, "min"}, {3600, "h"}, {86400, "d"}}};
  return Scaled(seconds, kUnits);
}

std::string AgoText(double seconds) { return seconds < 0 ? kNoValue : DurationText(seconds); }

std::string RateText(double bits_per_second) {
  static constexpr std::array<Unit, 4> kUnits = {{{1, "bit/s"}, {1e3, "kbit/s"}, {1e6, "Mbit/s"}, {1e9, "Gbit/s"}}};
  return Scaled(bits_per_second, kUnits);
}

std::string BytesText(double bytes) {
  static constexpr std::array<Unit, 4> kUnits = {{{1, "B"}, {1024, "KiB"}, {1048576, "MiB"}, {1073741824, "GiB"}}};
  return Scaled(bytes, kUnits);
}

std::string CountText(uint64_t count) {
  std::string text = std::to_string(count);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), ",");
  return text;
}

std::string ShareText(double share) {
  if (!std::isfinite(share)) return kNoValue;
  if (share <= 0) return "0 %";
  const double percent = share * 100;
  return percent < 0.01 ? "< 0.01 %" : absl::StrFormat("%s %%", Significant(percent));
}

std::string QpnText(uint32_t qpn) { return qpn == 0 ? kNoValue : absl::StrFormat("0x%x", qpn); }

std::string SlotText(int slot) { return slot < 0 ? kNoValue : std::to_string(slot); }

std::string AllowText(v1::Allow allow) {
  switch (allow) {
    case v1::ALLOW_MODE:
      return "mode";
    case v1::ALLOW_OFF:
      return "off";
    case v1::ALLOW_OBSERVE:
      return "observe";
    case v1::ALLOW_ACT:
      return "act";
    default:
      return "unknown";
  }
}

std::string ModeText(v1::Mode mode) {
  switch (mode) {
    case v1::MODE_OFF:
      return "off";
    case v1::MODE_OBSERVE:
      return "observe";
    case v1::MODE_PROTECT:
      return "protect";
    case v1::MODE_OPTIMIZE:
      return "optimize";
    default:
      return "unknown";
  }
}

Cell StateCell(v1::PathState state) {
  switch (state) {
    case v1::PATH_STATE_NEW:
      return {"new", Tone::kFaint};
    case v1::PATH_STATE_UP:
      return {"up", Tone::kGood};
    case v1::PATH_STATE_SUSPECT:
      return {"suspect", Tone::kWarn};
    case v1::PATH_STATE_DEAD:
      return {"dead", Tone::kBad};
    case v1::PATH_STATE_PAUSED:
      return {"paused", Tone::kWarn};
    case v1::PATH_STATE_SILENT:
      return {"silent", Tone::kBad};
    default:
      return {kNoValue, Tone::kFaint};
  }
}

std::string LockText(v1::Lock lock) {
  switch (lock) {
    case v1::LOCK_SOFT:
      return "soft";
    case v1::LOCK_HARD:
      return "hard";
    default:
      return "";
  }
}

std::string UtcText(int64_t unix_ns) {
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E6SZ", absl::FromUnixNanos(unix_ns), absl::UTCTimeZone());
}

std::string HashingText(cwfabric::v1::FabricHashing hashing) {
  switch (hashing) {
    case cwfabric::v1::FABRIC_HASHING_PORTS:
      return "hashed on ports";
    case cwfabric::v1::FABRIC_HASHING_QPN:
      return "hashed on the destination QPN too: no moves for balance, failover by chance";
    case cwfabric::v1::FABRIC_HASHING_TTL:
      return "hashed on the TTL too: no moves for balance";
    case cwfabric::v1::FABRIC_HASHING_SPRAYED:
      return "sprayed or adaptive: no moves";
    case cwfabric::v1::FABRIC_HASHING_SINGLE:
      return "one path only";
    default:
      return "hashing not known";
  }
}

std::string UnseenPathsText(const cwfabric::v1::Pair& pair) {
  int ports = 0;
  for (const cwfabric::v1::Path& path : pair.paths()) {
    if (!path.hops().empty()) return "";
    if (!path.native()) ++ports;
  }
  if (ports < 2 || pair.table() != "unknown") return "";
  return absl::StrFormat(
      "no switch answers: %d ports are probed, each as a path; a cable or one Ethernet has a single one", ports);
}

}  // namespace cw::cli
