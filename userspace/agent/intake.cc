// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/intake.h"

namespace cw::agent {

absl::Status Intake::Open(const Rings& rings,
                          absl::FunctionRef<absl::Status(int fd, std::function<void()> readable)> add_fd) {
  struct Ring {
    const maps::BpfMap& map;
    std::unique_ptr<maps::RingReader>& reader;
  };
  for (const Ring& ring : {Ring{rings.probes, probes_}, Ring{rings.events, events_}, Ring{rings.messages, peers_}}) {
    absl::StatusOr<std::unique_ptr<maps::RingReader>> reader =
        maps::RingReader::Create(ring.map, [this](Bytes record) { Take(record); });
    if (!reader.ok()) return reader.status();
    ring.reader = std::move(*reader);
  }
  absl::Status status = add_fd(events_->epoll_fd(), [this] { (void)events_->Consume(); });
  status.Update(add_fd(peers_->epoll_fd(), [this] { (void)peers_->Consume(); }));
  return status;
}

void Intake::Take(Bytes record) {
  const uint32_t type = maps::RecordType(record);
  if (type == CW_EV_MSG) return TakeMessage(record);
  if (const auto listener = records_.find(type); listener != records_.end()) listener->second(record);
}

void Intake::TakeMessage(Bytes record) {
  const auto sealed = maps::RecordAs<cw_ev_msg>(record);
  PairState* pair = sealed ? FindIn(pairs_, sealed->pair) : nullptr;
  if (pair == nullptr) return;
  const absl::StatusOr<probe::Body> body = unseal_(*sealed);
  if (!body.ok()) return;
  for (const auto& listener : messages_) listener(*pair, *body);
}

}  // namespace cw::agent
