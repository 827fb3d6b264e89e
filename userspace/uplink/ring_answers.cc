// SPDX-License-Identifier: Apache-2.0
#include "userspace/uplink/ring_answers.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::uplink {

namespace pb = cwfabric::v1;

RingAnswers::RingAnswers(std::string folder) : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
  std::filesystem::create_directories(folder_, error);  // where that fails, each copy says so
  std::filesystem::permissions(folder_, std::filesystem::perms::owner_all, error);
}

RingAnswers::~RingAnswers() {
  for (Asked& asked : asked_) asked.copy->Remove();
}

void RingAnswers::Refuse(uint64_t id, const std::string& reason) {
  if (refusals_.size() >= kMostCopies) refusals_.pop_front();
  refusals_.emplace_back().set_id(id);
  refusals_.back().mutable_end()->set_reason(reason);
}

void RingAnswers::Ask(const pb::RingRequest& request) {
  for (Asked& asked : asked_) {
    if (asked.copy->request().id() != request.id()) continue;
    asked.record = asked.sent = asked.kept = 0;
    asked.wanted = true;
    asked.ended = false;
    return;
  }
  const auto same = [&](const pb::RingRequest& other) { return other.id() == request.id(); };
  if (std::any_of(requests_.begin(), requests_.end(), same)) return;
  // What nobody asked for over this connection makes room: the service may have forgotten it.
  const auto unwanted = std::find_if(asked_.begin(), asked_.end(), [](const Asked& asked) { return !asked.wanted; });
  if (asked_.size() + requests_.size() >= kMostCopies && unwanted != asked_.end()) {
    unwanted->copy->Remove();
    asked_.erase(unwanted);
  }
  if (asked_.size() + requests_.size() >= kMostCopies)
    return Refuse(request.id(),
                  absl::StrCat("this host copies ", kMostCopies, " spans of its ring already: ask later"));
  requests_.push_back(request);
}

void RingAnswers::Take(const pb::RingAsk& ask) {
  const std::lock_guard lock(mutex_);
  if (ask.has_request()) return Ask(ask.request());
  for (auto at = asked_.begin(); at != asked_.end(); ++at) {
    const uint64_t id = at->copy->request().id();
    if (ask.has_credit() && id == ask.credit().id())
      at->kept = std::max(at->kept, std::min(at->sent, ask.credit().chunks()));
    if (!(ask.kind_case() == pb::RingAsk::kForget && id == ask.forget())) continue;
    at->copy->Remove();
    asked_.erase(at);
    break;
  }
  if (ask.kind_case() == pb::RingAsk::kForget)
    std::erase_if(requests_, [&](const pb::RingRequest& request) { return request.id() == ask.forget(); });
}

void RingAnswers::Begin() {
  const std::lock_guard lock(mutex_);
  requests_.clear();
  refusals_.clear();
  for (Asked& asked : asked_) asked.wanted = false;
}

std::optional<pb::RingAnswer> RingAnswers::Next() {
  const std::lock_guard lock(mutex_);
  if (!refusals_.empty()) {
    pb::RingAnswer refusal = std::move(refusals_.front());
    refusals_.pop_front();
    return refusal;
  }
  for (Asked& asked : asked_) {
    if (!asked.wanted || asked.ended || asked.sent - asked.kept >= kAhead) continue;
    pb::RingAnswer answer;
    answer.set_id(asked.copy->request().id());
    if (std::optional<pb::RingChunk> chunk = asked.copy->Chunk(asked.record)) {
      *answer.mutable_chunk() = *std::move(chunk);
      answer.mutable_chunk()->set_number(++asked.sent);
      return answer;
    }
    if (!asked.copy->complete()) continue;
    asked.ended = true;
    answer.mutable_end()->set_reason(asked.copy->reason());
    answer.mutable_end()->set_damaged_bytes(asked.copy->damaged_bytes());
    answer.mutable_end()->set_chunks(asked.sent);
    return answer;
  }
  return std::nullopt;
}

void RingAnswers::Refill(absl::Time now) {
  const double s = std::max(absl::ToDoubleSeconds(now - refilled_), 0.0);  // the clock may be set back
  budget_ = std::min(kBytesAnHour, budget_ + s * kBytesAnHour / 3600);
  refilled_ = now;
}

void RingAnswers::BeginAsked(Ring& ring, absl::Time now) {
  const pb::RingRequest request = requests_.front();
  requests_.pop_front();
  if (budget_ <= 0) {
    const absl::Duration wait = absl::Hours(-budget_ / kBytesAnHour) + absl::Minutes(1);
    return Refuse(request.id(), absl::StrFormat("this host has read %.0f MiB of its ring for the fleet service within "
                                                "an hour: ask again in %.0f min",
                                                kBytesAnHour / (1 << 20), std::ceil(absl::ToDoubleMinutes(wait))));
  }
  absl::StatusOr<RingCopy> copy = RingCopy::Begin(absl::StrFormat("%s/%016x", folder_, request.id()), request, ring);
  if (!copy.ok()) return Refuse(request.id(), std::string(copy.status().message()));
  asked_.push_back({.copy = *std::move(copy), .since = now});
}

bool RingAnswers::Step(Ring& ring, absl::Time now) {
  const std::lock_guard lock(mutex_);
  Refill(now);
  bool news = !requests_.empty();
  while (!requests_.empty()) BeginAsked(ring, now);
  for (Asked& asked : asked_) {
    const uint64_t before = asked.copy->read_bytes();
    news |= asked.copy->Step(ring, absl::ToUnixNanos(now));
    budget_ -= static_cast<double>(asked.copy->read_bytes() - before);
  }
  while (!asked_.empty() && now - asked_.front().since > kKept) {
    asked_.front().copy->Remove();
    asked_.pop_front();
  }
  return news;
}

bool RingAnswers::busy() const {
  const std::lock_guard lock(mutex_);
  return !requests_.empty() ||
         std::any_of(asked_.begin(), asked_.end(), [](const Asked& asked) { return !asked.copy->complete(); });
}

}  // namespace cw::uplink
