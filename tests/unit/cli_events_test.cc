// SPDX-License-Identifier: Apache-2.0
//
// cwctl events and what repeats: filters, following, --watch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "cli_cwctl_rig.h"
#include "tests/lab/eventually.h"
#include "userspace/api/client.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(Cwctl, EventsAreFilteredByTypesPeersAndTimes) {
  const auto lines = [&](const std::vector<std::string>& typed) {
    const RunResult text = Run(typed);
    EXPECT_EQ(text.exit_code, 0) << text.err;
    return std::count(text.out.begin(), text.out.end(), '\n');
  };
  EXPECT_EQ(lines({"events", "--json", "--type", "move,path"}), 3);
  EXPECT_EQ(lines({"events", "--json", "--type", "move", "--type", "path", "--last", "2"}), 2);
  EXPECT_EQ(lines({"events", "--json", "--type", "move,job"}), 0);
  EXPECT_EQ(lines({"events", "--json", "--since", "2023-11-14T22:13:20Z", "--until", "2023-11-14T22:13:21Z"}), 3);
  EXPECT_EQ(lines({"events", "--json", "--since", "10m"}), 0);
  EXPECT_EQ(lines({"events", "--json", "--until", "2023-11-14"}), 0);
  EXPECT_THAT(Run({"events", "--type", "move", "--peer", "node2"}).out,
              HasSubstr("no events of type move about node2\n"));
  EXPECT_EQ(Run({"events", "--since", "yesterday"}).exit_code, 2);
}

TEST_F(Cwctl, EventsShowTheLastOnesWithEvidence) {
  const RunResult text = Run({"events", "--last", "2"});
  EXPECT_THAT(text.out, Not(HasSubstr("path 2 to node2 died")));
  EXPECT_THAT(text.out, HasSubstr("2023-11-14T22:13:20.123456Z  path    path 2 answers again  [misses 3]\n"));
  const RunResult lines = Run({"events", "--json"});
  EXPECT_EQ(std::count(lines.out.begin(), lines.out.end(), '\n'), 3);
  EXPECT_EQ(json::parse(lines.out.substr(0, lines.out.find('\n')))["seq"], 1);
}

TEST_F(Cwctl, FollowShowsWhatComesAndEndsWithTheAgent) {
  RunResult text;
  std::thread follower([&] { text = Run({"events", "--follow", "--last", "0", "--count", "6"}); });
  agent_.Add("one more");
  agent_.Add("and another");
  agent_.Add("and a third");
  follower.join();
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(std::count(text.out.begin(), text.out.end(), '\n'), 6) << text.out;

  const int before = agent_.asked_for_events;
  std::thread until_the_end([&] { text = Run({"events", "--follow"}); });
  EXPECT_TRUE(lab::Eventually([&] { return agent_.asked_for_events > before + 1; })) << "what was, then what comes";
  server_.reset();
  until_the_end.join();
  EXPECT_EQ(text.exit_code, 3) << text.err;
  EXPECT_THAT(text.err, HasSubstr("agent"));
}

TEST_F(Cwctl, WatchRepeats) {
  const RunResult text = Run({"qps", "--watch=100ms", "--count", "3", "--json"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(std::count(text.out.begin(), text.out.end(), '\n'), 3);
  EXPECT_TRUE(json::parse(text.out.substr(0, text.out.find('\n')))["flows"].is_array());
  const RunResult status = Run({"status", "--watch", "--count", "1"});
  EXPECT_EQ(status.exit_code, 0);
  EXPECT_THAT(status.out, ContainsRegex("^20[0-9-]+T[0-9:.]+Z  node1, instance default\n\nverdict "));
}

TEST_F(Cwctl, OneFollowerTooManyIsRefused) {
  std::atomic<int> started{0}, refused{0};
  std::atomic<bool> enough{false};
  std::vector<std::thread> followers;
  for (int i = 0; i < 9; ++i) {
    followers.emplace_back([&] {
      api::Client client(socket_);
      v1::EventsRequest request;
      request.set_follow(true);
      bool first = true;
      const absl::Status status = client.Events(request, [&](const v1::Event&) {
        if (first) ++started;
        first = false;
        return !enough;
      });
      if (status.code() == absl::StatusCode::kResourceExhausted) ++refused;
    });
  }
  while (started + refused < 9) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(refused, 1);
  enough = true;
  agent_.Add("wakes them");
  for (std::thread& follower : followers) follower.join();
}

}  // namespace
}  // namespace cw::cli
