// SPDX-License-Identifier: Apache-2.0
//
// The fleet's store as simulators need it: what ingest asks for, hop lists and events, in memory. Threads: one.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "userspace/fleet/store/store.h"

namespace cw::sim {

class MemoryStore final : public fleet::Store {
 public:
  absl::StatusOr<size_t> Append(absl::Span<const fleet::HostBatch> batches) override {
    for (const fleet::HostBatch& batch : batches) {
      uint64_t& through = through_[{batch.host, batch.run}];
      through = std::max(through, batch.sequence);
      for (const fleet::HopList& list : batch.hop_lists) hops_[list.id] = list;
      events_.insert(events_.end(), batch.events.begin(), batch.events.end());
    }
    return batches.size();
  }
  absl::StatusOr<uint64_t> Through(const std::string& host, uint64_t run) override { return through_[{host, run}]; }
  absl::Status Skip(const std::string&, uint64_t, uint64_t, uint64_t) override { return absl::OkStatus(); }
  absl::StatusOr<fleet::EventPage> Events(const fleet::EventQuery& query) override {
    const auto begin = static_cast<ptrdiff_t>(std::min<uint64_t>(query.after, events_.size()));
    return fleet::EventPage{{events_.begin() + begin, events_.end()}, events_.size()};
  }
  absl::StatusOr<fleet::HopList> Hops(const std::string&, uint64_t id) override {
    const auto known = hops_.find(id);
    if (known == hops_.end()) return absl::NotFoundError("no such list");
    return known->second;
  }

  absl::StatusOr<std::vector<fleet::HostSeen>> Hosts() override { return std::vector<fleet::HostSeen>(); }
  absl::Status PutHosts(absl::Span<const fleet::HostFacts>) override { return absl::OkStatus(); }
  absl::StatusOr<fleet::HostView> LatestAt(const std::string&, int64_t, absl::Duration) override { return None(); }
  absl::StatusOr<std::vector<std::string>> TellersAt(int64_t) override { return None(); }
  absl::StatusOr<fleet::RangeReply> Range(const fleet::RangeQuery&) override { return None(); }
  absl::StatusOr<fleet::WorkReply> Work(const fleet::WorkQuery&) override { return None(); }
  absl::StatusOr<std::vector<fleet::HopList>> AllHops(const std::string&) override { return None(); }
  absl::Status PutFindings(absl::Span<const fleet::StoredFinding>) override { return None(); }
  absl::StatusOr<std::vector<fleet::StoredFinding>> Findings(const fleet::FindingQuery&) override { return None(); }
  absl::Status PutOrder(const fleet::StoredOrder&) override { return None(); }
  absl::Status RemoveOrder(const std::string&, uint64_t) override { return None(); }
  absl::StatusOr<std::vector<fleet::StoredOrder>> Orders(const std::string&) override { return None(); }
  absl::StatusOr<bool> Compact(int64_t) override { return false; }
  absl::StatusOr<std::vector<fleet::Deletion>> PlanRetention(int64_t, const fleet::Retention&) override {
    return None();
  }
  absl::Status Delete(const std::vector<fleet::Deletion>&) override { return None(); }
  uint64_t thinned_bytes() const override { return 0; }

 private:
  static absl::Status None() { return absl::UnimplementedError("not kept"); }
  std::map<std::pair<std::string, uint64_t>, uint64_t> through_;
  std::map<uint64_t, fleet::HopList> hops_;
  std::vector<fleet::StoredEvent> events_;
};

}  // namespace cw::sim
