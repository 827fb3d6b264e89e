// SPDX-License-Identifier: Apache-2.0
//
// Who may call what: the table against the proto's own list, every call through the real service, users of unix groups,
// and what is told of it.
#include <gmock/gmock.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server_posix.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/unit/cli_fake_agent.h"
#include "userspace/api/guard.h"
#include "userspace/api/tls_server.h"
#include "userspace/api/user_servers.h"

namespace cw::api {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

const google::protobuf::ServiceDescriptor& ProtoService() {
  return *v1::StatusRequest::descriptor()->file()->FindServiceByName("Agent");
}

TEST(Roles, EveryMethodOfTheProtoHasOne) {
  std::set<std::string> table, proto;
  for (const MethodRole& each : MethodRoles()) {
    EXPECT_TRUE(table.insert(std::string(each.method)).second) << each.method << " stands there twice";
    EXPECT_NE(each.least, Role::kNone) << each.method;
  }
  for (int i = 0; i < ProtoService().method_count(); ++i) proto.insert(ProtoService().method(i)->name());
  EXPECT_EQ(table, proto);
}

// An action's reply is how the proto marks a call that changes something.
TEST(Roles, WhatChangesSomethingNeedsMoreThanReading) {
  for (int i = 0; i < ProtoService().method_count(); ++i) {
    const google::protobuf::MethodDescriptor& method = *ProtoService().method(i);
    const MethodRole* role = FindMethod(method.name());
    ASSERT_NE(role, nullptr) << method.name();
    EXPECT_EQ(role->changes(), method.output_type()->name() == "ActionReply") << method.name();
  }
}

TEST(Roles, AreNamedAndReadBack) {
  for (const Role role : {Role::kRead, Role::kSteer, Role::kAdmin}) EXPECT_EQ(ParseRole(RoleName(role)), role);
  EXPECT_EQ(ParseRole("none"), std::nullopt);
  EXPECT_EQ(ParseRole("root"), std::nullopt);
}

// The service behind a channel of this process, asked without its stub: an empty request for each method of the proto.
class Service : public ::testing::Test {
 protected:
  Service() {
    grpc::ServerBuilder builder;
    LimitServer(builder);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    std::filesystem::create_directory(folder_);
    channel_ = server_->InProcessChannel({});
  }
  ~Service() override {
    calls_.Stop();
    EndServer(*server_, absl::Seconds(1));
    std::filesystem::remove_all(folder_);
  }

  std::vector<nlohmann::json> Kept() const {
    std::vector<nlohmann::json> lines;
    std::ifstream in(folder_ / "acts.jsonl");
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  grpc::Status Call(const std::string& method) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const grpc::Slice nothing;
    const grpc::ByteBuffer request(&nothing, 1);
    const auto call = stub.PrepareUnaryCall(&context, absl::StrCat("/cwfabric.v1.Agent/", method), request, &queue);
    call->StartCall();
    grpc::ByteBuffer reply;
    grpc::Status status;
    call->Finish(&reply, &status, this);
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    return status;
  }

  // It does within a while.
  static bool Ends(const std::function<bool()>& good) {
    for (const absl::Time end = absl::Now() + absl::Seconds(20); absl::Now() < end;) {
      if (good()) return true;
    }
    return good();
  }

