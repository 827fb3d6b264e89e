// SPDX-License-Identifier: Apache-2.0
// A host's stream over gRPC: what it is asked for, and how much it may say of that.
#include "userspace/fleet/main/uplink_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "tests/unit/tls_files.h"
#include "tests/unit/tls_grpc.h"
#include "userspace/fleet/main/incident_taker.h"
#include "userspace/fleet/main/server_limits.h"
#include "userspace/fleet/store/sqlite/sqlite_store.h"
#include "userspace/model/calm_paths.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

class CountedOrders final : public HostOrders {
 public:
  std::atomic<int> taken = 0, forgotten = 0;
  pb::DrainOrders OrdersFor(const std::string&) override {
    pb::DrainOrders orders;
    orders.set_instance("one");
    return orders;
  }
  void Take(const std::string&, const pb::DrainReport&) override { ++taken; }
  void Forget(const std::string&) override { ++forgotten; }
};

class SeenRings final : public HostRings {
 public:
  std::mutex mutex;
  std::vector<State> states;
  std::vector<uint64_t> answers;
  void Now(const std::string&, const State& state) override {
    const std::lock_guard lock(mutex);
    states.push_back(state);
  }
  bool Take(const std::string&, const pb::RingAnswer& answer) override {
    const std::lock_guard lock(mutex);
    answers.push_back(answer.id());
    return answer.id() == 9;
  }
};

class UplinkServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    uplink_.SetOrders(&orders_);
    int port = 0;
    grpc::ServerBuilder builder;
    LimitServer(builder);
    builder.AddListeningPort("127.0.0.1:0", tls::ServerOf(site_.Host("fleet1")), &port);
    builder.RegisterService(&uplink_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    const tls::Files own = site_.Host("node17");
    stub_ = pb::Uplink::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port),
                            grpc::SslCredentials({tls::PemIn(own.ca), tls::PemIn(own.key), tls::PemIn(own.cert)})));
    context_.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
    stream_ = stub_->Connect(&context_);
  }
  void SayHello() {
    pb::ToFleet message;
    message.mutable_hello()->set_host("node17");
    message.mutable_hello()->set_run(7);
    message.mutable_hello()->set_takes_drains(true);
    ASSERT_TRUE(stream_->Write(message));
  }
  void Report(size_t bytes) {
    pb::ToFleet message;
    message.mutable_drains()->add_answers()->set_words(std::string(bytes, 'x'));
    ASSERT_TRUE(stream_->Write(message));
  }
  static pb::Batch BatchNow(uint64_t sequence) {
    pb::Batch batch;
    batch.set_host("node17");
    batch.set_run(7);
    batch.set_sequence(sequence);
    batch.set_from_ns(absl::GetCurrentTimeNanos() - 1000);
    batch.set_to_ns(absl::GetCurrentTimeNanos());
    return batch;
  }
  void SendBatch() {
    pb::ToFleet message;
    *message.mutable_batch() = BatchNow(1);
    ASSERT_TRUE(stream_->Write(message));
  }
  pb::ToHost::KindCase Next() {
    pb::ToHost message;
    return stream_->Read(&message) ? message.kind_case() : pb::ToHost::KIND_NOT_SET;
  }

  tls::Site site_;
  const std::unique_ptr<Store> store_ = OpenSqliteStore(":memory:", {.reserve_bytes = 0}).value();
  Ingest ingest_{*store_, "one", {.quota = {.bytes_per_s = 1e-3, .burst_bytes = 1000}}};
  Callers callers_{tls::Files{}};
  CountedOrders orders_;
  SeenRings rings_;
  UplinkService uplink_{ingest_, callers_};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<pb::Uplink::Stub> stub_;
  grpc::ClientContext context_, context2_;
  std::unique_ptr<grpc::ClientReaderWriter<pb::ToFleet, pb::ToHost>> stream_;
};

