// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/store/sqlite/sqlite_store.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/fleet/store/sqlite/events.h"
#include "userspace/fleet/store/sqlite/reserve.h"
#include "userspace/fleet/store/sqlite/retention.h"
#include "userspace/fleet/store/sqlite/schema.h"
#include "userspace/fleet/store/sqlite/tables.h"
#include "userspace/fleet/store/sqlite/work.h"

namespace cw::fleet {
namespace {

constexpr int kBlocksAtOnce = 200;  // a tenth of a second
constexpr int kWorkAtOnce = 20;     // each has three tiers
constexpr int kThinnings = 40;      // a sixteenth of a tier each time: all of it, and then the next one

class SqliteStore final : public Store {
 public:
  SqliteStore(std::unique_ptr<Database> db, Reserve reserve)
      : db_(std::move(db)),
        tables_(*db_),
        work_(*db_),
        events_(*db_, tables_),
        retention_(*db_, tables_),
        reserve_(std::move(reserve)) {}

  absl::StatusOr<size_t> Append(absl::Span<const HostBatch> batches) override {
    const std::lock_guard lock(mutex_);
    return TryWithRoom([&] { return AppendAll(batches); });
  }

  absl::StatusOr<uint64_t> Through(const std::string& host, uint64_t run) override {
    const std::lock_guard lock(mutex_);
    const absl::StatusOr<std::optional<int64_t>> id = tables_.FindHost(host);
    if (!id.ok()) return id.status();
    if (!id->has_value()) return uint64_t{0};
    return tables_.Through(**id, run);
  }

  absl::Status Skip(const std::string& host, uint64_t run, uint64_t first, uint64_t last) override {
    if (first == 0 || last < first) return absl::InvalidArgumentError("sequences to skip: from 1, first before last");
    const std::lock_guard lock(mutex_);
    return Try([&]() -> absl::StatusOr<size_t> {
             const absl::StatusOr<int64_t> id = tables_.HostId(host);
             if (!id.ok()) return id.status();
             const absl::StatusOr<bool> added = tables_.AddSeen(*id, run, first, last);
             if (!added.ok()) return added.status();
             return size_t{1};
           })
        .status();
  }

  absl::StatusOr<std::vector<HostSeen>> Hosts() override {
    const std::lock_guard lock(mutex_);
    std::vector<HostSeen> hosts;
    Statement& s = db_->Use("SELECT name, newest_ns, metrics, removed_ns FROM host ORDER BY name");
    absl::StatusOr<bool> row = s.Step();
    for (; row.ok() && *row; row = s.Step()) {
      const std::string name = s.ColumnBytes(0);
      hosts.push_back({name, s.ColumnInt(1), {name, s.ColumnBytes(2), s.ColumnInt(3)}});
    }
    if (!row.ok()) return row.status();
    return hosts;
  }

  absl::Status PutHosts(absl::Span<const HostFacts> facts) override {
    const std::lock_guard lock(mutex_);
    return Write([&]() -> absl::Status {
      for (const HostFacts& of : facts) {
        const absl::StatusOr<int64_t> id = tables_.HostId(of.host);
        if (!id.ok()) return id.status();
        Statement& s = db_->Use("UPDATE host SET metrics = ?, removed_ns = ? WHERE id = ?");
        if (absl::Status status = s.Text(of.metrics).Int(of.removed_ns).Int(*id).Run(); !status.ok()) return status;
      }
      return absl::OkStatus();
    });
  }

  absl::StatusOr<HostView> LatestAt(const std::string& host, int64_t time_ns, absl::Duration reach) override {
    const std::lock_guard lock(mutex_);
    const absl::StatusOr<int64_t> id = KnownHost(host);
    if (!id.ok()) return id.status();
    HostView view{.host = host};
    for (size_t tier = 0; tier < kTiers && view.paths.empty(); ++tier) {
      // Where only coarse ones are left: the interval that the time lies in ends behind it.
      const int64_t until = tier == 0 ? time_ns : time_ns + absl::ToInt64Nanoseconds(kResolution[tier]) - 1;
      absl::StatusOr<std::vector<PathSample>> samples =
          Named(*id, tables_.Read(tier, *id, time_ns - absl::ToInt64Nanoseconds(reach), until), std::nullopt);
      if (!samples.ok()) return samples.status();
      for (PathSample& sample : *samples) {
        if (!view.paths.empty() && view.paths.back().key == sample.key) view.paths.pop_back();
        view.paths.push_back(std::move(sample));
      }
    }
    absl::StatusOr<std::vector<Document>> documents = events_.DocumentsAt(*id, time_ns);
    if (!documents.ok()) return documents.status();
    view.documents = *std::move(documents);
    return view;
  }

