// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/store/sqlite/sqlite_store.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "maps/unique_fd.h"
#include "userspace/fleet/store/sqlite/events.h"
#include "userspace/fleet/store/sqlite/history.h"
#include "userspace/fleet/store/sqlite/names.h"
#include "userspace/fleet/store/sqlite/ready.h"
#include "userspace/fleet/store/sqlite/reserve.h"
#include "userspace/fleet/store/sqlite/retention.h"
#include "userspace/fleet/store/sqlite/schema.h"
#include "userspace/fleet/store/sqlite/tables.h"
#include "userspace/fleet/store/sqlite/work.h"
#include "userspace/model/regular_file.h"

namespace cw::fleet {
namespace {

constexpr int64_t kSecondInNs = 1'000'000'000;
constexpr int kBlocksAtOnce = 200;  // a tenth of a second
constexpr int kWorkAtOnce = 20;     // each has three tiers
constexpr int kThinnings = 40;      // a sixteenth of a tier each time: all of it, and then the next one

// Two services on one file would each believe what it has in memory. The kernel lets go when the process ends, however.
absl::StatusOr<maps::UniqueFd> LockStore(const std::string& file) {
  if (file == ":memory:") return maps::UniqueFd();
  const std::string name = file + ".lock";
  maps::UniqueFd lock(open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640));
  if (!lock.ok())
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", name, ": the store's folder must be writable"));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return absl::ErrnoToStatus(errno, absl::StrCat("cannot lock ", name));
  return absl::FailedPreconditionError(
      absl::StrCat("another cwfleetd has the store ", file, ": stop it, or give this one a store of its own"));
}

// Threads: mutex_ is held while a call is served, however long that takes. What Ready knows is asked for without it;
// whoever writes to Ready holds it.
class SqliteStore final : public Store {
 public:
  SqliteStore(maps::UniqueFd lock, std::unique_ptr<Database> db, Reserve reserve, const SqliteOptions& options)
      : lock_(std::move(lock)),
        db_(std::move(db)),
        tables_(*db_),
        names_(*db_, {options.most_paths, options.most_hop_lists}),
        work_(*db_),
        events_(*db_, tables_, options.event_bytes_a_day),
        history_(tables_, names_, work_, events_),
        retention_(*db_, tables_),
        reserve_(std::move(reserve)),
        now_ns_(options.now_ns ? options.now_ns : absl::GetCurrentTimeNanos) {}

  absl::StatusOr<size_t> Append(absl::Span<const HostBatch> batches) override {
    const std::lock_guard lock(mutex_);
    return TryWithRoom([&] { return AppendAll(batches); });
  }

  absl::StatusOr<uint64_t> Through(const std::string& host, uint64_t run) override {
    if (const std::optional<uint64_t> known = ready_.Through(host, run)) return *known;
    const std::lock_guard lock(mutex_);
    const absl::StatusOr<std::optional<int64_t>> id = tables_.FindHost(host);
    if (!id.ok()) return id.status();
    absl::StatusOr<uint64_t> through = uint64_t{0};
    if (id->has_value()) through = tables_.Through(**id, run);
    if (through.ok()) ready_.PutThrough(host, run, *through);
    return through;
  }

  absl::Status Skip(const std::string& host, uint64_t run, uint64_t first, uint64_t last) override {
    if (first == 0 || last < first) return absl::InvalidArgumentError("sequences to skip: from 1, first before last");
    const std::lock_guard lock(mutex_);
    return Try([&]() -> absl::StatusOr<size_t> {
             const absl::StatusOr<int64_t> id = tables_.HostId(host);
             if (!id.ok()) return id.status();
             const absl::StatusOr<bool> added = tables_.AddSeen(*id, run, first, last, now_ns_() / kSecondInNs);
             if (!added.ok()) return added.status();
             if (absl::Status status = NoteThrough(host, *id, run); !status.ok()) return status;
             return size_t{1};
           })
        .status();
  }

  absl::StatusOr<std::vector<HostSeen>> Hosts() override {
    const std::lock_guard lock(mutex_);
    return tables_.Hosts();
  }

  absl::Status PutHosts(absl::Span<const HostFacts> facts) override {
    const std::lock_guard lock(mutex_);
    return Write([&]() -> absl::Status {
      for (const HostFacts& of : facts) {
        if (absl::Status status = tables_.PutHost(of); !status.ok()) return status;
      }
      return absl::OkStatus();
    });
  }

  absl::StatusOr<HostView> LatestAt(const std::string& host, int64_t time_ns, absl::Duration reach) override {
    const std::lock_guard lock(mutex_);
    const absl::StatusOr<int64_t> id = KnownHost(host);
    if (!id.ok()) return id.status();
    return history_.LatestAt(host, *id, time_ns, reach);
  }

