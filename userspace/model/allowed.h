// SPDX-License-Identifier: Apache-2.0
//
// What the agent and its kernel programs may do: each capability by itself, in the one word that the programs read
// (cw_ctl.mode of maps/abi.h; a unit test holds the two together). A mode sets all of them at once.
// Value types; safe on any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "userspace/model/names.h"

namespace cw {

enum class Capability : uint8_t {
  kFailover = 0,  // flows leave dead paths
  kLoss = 1,      // … and those that lose a share of their packets
  kTails = 2,     // what died with a path is asked for
  kBalance = 3,   // flows move because links are shared unevenly
  kPlace = 4,     // new flows are put on a path from their first packet
  kNic = 5,       // packets of a NIC out of reach leave by another one
};
inline constexpr int kCapabilities = 6;
inline constexpr std::array<Capability, kCapabilities> kAllCapabilities = {Capability::kFailover, Capability::kLoss,
                                                                           Capability::kTails,    Capability::kBalance,
                                                                           Capability::kPlace,    Capability::kNic};

enum class Allow : uint8_t {
  kOff,      // not even decided
  kObserve,  // decided and logged, not done
  kAct,
};

absl::string_view CapabilityName(Capability c);  // "failover", "loss", "tails", "balance", "place", "nic"
std::optional<Capability> ParseCapability(absl::string_view text);
absl::string_view AllowName(Allow a);  // "off", "observe", "act"

class Allowed {
 public:
  Allowed() = default;  // mode off
  explicit Allowed(uint32_t word) : word_(word) {}
  Allowed(Mode mode);  // NOLINT(google-explicit-constructor): a mode is a set of them

  Mode mode() const { return static_cast<Mode>(word_ & 3); }  // whose number the word carries
  Allow of(Capability c) const;
  bool Acts(Capability c) const { return of(c) == Allow::kAct; }
  bool Decides(Capability c) const { return of(c) != Allow::kOff; }
  bool ActsAtAll() const;  // packets may be rewritten; operators' steering applies
  Allowed With(Capability c, Allow allow) const;
  // What is left where these capabilities (bit of each) do not act: what they would have done is decided and logged.
  Allowed Less(uint32_t capabilities) const;
  uint32_t NotActing() const;  // bit of each capability that does not
  uint32_t word() const { return word_; }

  // "failover=observe balance=act": those that are not as the mode says; "" for none.
  std::string Exceptions() const;
  std::string ToString() const;  // "protect", "protect with balance=act"

  bool operator==(const Allowed&) const = default;

 private:
  uint32_t word_ = 0;
};

// Settings that hold under every mode but off: nullopt follows the mode.
using AllowOverrides = std::array<std::optional<Allow>, kCapabilities>;
Allowed Apply(Mode mode, const AllowOverrides& overrides);
// Those that a word tells of.
AllowOverrides OverridesOf(Allowed allowed);

}  // namespace cw
