// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/incidents/collection.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/model/run_id.h"
#include "userspace/model/utf8.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
constexpr int64_t kSpanSlackNs = 30'000'000'000;  // a second may be long where an agent was held up
constexpr size_t kMostReason = 300;
constexpr size_t kBytesAtOnce = 256 << 10;  // of a record
constexpr uint64_t kMostTimes = 3;          // that a host sends its part

}  // namespace

Collection::Collection(pb::Incident head, std::unique_ptr<BundleWriter> file, const CollectionLimits& limits)
    : head_(std::move(head)),
      file_(std::move(file)),
      limits_(limits),
      share_(std::min(limits.host_bytes, limits.bytes / static_cast<uint64_t>(std::max(1, head_.hosts_size())))),
      request_(NewRun()) {
  for (const pb::IncidentHost& host : head_.hosts()) hosts_.try_emplace(host.host());
}

absl::StatusOr<std::unique_ptr<Collection>> Collection::Begin(pb::Incident head, const std::string& path,
                                                              const CollectionLimits& limits) {
  absl::StatusOr<std::unique_ptr<BundleWriter>> file = BundleWriter::Create(path);
  if (!file.ok()) return file.status();
  head.set_state("taking");
  return std::unique_ptr<Collection>(new Collection(std::move(head), *std::move(file), limits));
}

std::optional<pb::RingAsk> Collection::Look(const std::string& name, const HostState& state) {
  const auto found = hosts_.find(name);
  if (found == hosts_.end() || found->second.ended) return std::nullopt;
  Host& host = found->second;
  if (state.connection < host.state.connection) return std::nullopt;
  const bool asked_over_this = host.asked && host.state.connected && state.connection == host.state.connection;
  host.state = state;
  if (!state.connected) return std::nullopt;
  if (!state.keeps_ring) {
    host.ended = true;
    host.missing = state.no_ring.empty() ? "its agent is too old to keep a ring: update it"
                                         : "it keeps no ring: " + CutUtf8(state.no_ring, kMostReason);
    return std::nullopt;
  }
  if (asked_over_this) return std::nullopt;
  // From its first chunk on, each time: which it had sent before a connection was lost, it does not know.
  host.asked = true;
  host.chunks = 0;
  host.bytes = 0;
  pb::RingAsk ask;
  ask.mutable_request()->set_id(request_);
  ask.mutable_request()->set_from_ns(head_.from_ns());
  ask.mutable_request()->set_to_ns(head_.to_ns());
  ask.mutable_request()->set_most_bytes(share_);
  return ask;
}

pb::RingAsk Collection::Forget() const {
  pb::RingAsk ask;
  ask.set_forget(request_);
  return ask;
}

pb::RingAsk Collection::Refuse(Host& host, const std::string& why) {
  ++refused_;
  host.ended = true;
  host.missing = "what it sent was refused: " + why;
  return Forget();
}

absl::Status Collection::Check(const Host& host, const pb::RingChunk& chunk) const {
  if (chunk.number() != host.chunks + 1) return absl::InvalidArgumentError("a part out of order");
  if (chunk.ByteSizeLong() > kMostChunkBytes) return absl::InvalidArgumentError("too large a part");
  // Frames and names come on top of what the host counts.
  const uint64_t most = share_ * 5 / 4;
  if (host.bytes + chunk.ByteSizeLong() > most) return absl::InvalidArgumentError("more than was asked for");
  if (host.total + chunk.ByteSizeLong() > kMostTimes * most)
    return absl::InvalidArgumentError("it began anew too often, see its connection");
  for (const std::string& bytes : chunk.seconds()) {
    pb::RingSecond second;
    if (!second.ParseFromString(bytes)) return absl::InvalidArgumentError("what is no second of a ring");
    if (second.to_ns() < head_.from_ns() - kSpanSlackNs || second.from_ns() > head_.to_ns() + kSpanSlackNs)
      return absl::InvalidArgumentError("of another time than was asked for");
  }
  return absl::OkStatus();
}