  absl::StatusOr<RangeReply> Range(const RangeQuery& query) override {
    if (query.to_ns <= query.from_ns)
      return absl::InvalidArgumentError("an empty range: its end lies behind its start");
    const std::lock_guard lock(mutex_);
    const absl::StatusOr<int64_t> id = KnownHost(query.host);
    if (!id.ok()) return id.status();
    const absl::StatusOr<size_t> tier = TierFor(query);
    if (!tier.ok()) return tier.status();
    absl::StatusOr<std::vector<PathSample>> samples =
        Named(*id, tables_.Read(*tier, *id, query.from_ns - 1, query.to_ns - 1), query.path);
    if (!samples.ok()) return samples.status();
    return RangeReply{static_cast<Tier>(*tier), *std::move(samples)};
  }

  absl::StatusOr<WorkReply> Work(const WorkQuery& query) override {
    if (query.to_ns <= query.from_ns)
      return absl::InvalidArgumentError("an empty range: its end lies behind its start");
    const std::lock_guard lock(mutex_);
    const absl::StatusOr<int64_t> id = KnownHost(query.host);
    if (!id.ok()) return id.status();
    size_t tier = 0;
    for (; tier + 1 < kTiers; ++tier) {
      const absl::StatusOr<int64_t> horizon = tables_.HorizonNs(tier);
      if (!horizon.ok()) return horizon.status();
      if (query.from_ns >= *horizon) break;
    }
    // Where only coarse ones are left: the interval that the end lies in ends behind it.
    const int64_t until = tier == 0 ? query.to_ns : query.to_ns + absl::ToInt64Nanoseconds(kResolution[tier]) - 1;
    absl::StatusOr<std::vector<WorkSample>> samples = work_.Read(tier, *id, query.from_ns, until);
    if (!samples.ok()) return samples.status();
    return WorkReply{static_cast<Tier>(tier), *std::move(samples)};
  }

  absl::StatusOr<EventPage> Events(const EventQuery& query) override {
    const std::lock_guard lock(mutex_);
    return events_.Page(query);
  }

  absl::StatusOr<HopList> Hops(const std::string& host, uint64_t id) override {
    absl::StatusOr<std::vector<HopList>> all = AllHops(host);
    if (!all.ok()) return all.status();
    for (HopList& list : *all) {
      if (list.id == id) return std::move(list);
    }
    return absl::NotFoundError(absl::StrCat(host, " never told the hop list ", absl::Hex(id)));
  }

  absl::StatusOr<std::vector<HopList>> AllHops(const std::string& host) override {
    const std::lock_guard lock(mutex_);
    const absl::StatusOr<int64_t> id = KnownHost(host);
    if (!id.ok()) return id.status();
    return events_.Hops(*id);
  }