TEST_F(UplinkServiceTest, AHostThatReportsTooMuchIsForgottenAndAskedAnew) {
  SayHello();
  EXPECT_EQ(Next(), pb::ToHost::kWelcome);
  EXPECT_EQ(Next(), pb::ToHost::kDrains);
  EXPECT_EQ(orders_.forgotten, 1) << "a new connection has to say it again";
  Report(100);
  Report(2000);
  SendBatch();
  EXPECT_EQ(Next(), pb::ToHost::kDrains) << "for what it said no longer holds";
  EXPECT_EQ(orders_.taken, 1);
  EXPECT_EQ(orders_.forgotten, 2);
  EXPECT_EQ(uplink_.Hosts().at(0).refused_reports, 1u);
  stream_->WritesDone();
  EXPECT_EQ(Next(), pb::ToHost::KIND_NOT_SET);
  EXPECT_TRUE(stream_->Finish().ok());
}

// Attack "words of a host": what forges a line of a log, turns text or moves a terminal ends at the door.
TEST_F(UplinkServiceTest, WordsOfHostsArePrintableBehindTheDoor) {
  constexpr char kEvil[] = "1.0\n2026 drains switch spine1\x1b[2J\xe2\x80\xae";
  pb::ToFleet message;
  message.mutable_hello()->set_host("node17");
  message.mutable_hello()->set_run(7);
  message.mutable_hello()->set_version(kEvil);
  ASSERT_TRUE(stream_->Write(message));
  EXPECT_EQ(Next(), pb::ToHost::kWelcome);
  *message.mutable_batch() = BatchNow(1);
  pb::Event& event = *message.mutable_batch()->add_events()->mutable_event();
  event.set_seq(1);
  event.set_type("path");
  event.set_text(kEvil);
  event.add_evidence()->set_name("why");
  event.mutable_evidence(0)->set_value(kEvil);
  message.mutable_batch()->mutable_events(0)->set_time_ns(absl::GetCurrentTimeNanos());
  ASSERT_TRUE(stream_->Write(message));
  ASSERT_TRUE(lab::Eventually([&] { return uplink_.Flush().ok() && uplink_.Hosts().at(0).batches == 1; }));
  EXPECT_EQ(uplink_.Hosts().at(0).version, "1.0?2026 drains switch spine1?[2J?");
  const auto stored = store_->Events({});
  ASSERT_TRUE(stored.ok()) << stored.status();
  ASSERT_EQ(stored->events.size(), 1u);
  EXPECT_THAT(stored->events[0].payload, testing::Not(testing::HasSubstr("\x1b")));
  EXPECT_THAT(stored->events[0].payload, testing::HasSubstr("1.0?2026"));
}

// Attack "certificate that is over": a stream that is open does not outlive it.
TEST_F(UplinkServiceTest, AStreamEndsWithItsCertificate) {
  SayHello();
  EXPECT_EQ(Next(), pb::ToHost::kWelcome);
  EXPECT_EQ(Next(), pb::ToHost::kDrains);
  uplink_.EndStrangers(absl::Now());
  EXPECT_EQ(uplink_.Hosts().at(0).connected, true);
  uplink_.EndStrangers(absl::Now() + absl::Hours(24 * 3660));
  EXPECT_EQ(Next(), pb::ToHost::KIND_NOT_SET);
  const grpc::Status end = stream_->Finish();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(end.error_message(), testing::HasSubstr("expired"));
}

// Attack "streams that say nothing": of one certificate four wait for their Hello, and no more.
TEST_F(UplinkServiceTest, OfOneCertificateFewStreamsWaitForTheirHello) {
  SayHello();
  EXPECT_EQ(Next(), pb::ToHost::kWelcome);
  constexpr int kStreams = 20, kMayWait = 4;
  std::vector<grpc::ClientContext> contexts(kStreams);
  std::vector<std::thread> readers;
  std::atomic<int> refused = 0, cancelled = 0;
  for (grpc::ClientContext& context : contexts) {
    readers.emplace_back([&] {
      const auto stream = stub_->Connect(&context);
      pb::ToHost message;
      EXPECT_FALSE(stream->Read(&message));
      const grpc::StatusCode code = stream->Finish().error_code();
      refused += code == grpc::StatusCode::RESOURCE_EXHAUSTED;
      cancelled += code == grpc::StatusCode::CANCELLED;
    });
  }
  EXPECT_TRUE(lab::Eventually([&] { return refused == kStreams - kMayWait; }));
  EXPECT_EQ(cancelled, 0);
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(refused, kStreams - kMayWait);
  EXPECT_EQ(cancelled, kMayWait);
}

