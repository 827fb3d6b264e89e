// SPDX-License-Identifier: Apache-2.0
//
// cwctl incident as people run it: against a service on the loopback, and of files without one.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tests/unit/cli_run.h"
#include "tests/unit/tls_files.h"
#include "tests/unit/tls_grpc.h"
#include "userspace/api/fleet.grpc.pb.h"
#include "userspace/api/incident.grpc.pb.h"
#include "userspace/fleet/incidents/bundle.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kPivot = 1'800'000'000'000'000'000;

class FakeIncidents final : public v1::Incidents::Service {
 public:
  std::mutex mutex;
  v1::IncidentTakeRequest asked;
  std::string file;

  grpc::Status Take(grpc::ServerContext*, const v1::IncidentTakeRequest* request, v1::Incident* reply) override {
    const std::lock_guard lock(mutex);
    asked = *request;
    reply->set_id("00000000000000ab");
    reply->add_hosts()->set_host("h1");
    return grpc::Status::OK;
  }
  grpc::Status List(grpc::ServerContext*, const v1::IncidentListRequest*, v1::IncidentListReply* reply) override {
    v1::Incident& incident = *reply->add_incidents();
    incident.set_id("00000000000000ab");
    incident.set_state("done");
    incident.set_reason("switch dead: switch spine1");
    v1::IncidentHost& host = *incident.add_hosts();
    host.set_host("h1");
    host.set_missing("it was not connected");
    reply->set_not_taken(3);
    return grpc::Status::OK;
  }
  grpc::Status Fetch(grpc::ServerContext*, const v1::IncidentFetchRequest* request,
                     grpc::ServerWriter<v1::IncidentBytes>* writer) override {
    if (request->id() != "ab") return {grpc::StatusCode::NOT_FOUND, "no incident " + request->id()};
    const std::lock_guard lock(mutex);
    for (size_t at = 0; at < file.size(); at += 100) {
      v1::IncidentBytes piece;
      piece.set_bytes(file.substr(at, 100));
      writer->Write(piece);
    }
    return grpc::Status::OK;
  }
};