  Caller who_{.name = "alice", .role = Role::kNone, .via = "uid 1003"};
  FakeAgent agent_;
  Calls calls_{agent_};
  const std::filesystem::path folder_ = std::filesystem::temp_directory_path() / absl::StrCat("cw_acts_", getpid());
  Gate gate_{agent_, folder_ / "acts.jsonl"};
  CallQueue queue_;
  GuardedService service_{calls_, gate_, queue_, [this](const grpc::ServerContextBase&) { return who_; }};
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(Service, EveryCallAsksForItsRole) {
  for (const Role role : {Role::kNone, Role::kRead, Role::kSteer, Role::kAdmin}) {
    who_.role = role;
    for (int i = 0; i < ProtoService().method_count(); ++i) {
      const std::string method = ProtoService().method(i)->name();
      const bool may = role != Role::kNone && role >= FindMethod(method)->least;
      if (may && ProtoService().method(i)->server_streaming()) continue;  // its answers are not asked for one by one
      const grpc::Status status = Call(method);
      EXPECT_EQ(status.error_code() != grpc::StatusCode::PERMISSION_DENIED, may)
          << method << ": " << status.error_message();
      EXPECT_NE(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << method << " is not passed on";
      if (!may) {
        EXPECT_THAT(status.error_message(), HasSubstr("needs the role"));
      }
    }
  }
}

TEST_F(Service, ActsAreToldWithWhoAndWhatAndOutcome) {
  who_.role = Role::kSteer;
  EXPECT_TRUE(Call("Off").ok());
  std::vector<ApiEvent> told = agent_.Told();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].type, "audit");
  EXPECT_EQ(told[0].text, "alice (uid 1003, role steer): Off: done");
  EXPECT_FALSE(told[0].alert);
  EXPECT_THAT(told[0].evidence, Contains(Pair("by", "alice")));
  EXPECT_THAT(told[0].evidence, Contains(Pair("role", "steer")));
  EXPECT_THAT(told[0].evidence, Contains(Pair("via", "uid 1003")));
  EXPECT_THAT(told[0].evidence, Contains(Pair("call", "Off")));
  EXPECT_THAT(told[0].evidence, Contains(Pair("outcome", "allowed")));
  EXPECT_EQ(agent_.last_caller.name, "alice") << "the agent names who acted, too";

  EXPECT_FALSE(Call("SteerSet").ok()) << "no target";
  EXPECT_THAT(agent_.Told().back().evidence, Contains(Pair("outcome", "failed")));
  EXPECT_FALSE(Call("SetMode").ok());
  EXPECT_THAT(agent_.Told().back().evidence, Contains(Pair("outcome", "refused")));
  EXPECT_TRUE(agent_.Told().back().alert);
  EXPECT_TRUE(Call("Status").ok());
  EXPECT_EQ(agent_.Told().size(), 3u) << "reading is not told";
}

TEST_F(Service, ActsAreKeptInAFile) {
  who_.role = Role::kSteer;
  EXPECT_TRUE(Call("Off").ok());
  EXPECT_TRUE(Call("Status").ok());
  EXPECT_FALSE(Call("SteerSet").ok()) << "no target";
  EXPECT_FALSE(Call("SetMode").ok());
  const std::vector<nlohmann::json> kept = Kept();
  ASSERT_EQ(kept.size(), 3u) << "reading is not kept";
  EXPECT_EQ(kept[0]["by"], "alice");
  EXPECT_EQ(kept[0]["via"], "uid 1003");
  EXPECT_EQ(kept[0]["call"], "Off");
  EXPECT_EQ(kept[0]["outcome"], "allowed");
  EXPECT_EQ(kept[1]["outcome"], "failed");
  EXPECT_THAT(std::string(kept[1]["error"]), HasSubstr("no target"));
  EXPECT_EQ(kept[2]["outcome"], "refused");
}

TEST_F(Service, WhatCannotBeKeptIsDoneAndToldOnce) {
  std::filesystem::remove_all(folder_);
  who_.role = Role::kSteer;
  EXPECT_TRUE(Call("Off").ok());
  EXPECT_TRUE(Call("Off").ok());
  const auto faults = [this] {
    const std::vector<ApiEvent> told = agent_.Told();
    return std::count_if(told.begin(), told.end(), [](const ApiEvent& event) { return event.type == "api"; });
  };
  EXPECT_EQ(faults(), 1);
  EXPECT_TRUE(agent_.Told().back().type == "audit") << "the second act is told all the same";
  std::filesystem::create_directory(folder_);
  EXPECT_TRUE(Call("Off").ok());
  EXPECT_EQ(faults(), 2) << "and that it is well again";
}

// A call whose reply nobody reads; it is cancelled when this goes.
class UnreadCall {
 public:
  UnreadCall(grpc::Server& server, const std::string& method) : stub_(TightChannel(server)) {
    call_ = stub_.PrepareCall(&context_, absl::StrCat("/cwfabric.v1.Agent/", method), &queue_);
    call_->StartCall(this);
    Wait();
    const grpc::Slice nothing;
    call_->WriteLast(grpc::ByteBuffer(&nothing, 1), {}, this);
    Wait();
  }
  ~UnreadCall() {
    context_.TryCancel();
    (void)End();
  }
  grpc::Status End() {
    if (!ended_) {
      call_->Finish(&status_, this);
      Wait();
    }
    ended_ = true;
    return status_;
  }

