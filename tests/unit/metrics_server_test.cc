// SPDX-License-Identifier: Apache-2.0
// /metrics as Prometheus and curl ask for it, over real sockets.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli_fake_agent.h"
#include "http_client.h"
#include "metrics_filled.h"
#include "userspace/http/server.h"
#include "userspace/metrics/exporter.h"

namespace cw::metrics {
namespace {

using config::Listen;
using http::Body;
using http::ConnectUnix;
using http::Talk;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

auto Serve(const Listen& listen, std::function<absl::StatusOr<std::string>()> page) {
  return http::Server::Start(listen, {{"/metrics", http::kMetricsType, std::move(page)}});
}

class Server : public ::testing::Test {
 protected:
  Server() {
    char name[] = "/tmp/cw-metrics-XXXXXX";
    folder = mkdtemp(name);
    path = folder + "/m.sock";
  }
  ~Server() override { std::filesystem::remove_all(folder); }

  std::string Ask(const std::string& line, const std::string& headers = "") const {
    return http::Ask(path, line, headers);
  }
  Listen AtPath() const { return {.kind = Listen::Kind::kUnix, .path = path}; }

  std::string folder, path;
};

TEST_F(Server, AnswersGetAndHeadAndNothingElse) {
  auto server = Serve(AtPath(), [] { return absl::StatusOr<std::string>("a_metric 1\n"); });
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string get = Ask("GET /metrics");
  EXPECT_THAT(get, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(get, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_EQ(Body(get), "a_metric 1\n");
  const std::string head = Ask("HEAD /metrics");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(head, HasSubstr("Content-Length: 11"));
  EXPECT_EQ(Body(head), "");
  EXPECT_EQ(Body(Ask("GET /metrics?x=1")), "a_metric 1\n");
  EXPECT_THAT(Ask("GET /"), StartsWith("HTTP/1.1 404"));
  const std::string post = Ask("POST /metrics", "Content-Length: 3\r\n");
  EXPECT_THAT(post, StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(post, HasSubstr("Allow: GET, HEAD"));
  EXPECT_THAT(Ask("DELETE /metrics"), StartsWith("HTTP/1.1 405"));
}

TEST_F(Server, ServesEachPageUnderItsTypeAndSaysWhichThereAre) {
  const auto text = [](const char* body) { return [body] { return absl::StatusOr<std::string>(body); }; };
  auto server = http::Server::Start(
      AtPath(), {{"/metrics", http::kMetricsType, text("a_metric 1\n")}, {"/sd", http::kJsonType, text("[]")}});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(Body(Ask("GET /metrics")), "a_metric 1\n");
  EXPECT_THAT(Ask("GET /sd"), HasSubstr("Content-Type: application/json"));
  EXPECT_EQ(Body(Ask("GET /sd")), "[]");
  for (const char* other : {"GET /", "GET /sd/", "GET /sdx"}) {
    EXPECT_THAT(Ask(other), StartsWith("HTTP/1.1 404"));
    EXPECT_EQ(Body(Ask(other)), "not here; what is: /metrics, /sd\n");
  }
}

TEST_F(Server, TheSocketIsForTheGroupAndGoesWithTheServer) {
  auto server = Serve(AtPath(), [] { return absl::StatusOr<std::string>(""); });
  ASSERT_TRUE(server.ok()) << server.status();
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
  EXPECT_TRUE(absl::IsAlreadyExists(Serve(AtPath(), [] { return absl::StatusOr<std::string>(""); }).status()));
  EXPECT_THAT(Ask("GET /metrics"), StartsWith("HTTP/1.1 200")) << "the first one still has it";
  server->reset();
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 0) << "no leftovers";
  // One that a killed agent left behind.
  std::ofstream(path) << "";
  EXPECT_TRUE(Serve(AtPath(), [] { return absl::StatusOr<std::string>(""); }).ok());
}

// Sixteen of them held up every reading, before.
TEST_F(Server, WhoReadsSlowlyEndsWhereOthersCome) {
  const std::string page(64 << 20, 'x');
  auto server =
      http::Server::Start(AtPath(),
                          {{"/metrics", http::kMetricsType, [&] { return absl::StatusOr<std::string>(page); }},
                           {"/small", http::kMetricsType, [] { return absl::StatusOr<std::string>("a_metric 1\n"); }}},
                          {.each = 2, .all = 2, .longest = absl::Milliseconds(50)});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  int slow[2];
  for (int& fd : slow) {
    fd = ConnectUnix(path);
    ASSERT_EQ(send(fd, request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
    char byte = 0;
    ASSERT_EQ(recv(fd, &byte, 1, 0), 1) << "it is being answered";
  }
  bool answered = false;
  // Sooner than by their silence, which ends a connection in ten seconds.
  for (const absl::Time end = absl::Now() + absl::Seconds(6); !answered && absl::Now() < end;
       absl::SleepFor(absl::Milliseconds(20)))
    answered = Ask("GET /small").find("a_metric 1") != std::string::npos;
  EXPECT_TRUE(answered);
  for (const int fd : slow) close(fd);
}

TEST_F(Server, WhatTheAgentCannotAnswerIs503) {
  auto server =
      Serve(AtPath(), [] { return absl::StatusOr<std::string>(absl::UnavailableError("the agent is stopping")); });
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string answer = Ask("GET /metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503"));
  EXPECT_EQ(Body(answer), "the agent is stopping\n");
}

TEST_F(Server, AddressesThatCannotBeHadSaySo) {
  path = folder + "/none/m.sock";
  const auto page = [] { return absl::StatusOr<std::string>(""); };
  EXPECT_THAT(std::string(Serve(AtPath(), page).status().message()), HasSubstr("see metrics.listen"));
  // 192.0.2.1 (TEST-NET) is nobody's.
  EXPECT_TRUE(
      absl::IsUnavailable(Serve({.kind = Listen::Kind::kTcp, .address = "192.0.2.1", .port = 9477}, page).status()));
}

class OnLoopback : public Server {
 protected:
  OnLoopback() {
    // A port that was free a moment ago; another process may take it meanwhile.
    for (int attempt = 0; attempt < 20 && server == nullptr; ++attempt) {
      const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      socklen_t length = sizeof(at);
      EXPECT_EQ(bind(probe, reinterpret_cast<sockaddr*>(&at), length), 0);
      EXPECT_EQ(getsockname(probe, reinterpret_cast<sockaddr*>(&at), &length), 0);
      close(probe);
      auto made = Serve({.kind = Listen::Kind::kTcp, .address = "127.0.0.1", .port = ntohs(at.sin_port)},
                        [] { return absl::StatusOr<std::string>("a_metric 1\n"); });
      if (made.ok()) server = *std::move(made);
    }
    EXPECT_NE(server, nullptr) << "no free port in twenty tries";
  }
  // From 127.0.0.host.
  int Connect(uint32_t host) const {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in own{.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(0x7f000000 + host)}};
    EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
    return fd;
  }
  std::string Page(uint32_t host) const {
    return Body(Talk(Connect(host), "GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  }

  sockaddr_in at{.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  std::unique_ptr<http::Server> server;
};

TEST_F(OnLoopback, IsServed) { EXPECT_EQ(Page(1), "a_metric 1\n"); }

// Eight addresses with four such connections each kept Prometheus out.
TEST_F(OnLoopback, HalfRequestsKeepNobodyOut) {
  std::vector<int> half;
  for (uint32_t i = 0; i < 40; ++i) {
    half.push_back(Connect(2 + i / 5));
    EXPECT_EQ(send(half.back(), "G", 1, MSG_NOSIGNAL), 1);
  }
  EXPECT_EQ(Page(1), "a_metric 1\n");
  EXPECT_EQ(Page(2), "a_metric 1\n") << "from their own address, too";
  for (const int fd : half) close(fd);
}

TEST_F(Server, RefusesHeadsThatAreTooLongAndOutlivesIdleConnections) {
  std::atomic<int> pages{0};
  auto server = Serve(AtPath(), [&] {
    ++pages;
    return absl::StatusOr<std::string>("a_metric 1\n");
  });
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(Ask("GET /metrics", "X: " + std::string(20'000, 'x') + "\r\n"), Not(StartsWith("HTTP/1.1 200")));
  EXPECT_THAT(Ask("no such thing"), Not(StartsWith("HTTP/1.1 200")));
  EXPECT_EQ(pages.load(), 0);
  std::vector<int> idle;
  for (int i = 0; i < 16; ++i) idle.push_back(ConnectUnix(path));
  for (const int fd : idle) close(fd);
  // Those that are gone make room; when the server notices is its affair.
  std::string answer;
  for (const absl::Time end = absl::Now() + absl::Seconds(20); absl::Now() < end && answer.empty();
       absl::SleepFor(absl::Milliseconds(20)))
    answer = Ask("GET /metrics");
  EXPECT_THAT(answer, HasSubstr("200"));
}

TEST_F(Server, AnExporterTellsWhatTheAgentTells) {
  api::FakeAgent agent;
  std::atomic<uint64_t> downs{2};
  std::filesystem::create_directories(folder + "/sys/class/infiniband/rxe0/ports/1/hw_counters");
  std::ofstream(folder + "/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts") << "41\n";
  ExporterOptions options{.listen = AtPath(),
                          .nics = {"eth0"},
                          .worst_paths = 1,
                          .top_flows = 2,
                          .run_dir = folder,
                          .boot = "boot1",
                          .sys_root = folder + "/sys",
                          .read_link = [&](const std::string&) {
                            return absl::StatusOr<LinkReading>(LinkReading{.up = true, .downs = downs});
                          }};
  auto exporter = Exporter::Start(options, agent, [] {
    PathTotals totals;
    totals.nics.push_back({.nic = "eth0", .up = 3, .dead = 1});
    return absl::StatusOr<PathTotals>(totals);
  });
  const auto events = [](const Reading& read) {
    return read.Value("cwfabric_events_total", {{"type", "path"}, {"severity", "info"}});
  };
  // And events of before the exporter's start.
  Reading read(Body(Ask("GET /metrics")));
  for (const absl::Time end = absl::Now() + absl::Seconds(20); events(read) < 3 && absl::Now() < end;
       absl::SleepFor(absl::Milliseconds(50)))
    read = Reading(Body(Ask("GET /metrics")));
  EXPECT_EQ(events(read), 3);
  EXPECT_EQ(read.Value("cwfabric_paths", {{"state", "dead"}}), 1);
  EXPECT_EQ(read.Value("cwfabric_link_down_total", {{"nic", "eth0"}}), 2);
  EXPECT_EQ(read.Value("cwfabric_link_flaps_1h", {{"nic", "eth0"}}), 0);
  EXPECT_EQ(read.Value("cwfabric_rdma_sent_pkts_total", {{"device", "rxe0"}}), 41);
  EXPECT_EQ(read.Value("cwfabric_clock_sources", {{"reason", "false_ticker"}}), 1);
  EXPECT_EQ(read.Value("cwfabric_worst_path_queueing_seconds", {{"peer", "node2/10.0.1.10"}}), 900e-9);
  // The link flaps; readings within a quarter of a second share a page.
  downs = 3;
  agent.Add("another event");
  for (const absl::Time end = absl::Now() + absl::Seconds(20); absl::Now() < end;
       absl::SleepFor(absl::Milliseconds(50))) {
    read = Reading(Body(Ask("GET /metrics")));
    if (read.Value("cwfabric_link_flaps_1h") > 0 && events(read) > 3) break;
  }
  EXPECT_EQ(read.Value("cwfabric_link_flaps_1h"), 1);
  EXPECT_EQ(events(read), 4);
  EXPECT_GE(read.Value("cwfabric_metrics_scrapes_total"), 1) << "the readings before this one";
  EXPECT_TRUE(std::filesystem::exists(folder + "/link_flaps.json"));
}

TEST_F(Server, AnExporterTakesItsAddressAsSoonAsItIsFree) {
  auto other = Serve(AtPath(), [] { return absl::StatusOr<std::string>("another's\n"); });
  ASSERT_TRUE(other.ok()) << other.status();
  api::FakeAgent agent;
  const auto exporter = Exporter::Start({.listen = AtPath(), .sys_root = folder}, agent,
                                        [] { return absl::StatusOr<PathTotals>(PathTotals()); });
  EXPECT_EQ(Body(Ask("GET /metrics")), "another's\n");
  other->reset();
  std::string answer;
  for (const absl::Time end = absl::Now() + absl::Seconds(20); absl::Now() < end && answer.empty();
       absl::SleepFor(absl::Milliseconds(50)))
    answer = Ask("GET /metrics");
  EXPECT_THAT(answer, HasSubstr("cwfabric_build_info"));
}

}  // namespace
}  // namespace cw::metrics