std::string TextIn(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class CwctlIncident : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "cw_cli_incident_XXXXXX").string();
    folder_ = mkdtemp(name.data());
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", tls::ServerOf(site_.Host("fleet1")), &port_);
    builder.RegisterService(&others_);
    if (serves_) builder.RegisterService(&incidents_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    incidents_.file = Make();
  }
  ~CwctlIncident() override { std::filesystem::remove_all(folder_); }

  // One host, one path that died at the pivot.
  std::string Make() const {
    auto writer = fleet::BundleWriter::Create(folder_ + "/made").value();
    v1::IncidentRecord record;
    record.mutable_seconds()->set_host("h1");
    for (int second = -2; second < 2; ++second) {
      v1::RingSecond out;
      out.set_run(1);
      out.set_from_ns(kPivot + second * int64_t{1'000'000'000});
      out.set_to_ns(out.from_ns() + 1'000'000'000);
      v1::RingName& path = *out.add_names();
      path.set_path(1);
      path.set_local("\n\0\0\1", 4);
      path.set_remote("\n\0\0\2", 4);
      path.set_peer("h2\x1b[31m");
      path.set_udp_port(50'001);
      out.add_paths()->set_path(1);
      if (second >= 0) out.mutable_paths(0)->set_state(v1::PATH_STATE_DEAD);
      record.mutable_seconds()->add_seconds(out.SerializeAsString());
    }
    EXPECT_TRUE(writer->Add(record).ok());
    v1::Incident head;
    head.set_id("00000000000000ab");
    head.set_reason("a test");
    head.set_from_ns(kPivot - 2'000'000'000);
    head.set_to_ns(kPivot + 2'000'000'000);
    head.set_pivot_ns(kPivot);
    head.add_hosts()->set_host("h1");
    EXPECT_TRUE(writer->Finish(head).ok());
    return TextIn(folder_ + "/made");
  }
  RunResult Ask(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "incident");
    arguments.insert(arguments.end(), {"--fleet", absl::StrCat("127.0.0.1:", port_), "--cert", user_.cert, "--key",
                                       user_.key, "--ca", user_.ca});
    return RunProgram(CWCTL_PATH, arguments, {});
  }
  static RunResult Offline(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "incident");
    return RunProgram(CWCTL_PATH, arguments, {});
  }

  bool serves_ = true;
  std::string folder_;
  tls::Site site_;
  tls::Files user_ = site_.User("alice", "steer");
  v1::Fleet::Service others_;
  FakeIncidents incidents_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(CwctlIncident, TakeSaysWhatIsWantedAndListWhatIsThere) {
  EXPECT_THAT(Ask({"take"}).err, HasSubstr("--finding ID"));
  const RunResult taken = Ask({"take", "--host", "h1", "--host", "h2", "--at", "2027-01-15T08:00:00Z", "--for", "4m"});
  EXPECT_EQ(taken.exit_code, 0) << taken.err;
  EXPECT_EQ(incidents_.asked.hosts_size(), 2);
  EXPECT_EQ(incidents_.asked.from_ns(), kPivot - 120'000'000'000);
  EXPECT_EQ(incidents_.asked.to_ns(), kPivot + 120'000'000'000);
  EXPECT_EQ(Ask({"take", "--finding", "12"}).exit_code, 0);
  EXPECT_EQ(incidents_.asked.from_ns(), 0) << "as the service is configured";
  EXPECT_NE(Ask({"take", "--host", "h1", "--for", "soon"}).exit_code, 0);
  const RunResult list = Ask({"list"});
  EXPECT_THAT(list.out,
              AllOf(HasSubstr("00000000000000ab"), HasSubstr("switch spine1"), HasSubstr("3 were not taken")));
  const nlohmann::json reply = nlohmann::json::parse(Ask({"list", "--json"}).out, nullptr, false);
  EXPECT_EQ(reply["incidents"][0]["hosts"][0]["missing"], "it was not connected");
}

TEST_F(CwctlIncident, ShowsAndReplaysAFileWithoutAService) {
  const std::string file = folder_ + "/out.incident";
  const RunResult exported = Ask({"export", "ab", file});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_EQ(TextIn(file), incidents_.file);
  for (const RunResult& shown : {Offline({"show", file}), Ask({"show", "ab"})}) {
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_THAT(shown.out, AllOf(HasSubstr("up, then dead"), HasSubstr("+0.000 s"), Not(HasSubstr("\x1b"))));
  }
  const nlohmann::json view = nlohmann::json::parse(Offline({"show", file, "--json"}).out, nullptr, false);
  EXPECT_EQ(view["paths"][0]["worst"], "dead");
  EXPECT_EQ(view["steps"][0]["time_ns"], kPivot);
  const RunResult replay = Offline({"replay", file});
  EXPECT_EQ(replay.exit_code, 0) << replay.err;
  EXPECT_THAT(replay.out, HasSubstr("nothing is found"));
  std::ofstream(folder_ + "/rules.toml") << "nonsense = 1\n";
  EXPECT_THAT(Offline({"replay", file, "--rules", folder_ + "/rules.toml"}).err, HasSubstr("rules.toml"));

  EXPECT_THAT(Offline({"show", "ab"}).err, HasSubstr("--fleet"));
  EXPECT_THAT(Ask({"show", "77"}).err, HasSubstr("no incident 77"));
  EXPECT_NE(Ask({"export", "77", folder_ + "/none"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/none"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/none.part"));
  std::ofstream(file, std::ios::trunc) << "hello";
  EXPECT_THAT(Offline({"show", file}).err, HasSubstr("no incident"));
}

class CwctlIncidentOfAnOldService : public CwctlIncident {
 protected:
  CwctlIncidentOfAnOldService() { serves_ = false; }
};

TEST_F(CwctlIncidentOfAnOldService, IsToldToUpgrade) { EXPECT_THAT(Ask({"list"}).err, HasSubstr("upgrade cwfleetd")); }

}  // namespace
}  // namespace cw::cli