 private:
  // Its client takes sixteen bytes until somebody reads.
  static std::shared_ptr<grpc::Channel> TightChannel(grpc::Server& server) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    grpc::AddInsecureChannelFromFd(&server, ends[0]);
    grpc::ChannelArguments tight;
    tight.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 16);
    tight.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    return grpc::CreateCustomInsecureChannelFromFd("unread", ends[1], tight);
  }
  void Wait() {
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue_.Next(&tag, &ok));
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::Status status_;
  bool ended_ = false;
};

// Each took a thread of gRPC's until it was read, of which there are 24.
TEST_F(Service, RepliesThatNobodyReadsKeepNobodyWaiting) {
  who_ = {.name = "mallory", .role = Role::kRead, .via = "uid 1004"};
  std::vector<std::unique_ptr<UnreadCall>> unread;
  for (int i = 0; i < 32; ++i) unread.push_back(std::make_unique<UnreadCall>(*server_, "Status"));
  EXPECT_TRUE(Ends([this] { return Call("Status").error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED; }))
      << "his own are too many by now";
  who_ = {.name = "alice", .role = Role::kRead, .via = "uid 1003"};
  EXPECT_TRUE(Call("Status").ok());
  who_ = {.name = "mallory", .role = Role::kRead, .via = "CN=mallory from 10.0.0.1"};
  EXPECT_TRUE(Call("Status").ok()) << "somebody else, of the same name";
  unread.clear();
  who_.via = "uid 1004";
  EXPECT_TRUE(Ends([this] { return Call("Status").ok(); })) << "they are over, and count still";
}

// A stream ends within seconds of what its certificate may no longer do.
TEST_F(Service, FollowersEndWithTheirRights) {
  who_.role = Role::kRead;
  bool may = true;
  GuardedService service(calls_, gate_, queue_, [&](const grpc::ServerContextBase&) -> absl::StatusOr<Caller> {
    if (!std::exchange(may, false)) return absl::PermissionDeniedError("revoked");
    return who_;
  });
  grpc::ServerBuilder builder;
  LimitServer(builder);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto stub = v1::Agent::NewStub(server->InProcessChannel({}));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::EventsRequest request;
  request.set_follow(true);
  const auto reader = stub->Events(&context, request);
  for (v1::Event event; reader->Read(&event);) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EndServer(*server, absl::Seconds(1));
}

TEST(CallQueue, CallersTakeTurnsAndNobodyHasAllThreads) {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  std::vector<std::string> order;
  CallQueue queue({.threads = 2, .each = 4, .all = 6});
  const auto work = [&](const char* name) {
    return [&, name] {
      std::unique_lock lock(mutex);
      order.push_back(name);
      changed.notify_all();
      changed.wait(lock, [&] { return open; });
    };
  };
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(queue.Add("mallory", work("mallory")).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(queue.Add("mallory", work("mallory"))));
  EXPECT_TRUE(queue.Add("alice", work("alice")).ok());
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return order.size() == 2; }));
    EXPECT_THAT(order, UnorderedElementsAre("mallory", "alice"));
  }
  EXPECT_TRUE(queue.Add("bob", work("bob")).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(queue.Add("carol", work("carol")))) << "six in all";
  queue.Done("alice");
  EXPECT_TRUE(queue.Add("carol", work("carol")).ok());
  {
    std::unique_lock lock(mutex);
    open = true;
    changed.notify_all();
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return order.size() == 7; }));
    EXPECT_LT(std::find(order.begin(), order.end(), "bob") - order.begin(), 5) << "not behind all of mallory's";
  }
  for (const char* name : {"mallory", "mallory", "mallory", "mallory", "bob", "carol"}) queue.Done(name);
}

