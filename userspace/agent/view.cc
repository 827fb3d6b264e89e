// SPDX-License-Identifier: Apache-2.0
// Answers to cwctl: what the agent knows, in the words of the schema.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/fleet_clock/clock_keeper.h"
#include "userspace/agent/flows/flow_reader.h"
#include "userspace/agent/flows/placer.h"
#include "userspace/agent/insight/chunks.h"
#include "userspace/agent/insight/jobs.h"
#include "userspace/agent/nics/nic_clocks.h"
#include "userspace/agent/paths/totals.h"
#include "userspace/agent/recovery/rerolls.h"
#include "userspace/agent/recovery/tails.h"
#include "userspace/agent/ring_tap.h"
#include "userspace/agent/views/flows_view.h"
#include "userspace/agent/views/paths_view.h"
#include "userspace/agent/views/status_view.h"
#include "userspace/agent/views/view_words.h"
#include "userspace/model/steady.h"

namespace cw::agent {

namespace v1 = api::v1;

// Of those parts whose counts status has, too.
void Agent::TellCounts(const CounterSink& add) const {
  tails_->TellCounts(add);
  rerolls_->TellCounts(add);
  placer_->TellCounts(add);
  add("inproc_over_quota", inproc_->counts().over_quota, "messages and queue pairs of processes over their quota");
  add("inproc_descriptors", inproc_->counts().descriptors,
      "connections that were ended because of a descriptor in them");
  add("inproc_rests", inproc_->counts().rests, "times that connections had to wait for want of descriptors");
  add("inproc_malformed", inproc_->counts().malformed, "messages of processes that could not be read");
}

absl::StatusOr<v1::StatusReply> Agent::Status(const v1::StatusRequest&, const api::Caller&) {
  return loop_->Call<v1::StatusReply>([this] { return absl::StatusOr<v1::StatusReply>(status_view_->Status()); });
}

absl::StatusOr<v1::DoctorReply> Agent::Doctor(const v1::DoctorRequest&, const api::Caller&) {
  return loop_->Call<v1::DoctorReply>([this] { return absl::StatusOr<v1::DoctorReply>(status_view_->Doctor()); });
}

absl::StatusOr<v1::PathsReply> Agent::Paths(const v1::PathsRequest& request, const api::Caller&) {
  return loop_->Call<v1::PathsReply>(
      [this, request] { return absl::StatusOr<v1::PathsReply>(paths_view_->All(request)); });
}

absl::StatusOr<v1::LinksReply> Agent::Links(const v1::LinksRequest& request, const api::Caller&) {
  absl::StatusOr<v1::PathsReply> paths = Paths({});
  if (!paths.ok()) return paths.status();
  const absl::StatusOr<LinkPast> flaps =
      loop_->Call<LinkPast>([this] { return absl::StatusOr<LinkPast>(paths_view_->PastOfLinks()); });
  if (!flaps.ok()) return flaps.status();
  return MakeLinks(*paths, request.window_s(), *flaps);
}

absl::StatusOr<v1::QpsReply> Agent::Qps(const v1::QpsRequest& request, const api::Caller&) {
  return loop_->Call<v1::QpsReply>([this, request] {
    if (request.received()) flow_reader_->ReadReceived();
    return absl::StatusOr<v1::QpsReply>(flows_view_->All(request));
  });
}

absl::StatusOr<v1::CountersReply> Agent::Counters(const v1::CountersRequest&, const api::Caller&) {
  absl::StatusOr<cw_counters> sums = dataplane_->counters().Sum();
  if (!sums.ok()) return sums.status();
  v1::CountersReply reply;
  const auto add = [&](const char* name, uint64_t value, const char* text) {
    v1::Counter* out = reply.add_counters();
    out->set_name(name);
    out->set_value(value);
    out->set_text(text);
  };
  for (const maps::CounterInfo& counter : maps::Counters()) add(counter.name, (*sums).*counter.field, counter.text);
  absl::StatusOr<probe::MessageStats> messages = loop_->Call<probe::MessageStats>([this, &add] {
    TellCounts(add);
    chunks_->TellCounts(add);
    return absl::StatusOr<probe::MessageStats>(engine_->message_stats());
  });
  if (!messages.ok()) return messages.status();
  add("messages_sent", messages->sent, "messages to other agents");
  add("messages_accepted", messages->accepted, "messages of other agents");
  add("messages_rejected", messages->rejected_mac + messages->rejected_replay + messages->rejected_malformed,
      "messages with a wrong MAC, seen before, or malformed");
  add("messages_passed_over", messages->passed_over, "messages of a kind that only a newer agent knows");
  return reply;
}

namespace {

// Who writes events waits while others are copied, and the loop is one of those.
constexpr size_t kEventsAtOnce = 256;

bool Passes(const v1::EventsRequest& request, const telemetry::Event& event) {
  if (!request.type().empty() && request.type() != event.type) return false;
  return request.match().empty() || request.match() == event.flow || request.match() == event.peer;
}

}  // namespace

absl::StatusOr<std::vector<v1::Event>> Agent::Events(const v1::EventsRequest& request, absl::Duration wait) {
  std::vector<v1::Event> out;
  const bool of_this_run = request.after_run() == 0 || request.after_run() == journal_.log().run();
  const uint64_t after_seq = of_this_run ? request.after_seq() : 0;
  const size_t last = after_seq == 0 ? request.last() : 0;  // 0: all
  const auto keep_last = [&](size_t most) {
    if (last > 0 && out.size() > most) out.erase(out.begin(), out.end() - static_cast<std::ptrdiff_t>(last));
  };
  uint64_t after = after_seq;
  if (last > 0 && request.type().empty() && request.match().empty())
    after = journal_.log().newest() - std::min<uint64_t>(journal_.log().newest(), last);
  const absl::Time deadline = SteadyNow() + wait;
  // Events that do not pass the filter are no answer: go on waiting behind them.
  for (bool more = true; more;) {
    std::vector<telemetry::Event> events = journal_.log().After(after, kEventsAtOnce);
    if (events.empty()) events = journal_.log().WaitAfter(after, deadline - SteadyNow());
    for (const telemetry::Event& event : events) {
      after = event.seq;
      if (Passes(request, event)) out.push_back(ToApi(event));
    }
    keep_last(2 * last);
    more = events.size() >= kEventsAtOnce || (out.empty() && SteadyNow() < deadline);
  }
  keep_last(last);
  return out;
}

absl::StatusOr<v1::ListJobsReply> Agent::ListJobs(const v1::ListJobsRequest& request, const api::Caller&) {
  return loop_->Call<v1::ListJobsReply>(
      [this, request] { return absl::StatusOr<v1::ListJobsReply>(jobs_->List(request)); });
}

absl::StatusOr<v1::ListCollectivesReply> Agent::ListCollectives(const v1::ListCollectivesRequest& request,
                                                                const api::Caller&) {
  return loop_->Call<v1::ListCollectivesReply>(
      [this, request] { return absl::StatusOr<v1::ListCollectivesReply>(jobs_->Collectives(request)); });
}

absl::StatusOr<v1::ClockReply> Agent::Clock(const v1::ClockRequest&, const api::Caller&) {
  return loop_->Call<v1::ClockReply>([this] {
    v1::ClockReply reply = clocks_->Reply();
    nic_clocks_->Fill(reply);
    return absl::StatusOr<v1::ClockReply>(std::move(reply));
  });
}

absl::StatusOr<metrics::PathTotals> Agent::PathTotals() {
  return loop_->Call<metrics::PathTotals>([this] { return absl::StatusOr<metrics::PathTotals>(totals_->Make()); });
}

absl::StatusOr<std::vector<uplink::PathSeen>> Agent::PathsSeen(int seconds) {
  return loop_->Call<std::vector<uplink::PathSeen>>(
      [this, seconds] { return absl::StatusOr<std::vector<uplink::PathSeen>>(paths_view_->Seen(seconds)); });
}

void Agent::RecordForRing(bool wanted) {
  loop_->Post([this, wanted] { ring_->Want(wanted, absl::GetCurrentTimeNanos()); });
}

absl::StatusOr<uplink::SecondSeen> Agent::SecondForRing() {
  return loop_->Call<uplink::SecondSeen>([this] {
    return ring_->Take(paths_view_->Seen(0), flows_, peer_names_, absl::GetCurrentTimeNanos(), MonotonicNs());
  });
}

absl::StatusOr<std::vector<uplink::FlowSeen>> Agent::FlowsSeen() {
  return loop_->Call<std::vector<uplink::FlowSeen>>(
      [this] { return absl::StatusOr<std::vector<uplink::FlowSeen>>(flows_view_->Seen()); });
}

}  // namespace cw::agent
