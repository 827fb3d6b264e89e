// SPDX-License-Identifier: Apache-2.0
//
// The class (DSCP) that the flows between two NICs are in, so that probes ride in it and meet the queues and the pauses
// that the flows meet. Of several classes it is the one with the most packets: each packet counts for less as time goes
// by (1/e after fade_ns), and another class has to lead for hold_ns before it is taken, by a margin, so that two that
// carry alike do not alternate. The first class seen is taken at once: before it nothing is known. A class that fell
// silent is kept until another one leads.
// Pure: time comes in (any monotonic clock). One thread per object.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace cw::control {

struct FlowClassRules {
  int64_t look_ns = 100'000'000;  // between looks: more are not worth their cost
  int64_t fade_ns = 2'000'000'000;
  int64_t hold_ns = 1'000'000'000;
  double margin = 1.25;  // times the packets of the present class, and at least …
  double least = 8;      // … so many: a few packets of a connection's set-up are no flow
};

class FlowClass {
 public:
  explicit FlowClass(const FlowClassRules& rules = {}) : rules_(rules) {}

  void Saw(uint8_t dscp, uint64_t packets);  // since the last Step
  // Call in every window. True: dscp() has changed.
  bool Step(int64_t now_ns);
  // nullopt: no packet was seen yet.
  std::optional<uint8_t> dscp() const { return taken_; }

 private:
  // Switches have eight queues, and flows of a pair are rarely in more than two classes: with more the least is
  // forgotten.
  static constexpr size_t kClasses = 4;
  struct Class {
    uint8_t dscp = 0;
    double packets = 0;  // 0: an empty place
  };

  const Class* Most() const;
  double PacketsOf(uint8_t dscp) const;

  FlowClassRules rules_;
  std::array<Class, kClasses> classes_;
  std::optional<uint8_t> taken_, leads_;
  int64_t leads_since_ns_ = 0;
  int64_t stepped_ns_ = 0;
};

}  // namespace cw::control
