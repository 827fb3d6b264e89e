// SPDX-License-Identifier: Apache-2.0
// A fleet service that somebody took over, and what it can do to a host's agent.
#include "userspace/uplink/client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <mutex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "tests/unit/tls_files.h"
#include "tests/unit/tls_grpc.h"
#include "userspace/api/fleet.grpc.pb.h"

namespace cw::uplink {
namespace {

namespace pb = cwfabric::v1;
using lab::Eventually;

constexpr size_t kMiB = 1 << 20;

// Of this process, as the kernel counts it.
size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

// Welcomes, then does what the test wants to whoever said Hello.
class Taken final : public pb::Uplink::Service {
 public:
  using Stream = grpc::ServerReaderWriter<pb::ToHost, pb::ToFleet>;
  explicit Taken(std::function<void(grpc::ServerContext&, Stream&)> acts) : acts_(std::move(acts)) {}

  grpc::Status Connect(grpc::ServerContext* context, Stream* stream) override {
    pb::ToFleet hello;
    if (!stream->Read(&hello)) return grpc::Status::OK;
    pb::ToHost message;
    message.mutable_welcome();
    stream->Write(message);
    acts_(*context, *stream);
    return grpc::Status::OK;
  }

 private:
  const std::function<void(grpc::ServerContext&, Stream&)> acts_;
};

class UplinkClient : public ::testing::Test {
 protected:
  void Serve(std::function<void(grpc::ServerContext&, Taken::Stream&)> acts) {
    service_ = std::make_unique<Taken>(std::move(acts));
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", tls::ServerOf(site_.Host("fleet1")), &port_);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }

  // rings: it has more and more of its ring to send.
  void Connect(bool rings, absl::Duration write_patience, std::function<void(const pb::DrainOrders&)> drains = {}) {
    ClientOptions options{.host = "node17", .run = 7, .endpoints = {absl::StrCat("127.0.0.1:", port_)}};
    options.tls = site_.Host("node17");
    options.hello = [] {
      pb::Hello hello;
      hello.set_host("node17");
      hello.set_run(7);
      return hello;
    };
    options.define_again = [] { return pb::Definitions(); };
    options.drains = std::move(drains);
    if (rings) {
      options.ring.next = [] {
        pb::RingAnswer answer;
        answer.mutable_end()->set_reason(std::string(kMiB, 'x'));
        return std::optional(answer);
      };
    }
    options.write_patience = write_patience;
    options.tell = [this](const std::string& text, bool) {
      const std::lock_guard lock(mutex_);
      told_.push_back(text);
    };
    auto spool = Spool::Open(site_.folder() + "/spool", {}, absl::Now());
    ASSERT_TRUE(spool.ok()) << spool.status();
    client_ = Client::Start(std::move(options), *std::move(spool));
    ASSERT_TRUE(Eventually([&] { return Told("connected to"); }));
    client_->Wake();
  }

  bool Told(const std::string& text) {
    const std::lock_guard lock(mutex_);
    return std::any_of(told_.begin(), told_.end(), [&](const auto& each) { return absl::StrContains(each, text); });
  }

  void TearDown() override {
    client_.reset();
    if (server_ != nullptr) server_->Shutdown(absl::ToChronoTime(absl::Now()));
  }

  tls::Site site_;
  std::mutex mutex_;
  std::vector<std::string> told_;
  std::unique_ptr<Taken> service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  std::unique_ptr<Client> client_;
};

#ifdef __SANITIZE_ADDRESS__
constexpr size_t kQuarantine = 256 * kMiB;  // what was freed stays so long
#else
constexpr size_t kQuarantine = 0;
#endif

// Two gigabytes in twenty seconds, before: what came while a write was held up.
TEST_F(UplinkClient, WhatNobodyLooksAtIsNotTakenIntoMemory) {
  std::atomic<size_t> sent = 0;
  Serve([&](grpc::ServerContext&, Taken::Stream& stream) {
    pb::ToHost message;
    message.mutable_drains()->set_instance(std::string(kMiB, 'x'));
    while (stream.Write(message)) sent += kMiB;
  });
  const size_t before = ResidentBytes();
  Connect(true, absl::Hours(1));
  size_t last = 0;
  const auto stands = [&] {
    const size_t now = sent;
    return now > 0 && std::exchange(last, now) == now;
  };
  ASSERT_TRUE(Eventually(stands, absl::Minutes(1), absl::Milliseconds(500))) << sent;
  EXPECT_LT(sent, 64 * kMiB) << "the rest waits at the service";
  std::printf("%zu MiB were taken, memory grew by %zu\n", sent / kMiB, (ResidentBytes() - before) / kMiB);
  EXPECT_LT(ResidentBytes(), before + 160 * kMiB + kQuarantine) << "of both ends, which are one process here";
}

TEST_F(UplinkClient, AServiceThatFloodsIsLeft) {
  Serve([](grpc::ServerContext&, Taken::Stream& stream) {
    pb::ToHost message;
    message.mutable_drains()->set_instance("one");
    while (stream.Write(message)) {
    }
  });
  std::atomic<int> heard = 0;
  Connect(false, absl::Hours(1), [&](const pb::DrainOrders&) { ++heard; });
  EXPECT_TRUE(Eventually([&] { return Told("messages a second that nobody asked for"); }));
  EXPECT_LT(heard, 3000);
}

TEST_F(UplinkClient, AServiceThatDoesNotReadIsLeft) {
  Serve([](grpc::ServerContext& context, Taken::Stream&) {
    while (!context.IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
  });
  Connect(true, absl::Milliseconds(100));
  uint64_t sequence = 0;
  EXPECT_TRUE(Eventually([&] {
    pb::Batch batch;
    batch.set_host("node17");
    batch.set_run(7);
    batch.set_sequence(++sequence);
    EXPECT_TRUE(client_->Append(batch, Kind::kEvent).ok());  // as an agent does, each second
    return Told("not connected to the fleet service");
  }));
}

}  // namespace
}  // namespace cw::uplink
