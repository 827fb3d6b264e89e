// SPDX-License-Identifier: Apache-2.0
//
// The API over TCP: the real cwctl, with certificates that cwctl made, against the real server on this host's loopback.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tests/unit/cli_fake_agent.h"
#include "tests/unit/cli_run.h"
#include "tests/unit/tls_files.h"
#include "userspace/api/cwfabric.grpc.pb.h"
#include "userspace/api/server.h"
#include "userspace/tls/revocation.h"

namespace cw::api {
namespace {

using cli::RunProgram;
using cli::RunResult;
using nlohmann::json;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

uint16_t FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  socklen_t size = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

class ApiTls : public ::testing::Test {
 protected:
  void SetUp() override { Start(site_.Host("node17")); }

  void Start(const tls::Files& files) {
    absl::StatusOr<std::unique_ptr<Server>> server = absl::UnavailableError("not tried");
    for (int i = 0; i < 20 && absl::IsUnavailable(server.status()); ++i) {  // another process may take the port
      port_ = FreePort();
      server = Server::Start({.socket_path = site_.folder() + "/agent.sock",
                              .groups = {},
                              .tcp = {absl::StrCat("127.0.0.1:", port_)},
                              .tls = files},
                             agent_);
    }
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  RunResult As(const tls::Files& files, std::vector<std::string> arguments, const std::string& host = "127.0.0.1") {
    arguments.insert(arguments.end(), {"--server", absl::StrCat(host, ":", port_), "--cert", files.cert, "--key",
                                       files.key, "--ca", files.ca});
    return RunProgram(CWCTL_PATH, arguments, {});
  }

  // What gRPC itself makes of the server, with these texts as its side of TLS.
  grpc::Status AskWith(const grpc::SslCredentialsOptions& options) {
    const auto channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", port_), grpc::SslCredentials(options));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    v1::StatusReply reply;
    return v1::Agent::NewStub(channel)->Status(&context, {}, &reply);
  }

  static std::string Text(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  // The serial number of the certificate that new connections see, as the agent tells of it.
  std::vector<std::string> SerialsTaken() {
    std::vector<std::string> out;
    for (const ApiEvent& event : agent_.Told()) {
      if (event.type != "api") continue;
      for (const auto& [name, value] : event.evidence)
        if (name == "serial") out.push_back(value);
    }
    return out;
  }

  tls::Site site_;
  FakeAgent agent_;
  uint16_t port_ = 0;
  std::unique_ptr<Server> server_;
};

// gRPC would inflate it before it looks at its size.
TEST_F(ApiTls, CompressedMessagesAreNotTaken) {
  const tls::Files files = site_.User("rita", "read");
  const auto channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", port_),
                                           grpc::SslCredentials({Text(files.ca), Text(files.key), Text(files.cert)}));
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  v1::LabelRequest request;
  request.set_label(std::string(16 << 20, 'x'));  // 16 KB on the wire
  v1::ActionReply reply;
  EXPECT_EQ(v1::Agent::NewStub(channel)->Label(&context, request, &reply).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

// Whoever shares this address with an attacker (NAT) comes in all the same.
TEST_F(ApiTls, HalfGreetingsKeepNobodyOut) {
  const tls::Files rita = site_.User("rita", "read");
  std::vector<int> half;
  for (int i = 0; i < 100; ++i) {
    half.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port_)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(half.back(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    (void)send(half.back(), "\x16\x03\x01\x02\x00\x01", 6, MSG_NOSIGNAL);  // later ones end earlier ones
  }
  EXPECT_TRUE(AskWith({Text(rita.ca), Text(rita.key), Text(rita.cert)}).ok());
  for (const int fd : half) close(fd);
}

// With a good certificate, and not one call.
TEST_F(ApiTls, ConnectionsThatAskNothingKeepNobodyOut) {
  const tls::Files mallory = site_.User("mallory", "read"), rita = site_.User("rita", "read");
  std::vector<std::shared_ptr<grpc::Channel>> idle;
  for (int i = 0; i < 40; ++i) {
    grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    idle.push_back(grpc::CreateCustomChannel(
        absl::StrCat("127.0.0.1:", port_),
        grpc::SslCredentials({Text(mallory.ca), Text(mallory.key), Text(mallory.cert)}), own));
    ASSERT_TRUE(idle.back()->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(30))) << i;
  }
  EXPECT_TRUE(AskWith({Text(rita.ca), Text(rita.key), Text(rita.cert)}).ok());
}

TEST_F(ApiTls, CertificatesGiveTheirRoleAndNoMore) {
  const tls::Files reader = site_.User("rita", "read"), steerer = site_.User("stan", "steer"),
                   admin = site_.User("adam", "admin");
  RunResult result = As(reader, {"status", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_EQ(json::parse(result.out)["caller"]["name"], "rita");
  EXPECT_EQ(json::parse(result.out)["caller"]["role"], "read");

  result = As(reader, {"off", "--timeout", "60"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("Off needs the role steer, and rita has the role read"));
  EXPECT_EQ(As(steerer, {"off", "--timeout", "60"}).exit_code, 0);
  EXPECT_EQ(agent_.last_caller.name, "stan");
  result = As(steerer, {"mode", "protect"});
  EXPECT_THAT(result.err, HasSubstr("SetMode needs the role admin"));
  EXPECT_EQ(As(admin, {"mode", "protect"}).exit_code, 0);

  const ApiEvent last = agent_.Told().back();
  EXPECT_EQ(last.type, "audit");
  EXPECT_THAT(last.evidence, Contains(Pair("by", "adam")));
  EXPECT_THAT(last.evidence, Contains(Pair("via", HasSubstr("CN=adam, serial "))));
  EXPECT_THAT(last.evidence, Contains(Pair("via", HasSubstr("127.0.0.1"))));
}

TEST_F(ApiTls, StrangersAreRefusedAndCwctlSaysWhy) {
  tls::Site stranger("stranger");
  tls::Files foreign = stranger.User("mallory", "admin");
  foreign.ca = site_.authority_file();
  RunResult result = As(foreign, {"status"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("your certificate CN=mallory, signed by CN=stranger, is not one for clients"));

  const tls::Files late = site_.User("leo", "read", absl::Now() - absl::Hours(24 * 10), 2);
  result = As(late, {"status"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("your certificate CN=leo expired"));

  tls::Files distrusting = site_.User("dora", "read");
  distrusting.ca = stranger.authority_file();
  result = As(distrusting, {"status"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  result = As(site_.User("rita", "read"), {"status"}, "localhost");
  EXPECT_EQ(result.exit_code, 1) << "the host's certificate does not have that name";
  EXPECT_THAT(result.err, HasSubstr("is not to be trusted"));
}

// Whatever cwctl looks at before: the server itself lets none of them in.
TEST_F(ApiTls, TheServerTakesNobodyWithoutACertificateOfItsAuthority) {
  tls::Site stranger("stranger");
  const std::string ca = Text(site_.authority_file());
  const auto options = [&](const tls::Files& files) {
    return grpc::SslCredentialsOptions{
        .pem_root_certs = ca, .pem_private_key = Text(files.key), .pem_cert_chain = Text(files.cert)};
  };
  EXPECT_TRUE(AskWith(options(site_.User("rita", "read"))).ok());
  EXPECT_FALSE(AskWith({.pem_root_certs = ca, .pem_private_key = "", .pem_cert_chain = ""}).ok());
  EXPECT_FALSE(AskWith(options(stranger.User("mallory", "admin"))).ok());
  EXPECT_FALSE(AskWith(options(site_.User("leo", "read", absl::Now() - absl::Hours(24 * 10), 2))).ok());
  EXPECT_FALSE(AskWith(options(site_.Host("node18"))).ok());
  const auto plain = grpc::CreateChannel(absl::StrCat("127.0.0.1:", port_), grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  v1::StatusReply reply;
  EXPECT_FALSE(v1::Agent::NewStub(plain)->Status(&context, {}, &reply).ok()) << "no TLS";
}

TEST_F(ApiTls, NewCertificatesAreTakenWithoutARestartAndBrokenOnesAreNot) {
  const tls::Files user = site_.User("rita", "read");
  EXPECT_EQ(As(user, {"status"}).exit_code, 0);
  const tls::Files host = site_.Host("node17");  // a new pair under the old names
  EXPECT_EQ(As(user, {"status"}).exit_code, 0);
  std::vector<std::string> serials = SerialsTaken();
  ASSERT_EQ(serials.size(), 2u);
  EXPECT_NE(serials[0], serials[1]);

  const std::string good = Text(host.cert);
  tls::WriteText(host.cert, good.substr(0, good.size() / 2));
  const RunResult result = As(user, {"status"});
  EXPECT_EQ(result.exit_code, 0) << "the one it has goes on: " << result.err;
  EXPECT_EQ(SerialsTaken().size(), 2u);
  EXPECT_THAT(agent_.Told().back().text, HasSubstr("TLS goes on with the certificate it has"));
  EXPECT_TRUE(agent_.Told().back().alert);
  tls::WriteText(host.cert, good);
  EXPECT_EQ(As(user, {"status"}).exit_code, 0);
}

TEST_F(ApiTls, AnotherAuthorityForClientsTakesEffectWithoutARestart) {
  tls::Site next("next");
  const tls::Files old_user = site_.User("rita", "read");
  tls::Files new_user = next.User("nina", "read");
  EXPECT_EQ(As(old_user, {"status"}).exit_code, 0);
  tls::WriteText(site_.authority_file(), next.authority().certificate + site_.authority().certificate);
  new_user.ca = site_.authority_file();
  EXPECT_EQ(As(old_user, {"status"}).exit_code, 0);
  const RunResult result = As(new_user, {"status"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(ApiTls, ARevokedCertificateIsRefusedFromTheNextCallOn) {
  const tls::Files rita = site_.User("rita", "read"), sam = site_.User("sam", "admin");
  tls::Files files = site_.Host("node17");
  files.crl = site_.folder() + "/ca.crl";
  EXPECT_EQ(tls::Revocations(files).Load().code(), absl::StatusCode::kNotFound)
      << "a list that is named has to be there";
  const auto serial = [&](const tls::Files& of) { return *tls::SerialOf(site_.authority(), Text(of.cert)); };
  const std::string none = *tls::EmptyList(site_.authority(), absl::Now());
  const auto first = tls::Revoke(site_.authority(), none, serial(sam), absl::Now());
  ASSERT_TRUE(first.ok()) << first.status();
  tls::WriteText(files.crl, *first);
  server_.reset();
  ASSERT_NO_FATAL_FAILURE(Start(files));
  EXPECT_EQ(As(rita, {"status"}).exit_code, 0);
  EXPECT_THAT(As(sam, {"status"}).err, HasSubstr("the certificate of sam is revoked"));

  // On a connection that stands.
  const auto channel = grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", port_),
      grpc::SslCredentials(
          {.pem_root_certs = Text(rita.ca), .pem_private_key = Text(rita.key), .pem_cert_chain = Text(rita.cert)}));
  const auto ask = [&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    v1::StatusReply reply;
    return v1::Agent::NewStub(channel)->Status(&context, {}, &reply).error_code();
  };
  EXPECT_EQ(ask(), grpc::OK);
  const auto second = tls::Revoke(site_.authority(), *first, serial(rita), absl::Now());
  ASSERT_TRUE(second.ok()) << second.status();
  tls::WriteText(files.crl, *second);
  EXPECT_EQ(ask(), grpc::PERMISSION_DENIED);
  EXPECT_EQ(As(sam, {"status"}).exit_code, 1) << "the first one still is";

  // One that somebody else signed changes nothing, and is told; so does one that is cut off behind a good one.
  tls::Site other("other");
  tls::WriteText(files.crl, *tls::EmptyList(other.authority(), absl::Now()));
  EXPECT_EQ(ask(), grpc::PERMISSION_DENIED);
  EXPECT_THAT(agent_.Told(),
              Contains(::testing::Field(&ApiEvent::text, HasSubstr("signed by none of the authorities"))));
  tls::WriteText(files.crl, none + second->substr(0, second->size() / 2));
  EXPECT_EQ(ask(), grpc::PERMISSION_DENIED);
  tls::WriteText(files.crl, none);
  EXPECT_EQ(ask(), grpc::OK) << "nobody is revoked any more";
}

TEST_F(ApiTls, OnlyItsOwnCertificatesAreRevokedAndOnce) {
  const tls::Files rita = site_.User("rita", "read");
  tls::Site other("other");
  const tls::Issued& authority = site_.authority();
  EXPECT_EQ(tls::SerialOf(authority, Text(other.User("eve", "read").cert)).status().code(),
            absl::StatusCode::kInvalidArgument);
  const std::string none = *tls::EmptyList(authority, absl::Now()), serial = *tls::SerialOf(authority, Text(rita.cert));
  EXPECT_TRUE(tls::ReadRevocations(none, authority.certificate)->empty());
  const auto list = tls::Revoke(authority, none, serial, absl::Now());
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(*tls::ReadRevocations(*list, authority.certificate),
              ::testing::ElementsAre(Pair(HasSubstr("site"), serial)));
  EXPECT_EQ(tls::Revoke(authority, *list, serial, absl::Now()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(tls::Revoke(authority, *list, "0x17", absl::Now()).status().code(), absl::StatusCode::kInvalidArgument);
  for (const std::string& broken : {std::string(), std::string("nothing"), none + list->substr(0, list->size() / 2)}) {
    EXPECT_EQ(tls::ReadRevocations(broken, authority.certificate).status().code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_FALSE(tls::Revoke(authority, broken, "17", absl::Now()).ok()) << "nothing of it would be kept";
  }
}

TEST_F(ApiTls, WithoutTlsThereIsNoTcp) {
  FakeAgent agent;
  const absl::Status status =
      Server::Start({.socket_path = site_.folder() + "/other.sock", .groups = {}, .tcp = {"127.0.0.1:1"}, .tls = {}},
                    agent)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("mutual TLS only"));
}

TEST_F(ApiTls, CwctlWantsAllOfItsOptions) {
  RunResult result = RunProgram(CWCTL_PATH, {"status", "--server", "127.0.0.1:1"}, {});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--server needs --cert"));
  result = RunProgram(CWCTL_PATH, {"status", "--server", "x:1", "--socket", "/x"}, {});
  EXPECT_EQ(result.exit_code, 2);
  const tls::Files user = site_.User("rita", "read");
  result = RunProgram(CWCTL_PATH, {"status"},
                      {{"CWFABRIC_SERVER", absl::StrCat("127.0.0.1:", port_)},
                       {"CWFABRIC_CERT", user.cert},
                       {"CWFABRIC_KEY", user.key},
                       {"CWFABRIC_CA", user.ca}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  server_.reset();
  result = As(user, {"status", "--json"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.out, HasSubstr("no agent answers on 127.0.0.1 port"));
  EXPECT_EQ(As(user, {"off"}).exit_code, 3) << "nothing of this host is switched off in its place";
}

TEST(CwctlCerts, MakeAWholeSiteThatAnAgentTakes) {
  char name[] = "/tmp/cw-certs-XXXXXX";
  const std::string folder = std::string(mkdtemp(name)) + "/pki";
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "certs");
    return RunProgram(CWCTL_PATH, arguments, {});
  };
  EXPECT_EQ(run({"ca", "--out", folder}).exit_code, 0);
  EXPECT_EQ(run({"host", "node17", "--also", "127.0.0.1", "--ca", folder}).exit_code, 0);
  const RunResult user = run({"user", "alice", "--role", "steer", "--ca", folder, "--days", "7", "--json"});
  ASSERT_EQ(user.exit_code, 0) << user.err << user.out;
  EXPECT_EQ(json::parse(user.out)["certificate"]["role"], "steer");
  struct stat info {};
  for (const char* key : {"ca.key", "node17.key", "alice.key"}) {
    ASSERT_EQ(stat((folder + "/" + key).c_str(), &info), 0) << key;
    EXPECT_EQ(info.st_mode & 0777, 0600u) << key;
  }
  ASSERT_EQ(stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);

  const std::string before = [&] {
    std::ostringstream t;
    t << std::ifstream(folder + "/ca.key").rdbuf();
    return t.str();
  }();
  const RunResult again = run({"ca", "--out", folder});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("is not overwritten"));
  const std::string after = [&] {
    std::ostringstream t;
    t << std::ifstream(folder + "/ca.key").rdbuf();
    return t.str();
  }();
  EXPECT_EQ(before, after);
  EXPECT_EQ(run({"user", "../bob", "--role", "read", "--ca", folder}).exit_code, 2);
  EXPECT_EQ(run({"user", "bob", "--role", "root", "--ca", folder}).exit_code, 2);
  EXPECT_THAT(run({"host", "x", "--ca", "/nonexistent"}).err, HasSubstr("cwctl certs ca"));
  EXPECT_THAT(run({"show", folder + "/alice.crt"}).out, HasSubstr("user with the role steer"));

  EXPECT_EQ(run({"user", "bob", "--role", "read", "--ca", folder}).exit_code, 0);
  const RunResult revoked = run({"revoke", folder + "/bob.crt", "--ca", folder, "--json"});
  ASSERT_EQ(revoked.exit_code, 0) << revoked.err;
  EXPECT_EQ(json::parse(revoked.out)["serials"].size(), 1u);
  EXPECT_THAT(run({"revoke", folder + "/bob.crt", "--ca", folder}).err, HasSubstr("revoked already"));
  EXPECT_EQ(run({"revoke", "--serial", "4711", "--ca", folder}).exit_code, 0);
  EXPECT_EQ(run({"revoke", "--ca", folder}).exit_code, 2) << "which one?";

  FakeAgent agent;
  const uint16_t port = FreePort();
  auto server =
      Server::Start({.socket_path = folder + "/agent.sock",
                     .groups = {},
                     .tcp = {absl::StrCat("127.0.0.1:", port)},
                     .tls = {folder + "/node17.crt", folder + "/node17.key", folder + "/ca.crt", folder + "/ca.crl"}},
                    agent);
  ASSERT_TRUE(server.ok()) << server.status();
  const RunResult status =
      RunProgram(CWCTL_PATH,
                 {"status", "--server", absl::StrCat("127.0.0.1:", port), "--cert", folder + "/alice.crt", "--key",
                  folder + "/alice.key", "--ca", folder + "/ca.crt"},
                 {});
  EXPECT_EQ(status.exit_code, 0) << status.err;
  server->reset();
  std::filesystem::remove_all(std::filesystem::path(folder).parent_path());
}

}  // namespace
}  // namespace cw::api