  absl::StatusOr<std::vector<std::string>> TellersAt(int64_t time_ns) override {
    const std::lock_guard lock(mutex_);
    return tables_.TellersAt(time_ns);
  }

  absl::StatusOr<RangeReply> Range(const RangeQuery& query) override {
    if (query.to_ns <= query.from_ns)
      return absl::InvalidArgumentError("an empty range: its end lies behind its start");
    const std::lock_guard lock(mutex_);
    const absl::StatusOr<int64_t> id = KnownHost(query.host);
    if (!id.ok()) return id.status();
    return history_.Range(*id, query);
  }

  absl::StatusOr<WorkReply> Work(const WorkQuery& query) override {
    if (query.to_ns <= query.from_ns)
      return absl::InvalidArgumentError("an empty range: its end lies behind its start");
    const std::lock_guard lock(mutex_);
    const absl::StatusOr<int64_t> id = KnownHost(query.host);
    if (!id.ok()) return id.status();
    return history_.Work(*id, query);
  }

  absl::StatusOr<EventPage> Events(const EventQuery& query) override {
    const std::lock_guard lock(mutex_);
    return events_.Page(query);
  }

  absl::StatusOr<HopList> Hops(const std::string& host, uint64_t id) override {
    const std::lock_guard lock(mutex_);
    const absl::StatusOr<int64_t> known = KnownHost(host);
    if (!known.ok()) return known.status();
    absl::StatusOr<std::optional<HopList>> list = names_.Hops(*known, id);
    if (!list.ok()) return list.status();
    if (!list->has_value())
      return absl::NotFoundError(absl::StrCat(host, " never told the hop list ", absl::Hex(id), ", or it went since"));
    return **std::move(list);
  }

  absl::StatusOr<std::vector<HopList>> AllHops(const std::string& host) override {
    const std::lock_guard lock(mutex_);
    const absl::StatusOr<int64_t> id = KnownHost(host);
    if (!id.ok()) return id.status();
    return names_.AllHops(*id);
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
    return Write([&] {
      absl::Status status = retention_.Delete(plan);
      if (status.ok()) status = names_.DropUnused(now_ns_());
      return status;
    });
  }

  uint64_t thinned_bytes() const override { return thinned_bytes_; }
  uint64_t thinned_events() const override { return thinned_events_; }
  WorkLosses work_losses() const override { return ready_.work_losses(); }
  std::map<std::string, HostLosses> host_losses() const override { return ready_.host_losses(); }

 private:
  template <typename Work>
  absl::StatusOr<size_t> Try(const Work& work) {
    absl::StatusOr<size_t> result = size_t{0};
    committed_ = {};
    const WorkLosses losses = work_.losses();
    {
      Transaction transaction(*db_);
      absl::Status status = transaction.Begin();
      if (status.ok()) {
        result = work();
        status = result.status();
      }
      if (status.ok()) status = transaction.Commit();
      if (status.ok()) {
        ready_.Put(committed_, work_.losses());
        return result;
      }
      result = status;
    }
    names_.Forget();
    work_.SetLosses(losses);
    return result;
  }

