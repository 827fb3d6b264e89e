// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/seats.h"

#include "absl/strings/str_cat.h"
#include "userspace/model/steady.h"

namespace cw::api {

absl::Status Seats::Take(grpc::ServerContext* context, const std::string& caller) {
  const std::lock_guard lock(mutex_);
  const absl::Time now = SteadyNow();
  size_t its = 0;
  for (auto& [other, seat] : seats_) {
    if (seat.writing && now - *seat.writing > limits_.stalled) other->TryCancel();
    its += seat.caller == caller;
  }
  if (its >= limits_.each)
    return absl::ResourceExhaustedError(
        absl::StrCat(caller, " has ", its, " ", limits_.what, " already; end one of them"));
  if (seats_.size() >= limits_.all)
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", seats_.size(), " ", limits_.what, " already; try again soon"));
  seats_[context] = {caller, std::nullopt};
  return absl::OkStatus();
}

void Seats::Leave(grpc::ServerContext* context) {
  const std::lock_guard lock(mutex_);
  seats_.erase(context);
}

void Seats::Note(grpc::ServerContext* context, bool writing) {
  const std::lock_guard lock(mutex_);
  seats_[context].writing = writing ? std::optional(SteadyNow()) : std::nullopt;
}

}  // namespace cw::api
