// SPDX-License-Identifier: Apache-2.0
//
// --host of the reading verbs: the real cwctl against a fleet service on the loopback that is as old as it is told.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tests/unit/cli_run.h"
#include "tests/unit/tls_files.h"
#include "userspace/api/fleet.grpc.pb.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Knows h1 and h2, and a link of each. An old one does not see for which host it is asked.
class FakeFleet final : public v1::Fleet::Service {
 public:
  std::atomic<bool> old = false;

  grpc::Status Hosts(grpc::ServerContext*, const v1::FleetHostsRequest* request, v1::FleetHostsReply* reply) override {
    for (const char* name : {"h1", "h2"}) {
      if (!old && request->host() != name) continue;
      reply->add_hosts()->set_host(name);
      reply->mutable_coverage()->add_missing(absl::StrCat(name, ": not connected"));
    }
    reply->mutable_coverage()->set_hosts(static_cast<uint32_t>(reply->hosts_size()));
    return grpc::Status::OK;
  }
  grpc::Status Topology(grpc::ServerContext*, const v1::FleetTopologyRequest* request,
                        v1::FleetTopologyReply* reply) override {
    for (const char* name : {"h1", "h2"}) {
      if (old || request->host() == name) reply->add_links()->set_from(absl::StrCat("leaf-of-", name));
    }
    if (!old) reply->set_host(request->host());
    return grpc::Status::OK;
  }
};

std::string TextOf(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class CwctlFleet : public ::testing::Test {
 protected:
  void SetUp() override {
    const tls::Files files = site_.Host("fleet1");
    grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = TextOf(files.ca);
    options.pem_key_cert_pairs = {{TextOf(files.key), TextOf(files.cert)}};
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port_);
    builder.RegisterService(&fleet_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  RunResult Run(std::vector<std::string> arguments) {
    const tls::Files& me = user_;
    arguments.insert(arguments.end(),
                     {"--fleet", absl::StrCat("127.0.0.1:", port_), "--cert", me.cert, "--key", me.key, "--ca", me.ca});
    return RunProgram(CWCTL_PATH, arguments, {});
  }

  tls::Site site_;
  tls::Files user_ = site_.User("alice", "read");
  FakeFleet fleet_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(CwctlFleet, StatusIsOfTheHostAloneOfAnOldServiceToo) {
  for (const bool old : {false, true}) {
    fleet_.old = old;
    const RunResult text = Run({"status", "--host", "h2"});
    EXPECT_EQ(text.exit_code, 0) << text.err;
    EXPECT_THAT(text.out, AllOf(HasSubstr("h2"), Not(HasSubstr("h1"))));
    const nlohmann::json reply = nlohmann::json::parse(Run({"status", "--host", "h2", "--json"}).out, nullptr, false);
    ASSERT_TRUE(reply.is_object()) << old;
    EXPECT_EQ(reply["hosts"].size(), 1u);
    EXPECT_EQ(reply["coverage"]["hosts"], 1);
    EXPECT_EQ(reply["coverage"]["missing"], nlohmann::json::array({"h2: not connected"}));
  }
  const RunResult none = Run({"status", "--host", "h3"});
  EXPECT_NE(none.exit_code, 0);
  EXPECT_THAT(none.err, HasSubstr("knows no host h3"));
}

TEST_F(CwctlFleet, LinksOfAllAreNotShownAsAHosts) {
  const RunResult well = Run({"links", "--host", "h2"});
  EXPECT_EQ(well.exit_code, 0) << well.err;
  EXPECT_THAT(well.out, AllOf(HasSubstr("leaf-of-h2"), Not(HasSubstr("leaf-of-h1"))));
  fleet_.old = true;
  const RunResult old = Run({"links", "--host", "h2"});
  EXPECT_NE(old.exit_code, 0);
  EXPECT_EQ(old.out, "");
  EXPECT_THAT(old.err, HasSubstr("upgrade cwfleetd"));
}

}  // namespace
}  // namespace cw::cli
