// SPDX-License-Identifier: Apache-2.0
// Why a flow is where it is, with what befell it.
#include <algorithm>

#include "absl/time/clock.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/flows/flow_reader.h"
#include "userspace/agent/views/why_view.h"

namespace cw::agent {
namespace {

constexpr size_t kEventsShown = 8;

// The newest that `fits`, oldest first, with their ages.
template <typename Fits>
void AddEvents(const std::vector<v1::Event>& events, Fits fits, v1::WhyReply& reply) {
  std::vector<const v1::Event*> chosen;
  for (auto event = events.rbegin(); event != events.rend() && chosen.size() < kEventsShown; ++event) {
    if (fits(*event)) chosen.push_back(&*event);
  }
  const int64_t now_unix_ns = absl::GetCurrentTimeNanos();
  for (auto event = chosen.rbegin(); event != chosen.rend(); ++event) {
    v1::WhyEvent* out = reply.add_events();
    *out->mutable_event() = **event;
    out->set_ago_s(std::max(0.0, static_cast<double>(now_unix_ns - (*event)->time_unix_ns()) / 1e9));
  }
}

}  // namespace

absl::StatusOr<v1::WhyReply> Agent::Why(const v1::WhyRequest& request, const api::Caller&) {
  absl::StatusOr<v1::WhyReply> reply =
      loop_->Call<v1::WhyReply>([this, what = request.what()]() -> absl::StatusOr<v1::WhyReply> {
        flow_reader_->ReadReceived();
        return why_view_->About(what);
      });
  if (!reply.ok()) return reply;
  const absl::StatusOr<std::vector<v1::Event>> events = Events(v1::EventsRequest(), absl::ZeroDuration());
  if (!events.ok()) return reply;
  const int slot = static_cast<int>(reply->path().path().slot());
  const auto of_flow = [&](const v1::Event& event) { return event.flow() == reply->flow().id(); };
  const auto of_path = [&](const v1::Event& event) {
    if (event.peer() != reply->path().peer()) return false;
    return event.slot() == slot || event.to_slot() == slot || (event.type() == "fabric" && event.slot() < 0);
  };
  if (reply->has_flow())
    AddEvents(*events, of_flow, *reply);
  else
    AddEvents(*events, of_path, *reply);
  return reply;
}

}  // namespace cw::agent