  // Where the disk is full, detail goes until there is room: this must not fail for it.
  template <typename Work>
  absl::StatusOr<size_t> TryWithRoom(const Work& work) {
    for (int thinning = 0;; ++thinning) {
      absl::StatusOr<size_t> result = Try(work);
      if (!absl::IsResourceExhausted(result.status()) || thinning == kThinnings) return result;
      if (thinning == 0) {
        // What the journal takes may be all that is missing.
        db_->Exec("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();
        result = Try(work);
        if (!absl::IsResourceExhausted(result.status())) return result;
      }
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
    const int64_t now_ns = now_ns_();
    size_t fresh = 0;
    for (const HostBatch& batch : batches) {
      const absl::StatusOr<bool> added = AppendOne(batch, now_ns);
      if (!added.ok()) return added.status();
      fresh += *added ? 1 : 0;
    }
    return fresh;
  }

  absl::StatusOr<bool> AppendOne(const HostBatch& batch, int64_t now_ns) {
    const absl::StatusOr<int64_t> host = tables_.HostId(batch.host);
    if (!host.ok()) return host.status();
    const absl::StatusOr<bool> added =
        tables_.AddSeen(*host, batch.run, batch.sequence, batch.sequence, now_ns / kSecondInNs);
    if (!added.ok()) return added;
    absl::Status status = NoteThrough(batch.host, *host, batch.run);
    if (!status.ok()) return status;
    if (!*added) return false;
    HostLosses lost;
    status = AppendParts(batch, *host, now_ns, lost);
    if (!status.ok()) return status;
    if (lost != HostLosses()) committed_.losses[batch.host] += lost;
    return true;
  }

  absl::Status AppendParts(const HostBatch& batch, int64_t host, int64_t now_ns, HostLosses& lost) {
    const absl::StatusOr<int64_t> horizon = tables_.HorizonNs(0);
    if (!horizon.ok()) return horizon.status();
    for (const HopList& list : batch.hop_lists) {
      const absl::StatusOr<bool> kept = names_.AddHops(host, list, now_ns);
      if (!kept.ok()) return kept.status();
      if (!*kept) ++lost.hop_lists;
    }
    absl::Status status = AppendPaths(batch, host, *horizon, lost);
    if (status.ok() && batch.work.time_ns > *horizon) status = AppendWork(batch.work, host);
    if (!status.ok()) return status;
    const absl::StatusOr<uint64_t> left_out = events_.Add(host, batch, now_ns);
    if (left_out.ok()) lost.events += *left_out;
    return left_out.status();
  }

  absl::Status AppendPaths(const HostBatch& batch, int64_t host, int64_t horizon_ns, HostLosses& lost) {
    std::vector<NumberedSample> samples;
    int64_t newest = 0;
    for (const PathSample& sample : batch.paths) {
      if (sample.time_ns <= horizon_ns) continue;  // its like was deleted already
      const absl::StatusOr<std::optional<uint64_t>> path = names_.PathId(host, sample.key, sample.time_ns);
      if (!path.ok()) return path.status();
      if (!path->has_value()) {
        ++lost.samples;
        continue;
      }
      if (absl::Status status = names_.UseHops(host, sample.hops, sample.time_ns); !status.ok()) return status;
      samples.push_back({**path, sample});
      newest = std::max(newest, sample.time_ns);
    }
    if (absl::Status status = tables_.AddFresh(host, samples); !status.ok()) return status;
    return db_->Use("UPDATE host SET newest_ns = max(newest_ns, ?) WHERE id = ?").Int(newest).Int(host).Run();
  }

  absl::Status AppendWork(const WorkSample& work, int64_t host) {
    for (const FlowSample& flow : work.flows) {
      if (absl::Status status = names_.UseHops(host, flow.hops, work.time_ns); !status.ok()) return status;
    }
    return work_.Add(host, work);
  }

  // Known to all when this is committed.
  absl::Status NoteThrough(const std::string& name, int64_t host, uint64_t run) {
    const absl::StatusOr<uint64_t> through = tables_.Through(host, run);
    if (through.ok()) committed_.through[{name, run}] = *through;
    return through.status();
  }

  // Samples go first, the oldest and finest; when none is left the oldest events. What there was.
  absl::StatusOr<uint64_t> ThinOut() {
    reserve_.Release();
    db_->Exec("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();  // room where the journal was
    uint64_t samples = 0, events = 0;
    const absl::StatusOr<size_t> done = Try([&]() -> absl::StatusOr<size_t> {
      const absl::StatusOr<uint64_t> bytes = retention_.DropOldestSamples();
      if (!bytes.ok()) return bytes.status();
      samples = *bytes;
      if (samples > 0) return size_t{0};
      const absl::StatusOr<uint64_t> dropped = retention_.DropOldestEvents();
      if (!dropped.ok()) return dropped.status();
      events = *dropped;
      return size_t{0};
    });
    db_->Exec("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();
    reserve_.Restore();  // as far as the journal needs no room any more: the next thinning needs it
    if (!done.ok()) return done.status();
    thinned_bytes_ += samples;
    thinned_events_ += events;
    return samples + events;
  }

  const maps::UniqueFd lock_;  // goes last
  std::mutex mutex_;
  std::unique_ptr<Database> db_;
  Tables tables_;
  NameTables names_;
  WorkTables work_;
  EventTables events_;
  History history_;
  RetentionRules retention_;
  Reserve reserve_;
  const std::function<int64_t()> now_ns_;
  Committed committed_;  // if the transaction under way is
  Ready ready_;
  std::atomic<uint64_t> thinned_bytes_{0}, thinned_events_{0};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& file, const SqliteOptions& options) {
  if (absl::Status place = CheckPlaceOfFile(file); !place.ok()) return place;
  absl::StatusOr<maps::UniqueFd> lock = LockStore(file);
  if (!lock.ok()) return lock.status();
  absl::StatusOr<std::unique_ptr<Database>> db = Database::Open(file);
  if (!db.ok()) return db.status();
  if (options.most_pages > 0) {
    absl::Status status = (*db)->Exec(absl::StrCat("PRAGMA max_page_count=", options.most_pages));
    if (!status.ok()) return status;
  }
  if (absl::Status status = Migrate(**db, SchemaSteps()); !status.ok()) return status;
  return std::make_unique<SqliteStore>(*std::move(lock), *std::move(db),
                                       Reserve(file + ".reserve", options.reserve_bytes), options);
}

}  // namespace cw::fleet
