// SPDX-License-Identifier: Apache-2.0
//
// What slow and standing collectives cost within a range of time, from what the store kept of them. An hour of a host
// at a time: the store gives whole samples, and others wait for it.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/fleet/query/finding_message.h"
#include "userspace/fleet/query/jobs_query.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
constexpr size_t kMostFindings = 10'000;
constexpr int64_t kHourNs = 3'600'000'000'000, kMostRangeNs = 31 * 24 * kHourNs;

// What a host's agent decided and did not do, read when it is asked for: most hosts have nothing that it matters for.
class Decided {
 public:
  static constexpr size_t kPage = 1000, kMostOfType = 50'000;

  Decided(Store& store, std::string host, int64_t from_ns, int64_t to_ns)
      : store_(store), host_(std::move(host)), from_ns_(from_ns - kHourNs), to_ns_(to_ns) {}

  void Read() {
    if (read_) return;
    read_ = true;
    std::vector<DryMoves::Word> words;
    for (const char* type : {"move", "decision", "path"}) {
      if (absl::Status status = Read(type, words); !status.ok()) fault_ = std::string(status.message());
    }
    std::stable_sort(words.begin(), words.end(), [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
    for (DryMoves::Word& word : words) moves_.Take(std::move(word));
  }
  const DryMoves& moves() const { return moves_; }
  // What AVOIDABLE is short of; "" = nothing.
  std::string Missing() const {
    if (!fault_.empty()) return absl::StrCat("what it decided cannot be read: ", fault_);
    return whole_ && moves_.whole() ? "" : "it decided more than is counted as avoidable; ask for a shorter range";
  }

 private:
  // Others wait for the store: a page at a time, and what is no decision is dropped at once.
  absl::Status Read(const char* type, std::vector<DryMoves::Word>& words) {
    uint64_t after = 0;
    for (size_t seen = 0; seen < kMostOfType; seen += kPage) {
      const absl::StatusOr<EventPage> page = store_.Events(
          {.from_ns = from_ns_, .to_ns = to_ns_, .host = host_, .type = type, .after = after, .limit = kPage});
      if (!page.ok()) return page.status();
      for (const StoredEvent& stored : page->events) {
        pb::FleetEvent event;
        if (!event.ParseFromString(stored.payload)) continue;
        if (std::optional<DryMoves::Word> word = DryMoves::Read(event.event(), stored.time_ns))
          words.push_back(*std::move(word));
      }
      if (page->events.size() < kPage) return absl::OkStatus();
      after = page->next;
    }
    whole_ = false;
    return absl::OkStatus();
  }

  Store& store_;
  const std::string host_;
  const int64_t from_ns_, to_ns_;
  DryMoves moves_;
  bool read_ = false, whole_ = true;
  std::string fault_;
};

// false: there is no room for more.
bool AddSample(const std::string& host, const WorkSample& sample, const std::string& job, Decided& decided,
               CostBook& book) {
  for (const std::string& bytes : sample.collectives) {
    pb::Collective one;
    if (!one.ParseFromString(bytes)) continue;
    if (!job.empty() && one.label() != job && one.job_id() != job) continue;
    if (one.network()) decided.Read();
    if (!book.Add(host, one, sample.from_ns, sample.time_ns, decided.moves())) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::vector<Finding>> JobsQuery::FindingsWithin(int64_t from_ns, int64_t to_ns) {
  const absl::StatusOr<std::vector<StoredFinding>> stored = store_.Findings({.limit = kMostFindings});
  if (!stored.ok()) return stored.status();
  std::vector<Finding> findings;
  for (const StoredFinding& one : *stored) {
    pb::FleetFinding message;
    if (one.start_ns >= to_ns || (one.end_ns != 0 && one.end_ns <= from_ns)) continue;
    if (!message.ParseFromString(one.body)) continue;
    if (absl::StatusOr<Finding> finding = FindingOf(message); finding.ok()) findings.push_back(*std::move(finding));
  }
  return findings;
}

absl::Status JobsQuery::AddCosts(const std::string& host, int64_t from_ns, int64_t to_ns, const std::string& job,
                                 CostBook& book, pb::Coverage& coverage) {
  Decided decided(store_, host, from_ns, to_ns);
  for (int64_t begin_ns = from_ns; begin_ns < to_ns; begin_ns += kHourNs) {
    const absl::StatusOr<WorkReply> work =
        store_.Work({.host = host, .from_ns = begin_ns, .to_ns = std::min(begin_ns + kHourNs, to_ns)});
    if (absl::IsDataLoss(work.status())) {
      coverage.add_missing(absl::StrCat(host, ": ", work.status().message()));
      return absl::OkStatus();
    }
    if (!work.ok()) return work.status();
    for (const WorkSample& sample : work->samples) {
      if (sample.from_ns >= to_ns || AddSample(host, sample, job, decided, book)) continue;
      coverage.add_missing(absl::StrCat(host, ": too many collectives; ask for a shorter range, or for one job"));
      return absl::OkStatus();
    }
  }
  if (const std::string missing = decided.Missing(); !missing.empty())
    coverage.add_missing(absl::StrCat(host, ": ", missing));
  return absl::OkStatus();
}

absl::StatusOr<pb::FleetCostReply> JobsQuery::Cost(const pb::FleetCostRequest& request, int64_t now_ns) {
  const int64_t to_ns = request.to_ns() == 0 ? now_ns : request.to_ns();
  const int64_t from_ns = request.from_ns() == 0 ? to_ns - 24 * kHourNs : request.from_ns();
  if (from_ns < 0 || from_ns >= to_ns || to_ns - from_ns > kMostRangeNs)
    return absl::InvalidArgumentError(
        "give a range that ends after it begins, of 31 days at most, such as --from=-24h");
  const absl::StatusOr<std::vector<HostSeen>> hosts = store_.Hosts();
  if (!hosts.ok()) return hosts.status();
  absl::StatusOr<std::vector<Finding>> findings = FindingsWithin(from_ns, to_ns);
  if (!findings.ok()) return findings.status();
  const absl::StatusOr<View> view = Look("", 0, absl::ZeroDuration());
  if (!view.ok()) return view.status();
  CostBook book(*std::move(findings), TopologyOf(view->work, file_));
  pb::Coverage coverage;
  coverage.set_hosts(static_cast<uint32_t>(hosts->size()));
  for (const HostSeen& host : *hosts) {
    if (absl::Status status = AddCosts(host.host, from_ns, to_ns, request.job(), book, coverage); !status.ok())
      return status;
  }
  pb::FleetCostReply reply = book.Sum();
  reply.set_from_ns(from_ns);
  reply.set_to_ns(to_ns);
  *reply.mutable_coverage() = std::move(coverage);
  return reply;
}

}  // namespace cw::fleet