TEST(RefusalLimiter, TellsSomeAndCountsTheRest) {
  RefusalLimiter limiter;
  absl::Time now = absl::UnixEpoch();
  int told = 0;
  for (int i = 0; i < 100; ++i) told += limiter.Tell("mallory", now).has_value();
  EXPECT_EQ(told, 10);
  EXPECT_EQ(limiter.Tell("alice", now), 0u) << "nobody is hidden behind another";
  now += absl::Seconds(11);
  EXPECT_EQ(limiter.Tell("mallory", now), 90u);
  EXPECT_EQ(limiter.Tell("mallory", now), std::nullopt);
  now += absl::Hours(1);
  EXPECT_EQ(limiter.Tell("mallory", now), 1u);
  told = 0;
  for (int i = 0; i < 10'000; ++i) told += limiter.Tell(absl::StrCat("user", i), now).has_value();
  EXPECT_LT(told, 300) << "and made-up names do not help";
}

TEST(Audit, LongRequestsAreShortened) {
  const ApiEvent event =
      CallMade({.name = "a", .role = Role::kSteer, .via = "b"}, "SteerSet", std::string(5000, 'x'), absl::OkStatus());
  EXPECT_LT(event.text.size(), 500u);
}

class UnixGroups : public ::testing::Test {
 protected:
  static UnixPeer Peer(uid_t uid, std::vector<gid_t> groups) {
    return {.uid = uid, .gid = uid, .pid = 1, .groups = std::move(groups)};
  }
  UnixRoles roles_{.own = 990, .read = 100, .steer = 101, .admin = 102};
};

TEST_F(UnixGroups, GiveTheHighestRoleOfAllGroups) {
  EXPECT_EQ(RoleOfPeer(roles_, Peer(0, {})), Role::kAdmin);
  EXPECT_EQ(RoleOfPeer(roles_, Peer(990, {})), Role::kAdmin) << "the agent's own user";
  EXPECT_EQ(RoleOfPeer(roles_, Peer(1003, {})), Role::kNone);
  EXPECT_EQ(RoleOfPeer(roles_, Peer(1003, {7, 100})), Role::kRead);
  EXPECT_EQ(RoleOfPeer(roles_, Peer(1003, {101, 100})), Role::kSteer);
  EXPECT_EQ(RoleOfPeer(roles_, Peer(1003, {100, 102})), Role::kAdmin);
  EXPECT_EQ(RoleOfPeer(roles_, Peer(100, {})), Role::kRead) << "the primary group counts, too";
  roles_.admin.reset();
  EXPECT_EQ(RoleOfPeer(roles_, Peer(1003, {102})), Role::kNone);
}

TEST_F(UnixGroups, AreNotAskedWhereNoneIsNamed) {
  const absl::StatusOr<UnixRoles> roles = ResolveGroups({});
  ASSERT_TRUE(roles.ok());
  EXPECT_TRUE(roles->by_mode) << "as before there were roles: the socket's mode decides";
  EXPECT_EQ(RoleOfPeer(*roles, Peer(1003, {})), Role::kAdmin);
  const absl::StatusOr<UnixRoles> with_reader = ResolveGroups({.read = "root", .steer = ""});
  ASSERT_TRUE(with_reader.ok());
  EXPECT_FALSE(with_reader->by_mode);
  EXPECT_EQ(with_reader->admin, getegid()) << "the agent's group keeps what it had";
  EXPECT_EQ(RoleOfPeer(*with_reader, Peer(1003, {0})), getegid() == 0 ? Role::kAdmin : Role::kRead);
}

TEST_F(UnixGroups, ThatAreNotThereAreNamed) {
  const absl::Status status = ResolveGroups({.read = "no-such-group"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("api.read_group: this host has no group no-such-group"));
}

TEST(IdentifyCertificate, WithoutOneIsNobody) {
  const Identified who = IdentifyCertificate("", "ipv4:10.0.0.9:4711", absl::Now());
  EXPECT_EQ(who.status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(who.caller.role, Role::kNone);
  EXPECT_THAT(who.caller.via, HasSubstr("10.0.0.9"));
}

}  // namespace
}  // namespace cw::api