// gRPC would inflate it before it looks at its size.
TEST_F(UplinkServiceTest, CompressedMessagesAreNotTaken) {
  context2_.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  context2_.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
  const auto stream = stub_->Connect(&context2_);
  pb::ToFleet message;
  message.mutable_hello()->set_host(std::string(16 << 20, 'x'));  // 16 KB on the wire
  stream->Write(message);
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(std::make_unique<pb::ToHost>().get()));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(UplinkServiceTest, CalmPathsAreUnpackedAndDamagedOnesRefused) {
  SayHello();
  EXPECT_EQ(Next(), pb::ToHost::kWelcome);
  EXPECT_EQ(Next(), pb::ToHost::kDrains);
  pb::ToFleet message;
  pb::Batch& batch = *message.mutable_batch() = BatchNow(1);
  pb::PathName& name = *batch.mutable_definitions()->add_paths();
  name.set_path(3);
  name.set_local("aaaa");
  name.set_remote("bbbb");
  name.set_udp_port(5);
  batch.set_calm_paths(PackCalmPaths({{{.path = 3, .base_ns = 4000, .queue = ""}}}));
  ASSERT_TRUE(stream_->Write(message));
  *message.mutable_batch() = BatchNow(2);
  message.mutable_batch()->set_calm_paths("\x03 no deflated bytes");
  ASSERT_TRUE(stream_->Write(message));
  ASSERT_TRUE(
      lab::Eventually([&] { return uplink_.Flush().ok() && uplink_.Hosts().at(0).refused == 1; }, absl::Seconds(30)));
  pb::ToHost answer;
  int refusals = 0;
  while (answer.ack().through_sequence() < 2) {  // what follows can be acknowledged
    ASSERT_TRUE(stream_->Read(&answer));
    refusals += answer.ack().refusals_size();
  }
  EXPECT_EQ(refusals, 1);
  EXPECT_THAT(answer.ack().refusals(0).reason(), testing::HasSubstr("calm paths"));
  ASSERT_EQ(uplink_.Hosts().at(0).paths.size(), 1u);
  EXPECT_EQ(uplink_.Hosts().at(0).paths.begin()->second.base_ns, 4000u);
}

TEST_F(UplinkServiceTest, RingsAreAskedForOnlyWhereThereIsOne) {
  uplink_.SetRings(&rings_);
  SayHello();  // of an agent that knows of no ring
  EXPECT_EQ(Next(), pb::ToHost::kWelcome);
  EXPECT_EQ(Next(), pb::ToHost::kDrains);
  pb::RingAsk ask;
  ask.mutable_request()->set_id(5);
  uplink_.SendRing("node17", ask);
  SendBatch();
  EXPECT_TRUE(lab::Eventually([&] { return uplink_.Flush().ok() && uplink_.Hosts().at(0).batches == 1; }));
  EXPECT_EQ(Next(), pb::ToHost::kAck) << "and nothing of a ring";
  EXPECT_FALSE(uplink_.RingOf("node17").keeps_ring);
  EXPECT_FALSE(uplink_.RingOf("another").connected);
  pb::ToFleet answer;
  answer.mutable_ring()->set_id(9);
  ASSERT_TRUE(stream_->Write(answer));
  stream_->WritesDone();
  EXPECT_EQ(Next(), pb::ToHost::KIND_NOT_SET);
  EXPECT_TRUE(stream_->Finish().ok());
  // The service has done with a stream a moment after its client has.
  ASSERT_TRUE(lab::Eventually([&] { return !uplink_.RingOf("node17").connected; }));

  context2_.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
  stream_ = stub_->Connect(&context2_);
  pb::ToFleet hello;
  hello.mutable_hello()->set_host("node17");
  hello.mutable_hello()->set_run(8);
  hello.mutable_hello()->set_keeps_ring(true);
  ASSERT_TRUE(stream_->Write(hello));
  EXPECT_EQ(Next(), pb::ToHost::kWelcome);
  ASSERT_TRUE(uplink_.RingOf("node17").keeps_ring);
  uplink_.SendRing("node17", ask);
  EXPECT_EQ(Next(), pb::ToHost::kRing);
  stream_->WritesDone();
  EXPECT_EQ(Next(), pb::ToHost::KIND_NOT_SET);
  server_->Shutdown();
  server_->Wait();
  ASSERT_GE(rings_.states.size(), 3u) << "there, gone, there again";
  EXPECT_FALSE(rings_.states[0].keeps_ring);
  EXPECT_FALSE(rings_.states[1].connected);
  EXPECT_TRUE(rings_.states[2].keeps_ring);
  EXPECT_EQ(rings_.states[1].connection, rings_.states[0].connection);
  EXPECT_GT(rings_.states[2].connection, rings_.states[1].connection);
  EXPECT_EQ(rings_.answers, std::vector<uint64_t>{9});
}

