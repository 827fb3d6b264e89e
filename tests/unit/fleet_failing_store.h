// SPDX-License-Identifier: Apache-2.0
//
// An engine that fails as long as it is told to. Threads: as the real one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "userspace/fleet/store/store.h"

namespace cw::fleet {

class FailingStore final : public Store {
 public:
  explicit FailingStore(Store& real) : real_(real) {}
  bool fails = false;         // Append
  bool fails_orders = false;  // all that is asked about orders
  bool fails_hosts = false;
  std::string damaged;  // the host whose work cannot be read
  absl::StatusOr<size_t> Append(absl::Span<const HostBatch> b) override {
    if (fails) return absl::UnavailableError("the disk fails");
    return real_.Append(b);
  }
  absl::StatusOr<uint64_t> Through(const std::string& h, uint64_t r) override { return real_.Through(h, r); }
  absl::Status Skip(const std::string& h, uint64_t r, uint64_t f, uint64_t l) override {
    return real_.Skip(h, r, f, l);
  }
  absl::StatusOr<std::vector<HostSeen>> Hosts() override {
    if (fails_hosts) return absl::UnavailableError("the disk fails");
    return real_.Hosts();
  }
  absl::StatusOr<HostView> LatestAt(const std::string& h, int64_t t, absl::Duration d) override {
    return real_.LatestAt(h, t, d);
  }
  absl::StatusOr<std::vector<std::string>> TellersAt(int64_t time_ns) override { return real_.TellersAt(time_ns); }
  absl::StatusOr<RangeReply> Range(const RangeQuery& q) override { return real_.Range(q); }
  absl::StatusOr<WorkReply> Work(const WorkQuery& q) override {
    if (q.host == damaged) return absl::DataLossError("a damaged block");
    return real_.Work(q);
  }
  absl::StatusOr<EventPage> Events(const EventQuery& q) override { return real_.Events(q); }
  absl::StatusOr<HopList> Hops(const std::string& h, uint64_t i) override { return real_.Hops(h, i); }
  absl::StatusOr<std::vector<HopList>> AllHops(const std::string& h) override { return real_.AllHops(h); }
  absl::Status PutFindings(absl::Span<const StoredFinding> f) override { return real_.PutFindings(f); }
  absl::StatusOr<std::vector<StoredFinding>> Findings(const FindingQuery& q) override { return real_.Findings(q); }
  absl::Status PutHosts(absl::Span<const HostFacts> f) override { return real_.PutHosts(f); }
  absl::Status PutOrder(const StoredOrder& o) override { return fails_orders ? Full() : real_.PutOrder(o); }
  absl::Status RemoveOrder(const std::string& k, uint64_t i) override {
    return fails_orders ? Full() : real_.RemoveOrder(k, i);
  }
  absl::StatusOr<std::vector<StoredOrder>> Orders(const std::string& k) override {
    if (fails_orders) return Full();
    return real_.Orders(k);
  }
  absl::StatusOr<bool> Compact(int64_t n) override { return real_.Compact(n); }
  absl::StatusOr<std::vector<Deletion>> PlanRetention(int64_t n, const Retention& r) override {
    return real_.PlanRetention(n, r);
  }
  absl::Status Delete(const std::vector<Deletion>& p) override { return real_.Delete(p); }
  uint64_t thinned_bytes() const override { return 0; }
  std::map<std::string, HostLosses> host_losses() const override { return real_.host_losses(); }
  WorkLosses work_losses() const override { return real_.work_losses(); }

 private:
  static absl::Status Full() { return absl::ResourceExhaustedError("the disk is full"); }
  Store& real_;
};

}  // namespace cw::fleet
