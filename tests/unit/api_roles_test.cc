// SPDX-License-Identifier: Apache-2.0
//
// Who may call what: the table against the proto's own list, every call through the real service, users of unix groups,
// and what is told of it.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <unistd.h>

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

  Caller who_{.name = "alice", .role = Role::kNone, .via = "uid 1003"};
  FakeAgent agent_;
  Calls calls_{agent_};
  const std::filesystem::path folder_ = std::filesystem::temp_directory_path() / absl::StrCat("cw_acts_", getpid());
  Gate gate_{agent_, folder_ / "acts.jsonl"};
  GuardedService service_{calls_, gate_, [this](const grpc::ServerContext&) { return who_; }};
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
