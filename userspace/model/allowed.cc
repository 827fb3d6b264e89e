// SPDX-License-Identifier: Apache-2.0
#include "userspace/model/allowed.h"

#include "absl/strings/str_cat.h"

namespace cw {
namespace {

constexpr uint32_t kAll = (1u << kCapabilities) - 1;
constexpr int kDecidesShift = 8, kActsShift = 16;

uint32_t Bit(Capability c, int shift) { return 1u << (shift + static_cast<int>(c)); }

}  // namespace

absl::string_view CapabilityName(Capability c) {
  switch (c) {
    case Capability::kFailover:
      return "failover";
    case Capability::kLoss:
      return "loss";
    case Capability::kTails:
      return "tails";
    case Capability::kBalance:
      return "balance";
    case Capability::kPlace:
      return "place";
    case Capability::kNic:
      return "nic";
  }
  return "unknown";
}

std::optional<Capability> ParseCapability(absl::string_view text) {
  for (const Capability c : kAllCapabilities) {
    if (text == CapabilityName(c)) return c;
  }
  return std::nullopt;
}

absl::string_view AllowName(Allow a) {
  switch (a) {
    case Allow::kOff:
      return "off";
    case Allow::kObserve:
      return "observe";
    case Allow::kAct:
      return "act";
  }
  return "unknown";
}

Allowed::Allowed(Mode mode) : word_(static_cast<uint32_t>(mode)) {
  if (mode == Mode::kOff) return;
  word_ |= kAll << kDecidesShift;
  if (mode == Mode::kObserve) return;
  word_ |= kAll << kActsShift;
  if (mode == Mode::kProtect) *this = With(Capability::kBalance, Allow::kObserve);
}

Allow Allowed::of(Capability c) const {
  if ((word_ & Bit(c, kActsShift)) != 0) return Allow::kAct;
  return (word_ & Bit(c, kDecidesShift)) != 0 ? Allow::kObserve : Allow::kOff;
}

bool Allowed::ActsAtAll() const { return (word_ & (kAll << kActsShift)) != 0; }

Allowed Allowed::With(Capability c, Allow allow) const {
  uint32_t word = word_ & ~(Bit(c, kDecidesShift) | Bit(c, kActsShift));
  if (allow != Allow::kOff) word |= Bit(c, kDecidesShift);
  if (allow == Allow::kAct) word |= Bit(c, kActsShift);
  return Allowed(word);
}

Allowed Allowed::Less(uint32_t capabilities) const { return Allowed(word_ & ~((capabilities & kAll) << kActsShift)); }

uint32_t Allowed::NotActing() const { return ~(word_ >> kActsShift) & kAll; }

std::string Allowed::Exceptions() const {
  std::string out;
  for (const Capability c : kAllCapabilities) {
    if (of(c) == Allowed(mode()).of(c)) continue;
    absl::StrAppend(&out, out.empty() ? "" : " ", CapabilityName(c), "=", AllowName(of(c)));
  }
  return out;
}

std::string Allowed::ToString() const {
  const std::string exceptions = Exceptions();
  return absl::StrCat(ModeName(mode()), exceptions.empty() ? "" : " with ", exceptions);
}

Allowed Apply(Mode mode, const AllowOverrides& overrides) {
  Allowed allowed(mode);
  if (mode == Mode::kOff) return allowed;
  for (const Capability c : kAllCapabilities) {
    if (const auto& allow = overrides[static_cast<size_t>(c)]) allowed = allowed.With(c, *allow);
  }
  return allowed;
}

AllowOverrides OverridesOf(Allowed allowed) {
  AllowOverrides overrides;
  for (const Capability c : kAllCapabilities) {
    if (allowed.of(c) != Allowed(allowed.mode()).of(c)) overrides[static_cast<size_t>(c)] = allowed.of(c);
  }
  return overrides;
}

}  // namespace cw
