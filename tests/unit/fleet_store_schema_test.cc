// SPDX-License-Identifier: Apache-2.0
// The SQLite store's tables: how old ones become today's, and that questions find their index.
#include "userspace/fleet/store/sqlite/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/unit/fleet_store_fixture.h"
#include "userspace/fleet/store/sqlite/events.h"
#include "userspace/fleet/store/sqlite/sqlite_store.h"

namespace cw::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

TEST_F(SqliteStore, OldSchemasMigrateAndNewerOnesAreRefused) {
  auto db = Database::Open(folder + "/x.db");
  ASSERT_TRUE(db.ok());
  const char* const first[] = {"CREATE TABLE t(a); INSERT INTO t VALUES (5);"};
  const char* const second[] = {first[0], "ALTER TABLE t ADD COLUMN b DEFAULT 6;"};
  ASSERT_TRUE(Migrate(**db, first).ok());
  ASSERT_TRUE(Migrate(**db, second).ok());
  ASSERT_TRUE(Migrate(**db, second).ok());  // nothing to do
  EXPECT_EQ(*(*db)->Number("SELECT a * 10 + b FROM t"), 56);
  const absl::Status refused = Migrate(**db, first);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  const char* const broken[] = {first[0], second[1], "CREATE TABLE u(a); NONSENSE;"};
  EXPECT_FALSE(Migrate(**db, broken).ok());
  EXPECT_EQ(*(*db)->Number("SELECT count(*) FROM sqlite_master WHERE name = 'u'"), 0);  // all of a step or nothing
}

// As version 2 left it.
TEST_F(SqliteStore, AStoreOfVersion2KeepsItsHostsAndTakesOrders) {
  {
    auto db = Database::Open(folder + "/fleet.db");
    ASSERT_TRUE(db.ok());
    ASSERT_TRUE(Migrate(**db, SchemaSteps().first(2)).ok());
    ASSERT_TRUE((*db)->Exec("INSERT INTO host(name, newest_ns) VALUES ('h1', 9)").ok());
  }
  auto store = OpenSqliteStore(folder + "/fleet.db");
  ASSERT_TRUE(store.ok()) << store.status();
  const auto hosts = (*store)->Hosts();
  ASSERT_THAT(*hosts, SizeIs(1));
  EXPECT_EQ((*hosts)[0].newest_ns, 9);
  EXPECT_EQ((*hosts)[0].facts, (HostFacts{.host = "h1"}));
  EXPECT_TRUE((*store)->PutOrder({"drain", 1, "x"}).ok());
}

// As version 5 left it: the sum of what events take is made once.
TEST_F(SqliteStore, AStoreOfVersion5KnowsWhatItsEventsTake) {
  auto db = Database::Open(folder + "/fleet.db");
  ASSERT_TRUE(db.ok());
  ASSERT_TRUE(Migrate(**db, SchemaSteps().first(5)).ok());
  ASSERT_TRUE((*db)
                  ->Exec("INSERT INTO host(id, name) VALUES (1, 'a'); INSERT INTO event(host, run, seq, time_ns, "
                         "bound_ns, type, severity, payload) VALUES (1, 7, 1, 5, 5, 'path', 3, 'p1')")
                  .ok());
  auto store = OpenSqliteStore(folder + "/fleet.db");
  ASSERT_TRUE(store.ok()) << store.status();
  const auto bytes = [&] { return *(*db)->Number("SELECT bytes FROM tier WHERE tier = 3"); };
  EXPECT_EQ(bytes(), 66);
  ASSERT_TRUE((*store)->Append({EventBatch(2, {Event(2, kStart)})}).ok());
  EXPECT_EQ(bytes(), 132);
  EXPECT_THAT((*store)->Events({.host = "a", .newest_first = true})->events,
              ElementsAre(Event(2, kStart), Event(1, 5)));
}