std::optional<pb::RingAsk> Collection::Take(const std::string& name, const pb::RingAnswer& answer) {
  const auto found = hosts_.find(name);
  if (found == hosts_.end() || found->second.ended || !found->second.asked || answer.id() != request_) {
    ++refused_;
    return std::nullopt;
  }
  Host& host = found->second;
  if (answer.has_end()) {
    host.ended = true;
    host.missing = CutUtf8(answer.end().reason(), kMostReason);
    host.damaged = answer.end().damaged_bytes();
    return Forget();
  }
  if (absl::Status status = Check(host, answer.chunk()); !status.ok())
    return Refuse(host, std::string(status.message()));
  if (file_->bytes() > limits_.bytes) {
    host.ended = true;
    host.missing = "the incident is full: ask for less time, or fewer hosts";
    return Forget();
  }
  const absl::Status kept = AddSeconds(name, {answer.chunk().seconds().begin(), answer.chunk().seconds().end()});
  if (!kept.ok()) {
    host.ended = true;
    host.missing = std::string(kept.message());
    return Forget();
  }
  host.source = "ring";
  host.bytes += answer.chunk().ByteSizeLong();
  host.total += answer.chunk().ByteSizeLong();
  host.chunks = answer.chunk().number();
  pb::RingAsk credit;
  credit.mutable_credit()->set_id(request_);
  credit.mutable_credit()->set_chunks(host.chunks);
  return credit;
}

bool Collection::Done(absl::Time now) const {
  const bool all = std::all_of(hosts_.begin(), hosts_.end(), [](const auto& host) { return host.second.ended; });
  // What is told of the span's end arrives a little later, in the store, too.
  return (all && now > absl::FromUnixNanos(head_.to_ns()) + absl::Seconds(1)) ||
         now > absl::FromUnixNanos(head_.to_ns()) + limits_.patience;
}

std::vector<std::string> Collection::WithoutRing() const {
  std::vector<std::string> names;
  for (const auto& [name, host] : hosts_) {
    if (host.source.empty()) names.push_back(name);
  }
  return names;
}

absl::Status Collection::AddSeconds(const std::string& name, const std::vector<std::string>& seconds) {
  if (seconds.empty()) return absl::OkStatus();
  Host& host = hosts_[name];
  for (size_t at = 0; at < seconds.size();) {
    pb::IncidentRecord record;
    record.mutable_seconds()->set_host(name);
    for (size_t bytes = 0; at < seconds.size() && bytes < kBytesAtOnce; ++at) {
      bytes += seconds[at].size();
      record.mutable_seconds()->add_seconds(seconds[at]);
    }
    if (absl::Status status = file_->Add(record); !status.ok()) return status;
    host.seconds += static_cast<uint64_t>(record.seconds().seconds_size());
    if (host.source.empty()) host.source = "store";
  }
  return absl::OkStatus();
}

void Collection::Lacks(const std::string& name, const std::string& why) {
  hosts_[name].lacks = "not all of what the store has is here: " + CutUtf8(why, kMostReason);
}

std::string Collection::MissingOf(const std::string& name) const {
  const auto found = hosts_.find(name);
  return found == hosts_.end() ? "" : found->second.missing;
}

std::vector<std::string> Collection::Waiting() const {
  std::vector<std::string> names;
  for (const auto& [name, host] : hosts_) {
    if (host.asked && !host.ended) names.push_back(name);
  }
  return names;
}

absl::Status Collection::AddEvents(const std::vector<pb::FleetEventOf>& events) {
  pb::IncidentRecord record;
  size_t bytes = 0;
  absl::Status status;
  for (const pb::FleetEventOf& event : events) {
    bytes += event.ByteSizeLong();
    *record.mutable_events()->add_events() = event;
    if (bytes < kBytesAtOnce) continue;
    status.Update(file_->Add(record));
    record.Clear();
    bytes = 0;
  }
  if (bytes > 0) status.Update(file_->Add(record));
  return status;
}

pb::Incident Collection::Short() const {
  pb::Incident head = head_;
  head.clear_rules();
  head.clear_fabric();
  head.clear_topology();
  head.set_bytes(file_->bytes());
  for (pb::IncidentHost& out : *head.mutable_hosts()) {
    const Host& host = hosts_.at(out.host());
    out.set_source(host.source);
    out.set_seconds(host.seconds);
    if (!host.ended && !host.state.connected) out.set_missing("not connected");
  }
  return head;
}

absl::StatusOr<pb::Incident> Collection::Finish() {
  head_.set_state("done");
  for (pb::IncidentHost& out : *head_.mutable_hosts()) {
    Host& host = hosts_.at(out.host());
    out.set_source(host.source);
    out.set_seconds(host.seconds);
    out.set_damaged_bytes(host.damaged);
    if (!host.ended) host.missing = host.state.connected ? "it did not answer in time" : "it was not connected";
    if (!host.lacks.empty()) absl::StrAppend(&host.missing, host.missing.empty() ? "" : "; ", host.lacks);
    out.set_missing(host.missing);
  }
  if (absl::Status status = file_->Finish(head_); !status.ok()) return status;
  return head_;
}

}  // namespace cw::fleet
