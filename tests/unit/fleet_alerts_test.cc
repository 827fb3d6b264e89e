// SPDX-License-Identifier: Apache-2.0
// What receivers of alerts are told: as text, in time, by the real Alertmanager, and by one that is dead.
#include "userspace/fleet/alerts/alerts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "tests/unit/http_receiver.h"
#include "userspace/fleet/alerts/http_post.h"
#include "userspace/fleet/alerts/outbox.h"
#include "userspace/lab/fabric_process.h"

namespace cw::fleet {
namespace {

using lab::Eventually;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Finding DeadLink(uint64_t id = 7) {
  return {.id = id,
          .cause = Cause::kLinkDead,
          .scope = "link 10.0.0.1>10.1.0.2",
          .links = {{*Addr::Parse("10.0.0.1"), *Addr::Parse("10.1.0.2")}},
          .start_ns = absl::ToUnixNanos(absl::Now() - absl::Seconds(3)),
          .evidence = {"9 of 9 paths over it are dead"},
          .hosts = {"h1", "h2"},
          .advice = "Drain the link."};
}

Finding Over(Finding f) {
  f.end_ns = absl::ToUnixNanos(absl::Now());
  return f;
}

TEST(AlertText, HasLabelsThatAreTheSameFromEveryInstanceAndSaysWhatToDo) {
  const AlertWords words{.runbook_url = "http://wiki/fabric"};
  const json alert = json::parse(AlertmanagerBody({DeadLink()}, words, absl::FromUnixSeconds(2'000'000'000)))[0];
  EXPECT_EQ(alert["labels"], (json{{"alertname", "CwfabricFinding"},
                                   {"cause", "link dead"},
                                   {"scope", "link 10.0.0.1>10.1.0.2"},
                                   {"severity", "warning"}}));
  EXPECT_EQ(alert["annotations"]["summary"], "link 10.0.0.1>10.1.0.2 is dead");
  EXPECT_EQ(alert["annotations"]["evidence"], "9 of 9 paths over it are dead");
  EXPECT_EQ(alert["annotations"]["what_to_do"], "Drain the link.");
  EXPECT_EQ(alert["annotations"]["hosts"], "h1, h2");
  EXPECT_EQ(alert["annotations"]["finding"], "0000000000000007");
  EXPECT_EQ(alert["annotations"]["runbook_url"], "http://wiki/fabric#link-dead");
  EXPECT_EQ(alert["endsAt"], "2033-05-18T03:33:20+00:00");
  Finding bad = DeadLink();
  bad.scope = "host \xff";
  EXPECT_THAT(WebhookBody(bad, words), HasSubstr("host \xEF\xBF\xBD")) << "bytes that are no text keep nothing back";
  EXPECT_EQ(json::parse(WebhookBody(Over(DeadLink()), words))["status"], "over");
}

TEST(AlertmanagerOutbox, SendsWhatGoesOnAgainAndAnEndOnce) {
  const absl::Time t = absl::FromUnixSeconds(1000);
  AlertmanagerOutbox box({});
  box.Take(DeadLink(), false, t);
  ASSERT_TRUE(box.Next(t));
  box.Done(false, t);
  ASSERT_TRUE(box.Next(t)) << "it was not taken";
  box.Done(true, t);
  EXPECT_FALSE(box.Next(t + absl::Seconds(59)));
  EXPECT_EQ(box.Due(), t + absl::Minutes(1));
  ASSERT_TRUE(box.Next(box.Due()));
  box.Take(Over(DeadLink()), false, box.Due());  // while the request was under way
  box.Done(true, t + absl::Minutes(1));
  const auto end = box.Next(t + absl::Minutes(1));
  ASSERT_TRUE(end) << "the end is not lost";
  EXPECT_GT(json::parse(end->body)[0]["endsAt"], "2000") << "its own, not that of what goes on";
  box.Done(true, t);
  EXPECT_EQ(box.Due(), absl::InfiniteFuture());
}

TEST(DeliveryLog, SaysWhatWasToldAndHowItWent) {
  DeliveryLog log;
  const absl::Time t = absl::FromUnixSeconds(1'800'000'000);
  const auto first = [&] { return log.All().at(0); };
  log.Take(DeadLink(1), false, t);
  EXPECT_EQ(first().result, "waiting");
  log.Answered({{1, true}}, absl::UnavailableError("refused the connection"), t);
  EXPECT_EQ(first().result, "not yet: refused the connection");
  EXPECT_EQ(first().delivered, absl::InfinitePast());
  log.Take(Over(DeadLink(1)), false, t + absl::Seconds(1));
  log.Answered({{1, true}}, absl::OkStatus(), t + absl::Seconds(2));
  EXPECT_EQ(first().result, "waiting") << "its end is not told yet";
  log.Answered({{1, false}}, absl::OkStatus(), t + absl::Seconds(3));
  EXPECT_EQ(first().result, "delivered");
  EXPECT_FALSE(first().open);
  EXPECT_EQ(first().since, t + absl::Seconds(1));
  EXPECT_EQ(first().delivered, t + absl::Seconds(3));
  log.Take(DeadLink(2), true, t + absl::Seconds(4));
  EXPECT_EQ(first().finding, 2u) << "the newest first";
  EXPECT_EQ(first().result, "told before a restart");
  log.Answered({{2, true}}, absl::InvalidArgumentError("400"), t);
  EXPECT_EQ(first().result, "refused: 400");
  for (uint64_t id = 3; id < 2000; ++id) log.Take(DeadLink(id), false, t + absl::Seconds(id));
  EXPECT_THAT(log.All(), SizeIs(DeliveryLog::kMost));
  EXPECT_EQ(first().finding, 1999u);
}

TEST(AlertOutboxes, AreBounded) {
  AlertmanagerOutbox states({});
  WebhookOutbox changes({});
  for (size_t i = 0; i < AlertmanagerOutbox::kMost + 5; ++i) {
    Finding f = DeadLink(i + 1);
    f.scope = absl::StrCat("link ", i);
    states.Take(f, false, absl::UnixEpoch());
    changes.Take(f, false, absl::UnixEpoch());
  }
  EXPECT_EQ(states.no_room(), 5u);
  EXPECT_EQ(states.Next(absl::Now())->alerts.size(), AlertmanagerOutbox::kMostAtOnce);
  EXPECT_EQ(changes.waiting(absl::Now()), WebhookOutbox::kMost);
  EXPECT_EQ(changes.no_room(), AlertmanagerOutbox::kMost + 5 - WebhookOutbox::kMost);
}

TEST(AlertOutboxes, AFindingThatGoesOnUnderAnotherCauseIsAnotherAlert) {
  AlertmanagerOutbox states({});
  WebhookOutbox changes({});
  Finding flapping = DeadLink();
  flapping.cause = Cause::kFlapping;
  for (Outbox* box : {static_cast<Outbox*>(&states), static_cast<Outbox*>(&changes)}) {
    box->Take(DeadLink(), false, absl::Now());
    ASSERT_TRUE(box->Next(absl::Now()));
    box->Done(true, absl::Now());
    box->Take(flapping, false, absl::Now());
  }
  const json alerts = json::parse(states.Next(absl::Now())->body);
  ASSERT_THAT(alerts, SizeIs(2));
  for (const json& alert : alerts)
    EXPECT_EQ(alert["labels"]["cause"] == "link dead",
              alert["endsAt"] < absl::FormatTime(absl::Now() + absl::Minutes(1), absl::UTCTimeZone()))
        << "the old one ends: " << alerts.dump(1);
  EXPECT_EQ(json::parse(changes.Next(absl::Now())->body)["finding"]["cause"], "link flapping");
}

TEST(WebhookOutbox, NewsAndARestartAreNoChange) {
  WebhookOutbox box({});
  box.Take(DeadLink(), /*resumed=*/true, absl::Now());
  box.Take(DeadLink(), false, absl::Now());
  EXPECT_FALSE(box.Next(absl::Now()));
  box.Take(Over(DeadLink()), false, absl::Now());
  EXPECT_TRUE(box.Next(absl::Now()));
}

std::vector<std::string> Statuses(const HttpReceiver& receiver) {
  std::vector<std::string> all;
  for (const std::string& body : receiver.bodies()) all.push_back(json::parse(body)["status"]);
  return all;
}

TEST(Alerts, AWebhookGetsBeginningAndEndInOrderThoughItWasDown) {
  const int port = FreePort();
  Alerts alerts({.webhooks = {absl::StrCat("http://127.0.0.1:", port, "/hook")}}, {});
  alerts.Take({DeadLink()});
  alerts.Take({Over(DeadLink())});
  ASSERT_TRUE(Eventually([&] { return alerts.counts()[0].failed > 0; }));
  EXPECT_EQ(alerts.counts()[0].waiting, 2u);
  HttpReceiver receiver(port);
  EXPECT_TRUE(Eventually([&] { return receiver.bodies().size() == 2; }));
  EXPECT_THAT(Statuses(receiver), ElementsAre("open", "over"));
  const json finding = json::parse(receiver.bodies()[0])["finding"];
  EXPECT_EQ(finding["cause"], "link dead");
  EXPECT_EQ(finding["links"][0]["to"], "10.1.0.2");
  EXPECT_EQ(alerts.counts()[0].sent, 2u);
}

TEST(Alerts, AReceiverThatNeverAnswersHoldsUpNobodyAndOneThatRefusesIsNotAskedAgain) {
  HttpReceiver silent, well, refusing;
  silent.Answer(0);
  refusing.Answer(400);
  absl::Time begun = absl::Now();
  {
    Alerts alerts({.webhooks = {silent.url(), well.url(), refusing.url()}}, {});
    alerts.Take({DeadLink(1)});
    alerts.Take({DeadLink(2)});
    EXPECT_LT(absl::Now() - begun, absl::Seconds(1));
    EXPECT_TRUE(Eventually([&] { return well.bodies().size() == 2 && alerts.counts()[2].refused == 2; }));
    EXPECT_EQ(refusing.requests(), 2);
    begun = absl::Now();
  }
  EXPECT_LT(absl::Now() - begun, absl::Seconds(3)) << "its end waits for no receiver";
}

// A token that is renewed, a path that is served again in a moment.
TEST(Alerts, AReceiverThatDeniesForAMomentHearsOfTheOpeningAllTheSame) {
  for (const int code : {401, 403, 404}) {
    HttpReceiver receiver;
    receiver.Answer(code);
    Alerts alerts({.webhooks = {receiver.url()}}, {});
    alerts.Take({DeadLink()});
    ASSERT_TRUE(Eventually([&] { return alerts.counts()[0].failed > 0; }));
    EXPECT_EQ(alerts.counts()[0].refused, 0u) << code;
    receiver.Answer(200);
    EXPECT_TRUE(Eventually([&] { return alerts.counts()[0].sent == 1; })) << code;
  }
}

// What it answers is told in messages, which take text alone.
TEST(HttpPost, AReceiversWordsEndWhereACharacterEnds) {
  HttpReceiver receiver;
  const std::atomic<bool> stop = false;
  HttpPost post(receiver.url(), stop);
  receiver.Answer(500, std::string(511, 'x') + "\u00fc");
  EXPECT_EQ(std::string(post.Send("{}").message()), "it answers 500 " + std::string(511, 'x'));
  receiver.Answer(500, "no\n\xff");
  EXPECT_EQ(std::string(post.Send("{}").message()), "it answers 500 no \xEF\xBF\xBD");
}

TEST(Alerts, WhatIsNoUrlIsSaid) {
  EXPECT_TRUE(CheckUrl("http://127.0.0.1:9093").ok());
  for (const char* bad : {"", "127.0.0.1:9093", "file:///etc/passwd", "http://", "http://[::1"})
    EXPECT_FALSE(CheckUrl(bad).ok()) << bad;
  EXPECT_EQ(UrlForLog("https://me:secret@hook.example:8443/x"), "https://hook.example:8443/x");
}

// The real one, and what it tells on.
class RealAlertmanagerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "cw_alerts_XXXXXX").string();
    folder_ = mkdtemp(name.data());
    std::ofstream(folder_ + "/config.yml")
        << "route: {receiver: r, group_by: ['...'], group_wait: 0s, group_interval: 1s}\nreceivers:\n- name: r\n"
        << "  webhook_configs: [{url: '" << receiver_.url() << "'}]\n";
    const auto started = lab::StartProcess(
        {"prometheus-alertmanager", "--config.file=" + folder_ + "/config.yml", "--storage.path=" + folder_ + "/data",
         absl::StrCat("--web.listen-address=127.0.0.1:", port_), "--cluster.listen-address="},
        folder_ + "/log");
    ASSERT_TRUE(started.ok()) << started.status();
    process_ = *started;
    ASSERT_TRUE(Eventually([&] { return HttpGet(port_, "/-/ready") == "OK"; })) << "see " << folder_ << "/log";
  }
  ~RealAlertmanagerTest() override {
    if (process_.pid != 0) lab::EndProcess(process_).IgnoreError();
    if (!HasFailure()) std::filesystem::remove_all(folder_);
  }
  json Active() const { return json::parse(HttpGet(port_, "/api/v2/alerts"), nullptr, false); }

  std::string folder_;
  const int port_ = FreePort();
  HttpReceiver receiver_;
  lab::ProcessId process_;
};

TEST_F(RealAlertmanagerTest, AnAlertFiresAndResolvesAndTwoInstancesAreOne) {
  const AlertTargets there{.alertmanagers = {absl::StrCat("http://127.0.0.1:", port_)}};
  Alerts alerts(there, {}), twin(there, {});
  const absl::Time begun = absl::Now();
  alerts.Take({DeadLink(1)});
  twin.Take({DeadLink(2)});
  ASSERT_TRUE(Eventually([&] { return !receiver_.bodies().empty(); }));
  const absl::Duration took = absl::Now() - begun;
  std::printf("told on %.0f ms after the finding\n", absl::ToDoubleMilliseconds(took));
  EXPECT_LT(took, absl::Seconds(3));
  ASSERT_TRUE(Eventually([&] { return alerts.counts()[0].sent + twin.counts()[0].sent == 2; }));
  ASSERT_THAT(Active(), SizeIs(1)) << Active().dump(1);
  EXPECT_EQ(Active()[0]["labels"]["cause"], "link dead");
  EXPECT_EQ(Active()[0]["status"]["state"], "active");
  alerts.Take({Over(DeadLink(1))});
  twin.Take({Over(DeadLink(2))});
  EXPECT_TRUE(Eventually([&] { return Active().empty(); }));
  EXPECT_TRUE(Eventually([&] { return Statuses(receiver_).back() == "resolved"; }));
  EXPECT_THAT(Statuses(receiver_), ElementsAre("firing", "resolved"));
  EXPECT_EQ(alerts.counts()[0].failed, 0u);
}

}  // namespace
}  // namespace cw::fleet