TEST_F(UplinkServiceTest, AHostThatDidNotAnswerInTimeIsToldToForget) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / absl::StrCat("cw_forget_", getpid());
  std::filesystem::create_directories(folder);
  Query query(*store_, "one", {}, [this](const auto& look) { uplink_.EachHost(look); });
  IncidentOptions options{.least = std::nullopt};
  options.limits.patience = absl::ZeroDuration();
  IncidentTaker taker(std::move(options), Shelf::Open(folder.string(), {}, [](const std::string&) {}).value(), uplink_,
                      *store_, query);
  uplink_.SetRings(&taker);
  pb::ToFleet hello;
  hello.mutable_hello()->set_host("node17");
  hello.mutable_hello()->set_run(8);
  hello.mutable_hello()->set_keeps_ring(true);
  ASSERT_TRUE(stream_->Write(hello));
  ASSERT_EQ(Next(), pb::ToHost::kWelcome);
  ASSERT_TRUE(lab::Eventually([&] { return uplink_.RingOf("node17").keeps_ring; }));
  pb::IncidentTakeRequest request;
  request.add_hosts("node17");
  request.set_from_ns(absl::ToUnixNanos(absl::Now() - absl::Seconds(10)));
  request.set_to_ns(absl::ToUnixNanos(absl::Now() - absl::Seconds(2)));
  ASSERT_TRUE(taker.Take(request, absl::Now()).ok());
  pb::ToHost asked, forget;
  ASSERT_TRUE(stream_->Read(&asked));
  ASSERT_TRUE(asked.ring().has_request()) << asked.DebugString();
  ASSERT_TRUE(stream_->Read(&forget));
  EXPECT_EQ(forget.ring().forget(), asked.ring().request().id()) << forget.DebugString();
  EXPECT_TRUE(lab::Eventually([&] { return taker.List().incidents(0).state() == "done"; }));
  EXPECT_EQ(taker.List().incidents(0).hosts(0).missing(), "it did not answer in time");
  stream_->WritesDone();
  EXPECT_EQ(Next(), pb::ToHost::KIND_NOT_SET);
  server_->Shutdown();
  server_->Wait();
  std::filesystem::remove_all(folder);
}

TEST_F(UplinkServiceTest, AHostThatSendsWhatNobodyAskedForLosesItsStream) {
  uplink_.SetRings(&rings_);
  SayHello();
  const auto send = [&](uint64_t id, int times) {
    pb::ToFleet answer;
    answer.mutable_ring()->set_id(id);
    for (int i = 0; i < times; ++i) {
      if (!stream_->Write(answer)) return;
    }
  };
  send(5, 60);
  send(9, 1);  // asked for: what came before was late
  send(5, 60);
  send(9, 1);
  const auto seen = [&] {
    const std::lock_guard lock(rings_.mutex);
    return rings_.answers.size();
  };
  EXPECT_TRUE(lab::Eventually([&] { return seen() == 122; })) << seen();
  send(5, 1000);
  while (Next() != pb::ToHost::KIND_NOT_SET) {
  }
  EXPECT_EQ(stream_->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_LT(seen(), 200u) << "it is not listened to any more";
  server_->Shutdown();
  server_->Wait();
}

}  // namespace
}  // namespace cw::fleet