  absl::Status PutFindings(absl::Span<const StoredFinding> findings) override {
    const std::lock_guard lock(mutex_);
    return Write([&]() -> absl::Status {
      for (const StoredFinding& finding : findings) {
        if (absl::Status status = events_.PutFinding(finding); !status.ok()) return status;
      }
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::vector<StoredFinding>> Findings(const FindingQuery& query) override {
    const std::lock_guard lock(mutex_);
    return events_.Findings(query);
  }

  absl::Status PutOrder(const StoredOrder& order) override {
    const std::lock_guard lock(mutex_);
    return WriteWithRoom([&] { return events_.PutOrder(order); });
  }

  absl::Status RemoveOrder(const std::string& kind, uint64_t id) override {
    const std::lock_guard lock(mutex_);
    return WriteWithRoom([&] { return events_.RemoveOrder(kind, id); });
  }

  absl::StatusOr<std::vector<StoredOrder>> Orders(const std::string& kind) override {
    const std::lock_guard lock(mutex_);
    return events_.Orders(kind);
  }

  absl::StatusOr<bool> Compact(int64_t now_ns) override {
    const std::lock_guard lock(mutex_);
    reserve_.Restore();
    const absl::StatusOr<size_t> made = Try([&]() -> absl::StatusOr<size_t> {
      const absl::StatusOr<int> blocks = tables_.MakeBlocks(now_ns, kBlocksAtOnce);
      if (!blocks.ok()) return blocks.status();
      const absl::StatusOr<int> work = work_.MakeBlocks(now_ns, kWorkAtOnce);
      if (!work.ok()) return work.status();
      return *blocks == kBlocksAtOnce || *work == kWorkAtOnce ? size_t{1} : size_t{0};
    });
    if (absl::IsResourceExhausted(made.status())) {
      const absl::StatusOr<uint64_t> gone = ThinOut();
      if (!gone.ok() || *gone == 0) return made.status();
      return true;  // there is room to try again
    }
    if (!made.ok()) return made.status();
    return *made != 0;
  }

  absl::StatusOr<std::vector<Deletion>> PlanRetention(int64_t now_ns, const Retention& retention) override {
    const std::lock_guard lock(mutex_);
    return retention_.Plan(now_ns, retention);
  }

  absl::Status Delete(const std::vector<Deletion>& plan) override {
    const std::lock_guard lock(mutex_);
    return Write([&] { return retention_.Delete(plan); });
  }

  uint64_t thinned_bytes() const override {
    const std::lock_guard lock(mutex_);
    return thinned_bytes_;
  }

  WorkLosses work_losses() const override {
    const std::lock_guard lock(mutex_);
    return work_.losses();
  }

 private:
  template <typename Work>
  absl::StatusOr<size_t> Try(const Work& work) {
    absl::StatusOr<size_t> result = size_t{0};
    {
      Transaction transaction(*db_);
      absl::Status status = transaction.Begin();
      if (status.ok()) {
        result = work();
        status = result.status();
      }
      if (status.ok()) status = transaction.Commit();
      if (status.ok()) return result;
      result = status;
    }
    tables_.ForgetNumbers();
    return result;
  }

  // Where the disk is full, detail goes until there is room: this must not fail for it.
  template <typename Work>
  absl::StatusOr<size_t> TryWithRoom(const Work& work) {
    for (int thinning = 0;; ++thinning) {
      const absl::StatusOr<size_t> result = Try(work);
      if (!absl::IsResourceExhausted(result.status()) || thinning == kThinnings) return result;
      const absl::StatusOr<uint64_t> gone = ThinOut();
      if (!gone.ok() || *gone == 0) return result;
    }
  }

  template <typename Work>
  static auto Counted(const Work& work) {
    return [&work]() -> absl::StatusOr<size_t> {
      if (absl::Status status = work(); !status.ok()) return status;
      return size_t{0};
    };
  }

  template <typename Work>
  absl::Status Write(const Work& work) {
    return Try(Counted(work)).status();
  }

  template <typename Work>
  absl::Status WriteWithRoom(const Work& work) {
    return TryWithRoom(Counted(work)).status();
  }

  absl::StatusOr<int64_t> KnownHost(const std::string& host) {
    const absl::StatusOr<std::optional<int64_t>> id = tables_.FindHost(host);
    if (!id.ok()) return id.status();
    if (!id->has_value()) return absl::NotFoundError(absl::StrCat("no host ", host, " was ever seen here"));
    return **id;
  }

  absl::StatusOr<size_t> AppendAll(absl::Span<const HostBatch> batches) {
    size_t fresh = 0;
    for (const HostBatch& batch : batches) {
      const absl::StatusOr<bool> added = AppendOne(batch);
      if (!added.ok()) return added.status();
      fresh += *added ? 1 : 0;
    }
    return fresh;
  }

  absl::StatusOr<bool> AppendOne(const HostBatch& batch) {
    const absl::StatusOr<int64_t> host = tables_.HostId(batch.host);
    if (!host.ok()) return host.status();
    const absl::StatusOr<bool> added = tables_.AddSeen(*host, batch.run, batch.sequence, batch.sequence);
    if (!added.ok() || !*added) return added;
    const absl::StatusOr<int64_t> horizon = tables_.HorizonNs(0);
    if (!horizon.ok()) return horizon.status();
    std::vector<NumberedSample> samples;
    int64_t newest = 0;
    for (const PathSample& sample : batch.paths) {
      if (sample.time_ns <= *horizon) continue;  // its like was deleted already
      const absl::StatusOr<uint64_t> path = tables_.PathId(*host, sample.key);
      if (!path.ok()) return path.status();
      samples.push_back({*path, sample});
      newest = std::max(newest, sample.time_ns);
    }
    absl::Status status = tables_.AddFresh(*host, samples);
    if (status.ok() && batch.work.time_ns > *horizon) status = work_.Add(*host, batch.work);
    if (status.ok()) status = events_.Add(*host, batch);
    if (status.ok())
      status = db_->Use("UPDATE host SET newest_ns = max(newest_ns, ?) WHERE id = ?").Int(newest).Int(*host).Run();
    if (!status.ok()) return status;
    return true;
  }

  // Samples go first, the oldest and finest; when none is left the oldest events. What there was.
  absl::StatusOr<uint64_t> ThinOut() {
    reserve_.Release();
    db_->Exec("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();  // room where the journal was
    uint64_t gone = 0;
    const absl::StatusOr<size_t> done = Try([&]() -> absl::StatusOr<size_t> {
      const absl::StatusOr<uint64_t> bytes = retention_.DropOldestSamples();
      if (!bytes.ok()) return bytes.status();
      gone = *bytes;
      thinned_bytes_ += *bytes;
      if (gone > 0) return size_t{0};
      const absl::StatusOr<uint64_t> events = retention_.DropOldestEvents();
      if (!events.ok()) return events.status();
      gone = *events;
      return size_t{0};
    });
    db_->Exec("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();
    reserve_.Restore();  // as far as the journal needs no room any more: the next thinning needs it
    if (!done.ok()) return done.status();
    return gone;
  }

  absl::StatusOr<size_t> TierFor(const RangeQuery& query) {
    for (size_t tier = 0; tier + 1 < kTiers; ++tier) {
      const absl::StatusOr<int64_t> horizon = tables_.HorizonNs(tier);
      if (!horizon.ok()) return horizon.status();
      const int64_t samples = (query.to_ns - query.from_ns) / absl::ToInt64Nanoseconds(kResolution[tier]);
      if (query.from_ns >= *horizon && samples <= static_cast<int64_t>(query.most_samples)) return tier;
    }
    return kTiers - 1;
  }

  absl::StatusOr<std::vector<PathSample>> Named(int64_t host, absl::StatusOr<std::vector<NumberedSample>> samples,
                                                const std::optional<PathKey>& only) {
    if (!samples.ok()) return samples.status();
    const auto keys = tables_.Paths(host);
    if (!keys.ok()) return keys.status();
    std::vector<PathSample> named;
    for (NumberedSample& s : *samples) {
      const auto key = keys->find(s.path);
      if (key == keys->end() || (only && *only != key->second)) continue;
      s.sample.key = key->second;
      named.push_back(std::move(s.sample));
    }
    std::stable_sort(named.begin(), named.end(),
                     [](const PathSample& a, const PathSample& b) { return a.key < b.key; });
    return named;
  }

  mutable std::mutex mutex_;
  std::unique_ptr<Database> db_;
  Tables tables_;
  WorkTables work_;
  EventTables events_;
  RetentionRules retention_;
  Reserve reserve_;
  uint64_t thinned_bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& file, const SqliteOptions& options) {
  absl::StatusOr<std::unique_ptr<Database>> db = Database::Open(file);
  if (!db.ok()) return db.status();
  if (options.most_pages > 0) {
    absl::Status status = (*db)->Exec(absl::StrCat("PRAGMA max_page_count=", options.most_pages));
    if (!status.ok()) return status;
  }
  if (absl::Status status = Migrate(**db, SchemaSteps()); !status.ok()) return status;
  return std::make_unique<SqliteStore>(*std::move(db), Reserve(file + ".reserve", options.reserve_bytes));
}

}  // namespace cw::fleet