// As version 6 left it: nobody knows what is in use, so all of it is, and counts.
TEST_F(SqliteStore, AStoreOfVersion6KeepsItsNamesAndCountsThem) {
  auto db = Database::Open(folder + "/fleet.db");
  ASSERT_TRUE(db.ok());
  ASSERT_TRUE(Migrate(**db, SchemaSteps().first(6)).ok());
  ASSERT_TRUE((*db)
                  ->Exec("INSERT INTO host(id, name) VALUES (1, 'a'), (2, 'b'); INSERT INTO hops VALUES (1, 5, x''), "
                         "(1, 6, x''); INSERT INTO path(host, local, remote, port, reverse) VALUES (1, x'01', x'02', "
                         "5, 0), (2, x'01', x'02', 5, 0), (1, x'01', x'02', 6, 0)")
                  .ok());
  auto store = OpenSqliteStore(folder + "/fleet.db", {.most_paths = 3});
  ASSERT_TRUE(store.ok()) << store.status();
  const auto counts = [&] { return *(*db)->Number("SELECT sum(paths * id) * 10 + sum(hop_lists * id) FROM host"); };
  EXPECT_EQ(counts(), 42);
  ASSERT_TRUE((*store)->Delete({}).ok());
  EXPECT_EQ(counts(), 42);
  HostBatch batch = Batch(1, kStart, 3);
  ASSERT_TRUE((*store)->Append({batch}).ok());
  EXPECT_EQ(counts(), 52) << "one had room";
  EXPECT_EQ((*store)->host_losses()["a"].samples, 2u);
}

// SQLite says how it would answer.
std::string PlanOf(Database& db, const EventQuery& query) {
  sqlite3_stmt* plan = nullptr;
  const std::string sql = absl::StrCat("EXPLAIN QUERY PLAN ", EventSql(query));
  EXPECT_EQ(sqlite3_prepare_v2(db.raw(), sql.c_str(), -1, &plan, nullptr), SQLITE_OK) << sqlite3_errmsg(db.raw());
  std::string text;
  while (sqlite3_step(plan) == SQLITE_ROW)
    absl::StrAppend(&text, reinterpret_cast<const char*>(sqlite3_column_text(plan, 3)), "\n");
  sqlite3_finalize(plan);
  return text;
}

TEST_F(SqliteStore, QuestionsOnEventsAreAnsweredByTheirIndex) {
  auto db = Database::Open(folder + "/fleet.db");
  ASSERT_TRUE(db.ok());
  ASSERT_TRUE(Migrate(**db, SchemaSteps()).ok());
  struct Case {
    EventQuery query;
    std::string by;
    bool sorts = false;  // the numbers of what goes on, never rows
  };
  const std::vector<Case> cases = {
      {{.newest_first = true}, "SEARCH e USING INDEX event_by_time (time_ns>? AND time_ns<?)"},
      {{.host = "a", .newest_first = true}, "SEARCH e USING INDEX event_by_host (host=? AND time_ns>? AND time_ns<?)"},
      {{.type = "t", .newest_first = true}, "SEARCH e USING INDEX event_by_type (type=? AND time_ns>? AND time_ns<?)"},
      {{.host = "a", .type = "t", .newest_first = true}, "SEARCH e USING INDEX event_by_host (host=? AND"},
      {{}, "SEARCH e USING INTEGER PRIMARY KEY (rowid>?)"},
      {{.from_ns = 5}, "SEARCH event USING COVERING INDEX event_by_time (time_ns>? AND time_ns<?)", true},
      {{.host = "a"}, "SEARCH event USING INDEX event_by_host (host=? AND time_ns>? AND time_ns<?)", true},
      {{.type = "t"}, "SEARCH event USING COVERING INDEX event_by_type (type=? AND time_ns>? AND time_ns<?)", true},
  };
  for (const Case& c : cases) {
    const std::string plan = PlanOf(**db, c.query);
    EXPECT_THAT(plan, testing::HasSubstr(c.by));
    EXPECT_THAT(plan, testing::HasSubstr("SEARCH h USING INTEGER PRIMARY KEY"));
    EXPECT_EQ(absl::StrContains(plan, "TEMP B-TREE"), c.sorts) << plan;
  }
}

}  // namespace
}  // namespace cw::fleet
