// SPDX-License-Identifier: Apache-2.0
//
// What the programs' rings and the peers bring in, each kind handed to the part that listens for it. Kinds that nobody
// listens for, records that are too short, and messages of pairs that are gone are passed over. Thread rule: the
// agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "maps/abi.h"
#include "maps/ring_reader.h"
#include "userspace/agent/pair_state.h"
#include "userspace/probe/messages.h"

namespace cw::agent {

class Intake {
 public:
  using Bytes = absl::Span<const uint8_t>;
  // A message of a peer as it came; an error where it is not to be believed, which its channel counts.
  using Unseal = std::function<absl::StatusOr<probe::Body>(const cw_ev_msg& sealed)>;

  Intake(const PairTable& pairs, Unseal unseal) : pairs_(pairs), unseal_(std::move(unseal)) {}

  // type: of cw_event_type. One listener each; before Open.
  template <typename Record>
  void On(uint32_t type, std::function<void(const Record& record)> listener) {
    records_[type] = [listener = std::move(listener)](Bytes bytes) {
      if (const auto record = maps::RecordAs<Record>(bytes)) listener(*record);
    };
  }
  template <typename Message>
  void OnMessage(std::function<void(PairState& pair, const Message& message)> listener) {
    messages_.push_back([listener = std::move(listener)](PairState& pair, const probe::Body& body) {
      if (const auto* message = std::get_if<Message>(&body)) listener(pair, *message);
    });
  }

  struct Rings {
    const maps::BpfMap &probes, &events, &messages;
  };
  // Events and messages come as they are written, probes when they are asked for.
  absl::Status Open(const Rings& rings, absl::FunctionRef<absl::Status(int fd, std::function<void()> readable)> add_fd);
  void ReadProbes() { (void)probes_->Consume(); }

  void Take(Bytes record);  // of any ring

 private:
  void TakeMessage(Bytes record);

  const PairTable& pairs_;
  const Unseal unseal_;
  std::map<uint32_t, std::function<void(Bytes record)>> records_;
  std::vector<std::function<void(PairState& pair, const probe::Body& body)>> messages_;
  std::unique_ptr<maps::RingReader> probes_, events_, peers_;
};

}  // namespace cw::agent
