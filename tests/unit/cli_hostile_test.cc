// SPDX-License-Identifier: Apache-2.0
//
// Hostile words through every verb of cwctl: an agent and a fleet service that put escapes, newlines and marks that
// turn text into every string of every answer. None of them reaches a terminal, as text or as JSON.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/session.h"
#include "tests/unit/cli_run.h"
#include "tests/unit/tls_files.h"
#include "tests/unit/tls_grpc.h"
#include "userspace/api/cwfabric.grpc.pb.h"
#include "userspace/api/fleet.grpc.pb.h"
#include "userspace/api/incident.grpc.pb.h"
#include "userspace/commandline/command.h"
#include "userspace/model/printable.h"

namespace cw::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// A new screen, a title, C1's CSI, two marks that turn text, a separator of lines, and the beginning of a line.
constexpr char kEvil[] =
    "evil\nFORGED \x1b[2J\x1b]0;title\x07\xc2\x9b"
    "31m\xe2\x80\xae\xe2\x81\xa6\r\x7f\xe2\x80\xa8"
    "end";

void FillOne(Message& message, const FieldDescriptor& field, int depth);

void Fill(Message& message, int depth = 0) {
  constexpr int kDeep = 8;
  if (depth > kDeep) return;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const bool other_of_oneof =
        field.real_containing_oneof() != nullptr && field.real_containing_oneof()->field(0) != &field;
    if (!other_of_oneof) FillOne(message, field, depth);
  }
}

void FillOne(Message& message, const FieldDescriptor& field, int depth) {
  const google::protobuf::Reflection& r = *message.GetReflection();
  const bool many = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text = field.type() == FieldDescriptor::TYPE_BYTES ? std::string("\x0a\x1b\x9b\x0a") : kEvil;
      return many ? r.AddString(&message, &field, text) : r.SetString(&message, &field, text);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return Fill(many ? *r.AddMessage(&message, &field) : *r.MutableMessage(&message, &field), depth + 1);
    case FieldDescriptor::CPPTYPE_ENUM: {
      const auto* value = field.enum_type()->value(field.enum_type()->value_count() - 1);
      return many ? r.AddEnum(&message, &field, value) : r.SetEnum(&message, &field, value);
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return many ? void() : r.SetBool(&message, &field, true);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return many ? void() : r.SetDouble(&message, &field, 1.5);
    case FieldDescriptor::CPPTYPE_UINT32:
      return many ? r.AddUInt32(&message, &field, 1) : r.SetUInt32(&message, &field, 1);
    case FieldDescriptor::CPPTYPE_INT32:
      return many ? void() : r.SetInt32(&message, &field, 1);
    case FieldDescriptor::CPPTYPE_UINT64:
      return many ? void() : r.SetUInt64(&message, &field, 1);
    case FieldDescriptor::CPPTYPE_INT64:
      return many ? void() : r.SetInt64(&message, &field, 1'700'000'000'000'000'000);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return many ? void() : r.SetFloat(&message, &field, 1.5F);
  }
}

// Answers any call of any service: with a message that is full of kEvil, or with an error that says it.
class Answer final : public grpc::ServerGenericBidiReactor {
 public:
  Answer(std::string method, bool fails) : method_(std::move(method)), fails_(fails) { StartRead(&request_); }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    const std::vector<std::string> parts = absl::StrSplit(method_, '/');  // "", service, method
    const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(parts[1]);
    if (fails_ || service == nullptr) return Finish({grpc::StatusCode::FAILED_PRECONDITION, kEvil});
    const auto& factory = *google::protobuf::MessageFactory::generated_factory();
    const std::unique_ptr<Message> reply(const_cast<google::protobuf::MessageFactory&>(factory)
                                             .GetPrototype(service->FindMethodByName(parts[2])->output_type())
                                             ->New());
    Fill(*reply);
    const grpc::Slice slice(reply->SerializeAsString());
    reply_ = grpc::ByteBuffer(&slice, 1);
    StartWriteAndFinish(&reply_, {}, grpc::Status::OK);
  }
  void OnDone() override { delete this; }

  const std::string method_;
  const bool fails_;
  grpc::ByteBuffer request_, reply_;
};

class HostileService final : public grpc::CallbackGenericService {
 public:
  bool fails = false;

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    return new Answer(context->method(), fails);
  }
};

struct Verb {
  std::vector<std::string> words;
  std::vector<commandline::Option> positionals, options;
};

void Collect(const commandline::Command& command, std::vector<std::string> words, std::vector<Verb>& out) {
  for (const commandline::Command& below : command.commands) {
    words.push_back(below.name);
    Collect(below, words, out);
    words.pop_back();
  }
  if (command.commands.empty()) out.push_back({words, command.positionals, command.options});
}

std::vector<Verb> AllVerbs() {
  Session session;
  CLI::App app("", "cwctl");
#define CW_CLI_ADD(add) add(app, session);
  CW_CLI_VERBS(CW_CLI_ADD)
#undef CW_CLI_ADD
  std::vector<Verb> verbs;
  Collect(commandline::Describe(app), {}, verbs);
  return verbs;
}

class HostileWords : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/cw-hostile-XXXXXX";
    folder_ = mkdtemp(name);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", tls::ServerOf(site_.Host("fleet1")), &port_);
    builder.AddListeningPort("unix:" + folder_ + "/agent.sock", grpc::InsecureServerCredentials());
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::string Sample(const Verb& verb, const commandline::Option& option) const {
    if (!option.choices.empty()) return option.choices[0];
    if (absl::StrContains(option.value, "FILE") || absl::StrContains(option.value, "PATH")) return folder_ + "/file";
    if (verb.words[0] == "steer" || verb.words[0] == "why") return "0x11";
    return "1";
  }
  RunResult Run(const Verb& verb, bool with_positionals, const std::vector<std::string>& more) {
    // A verb that waits for what never comes is ended.
    std::vector<std::string> arguments = {"-k", "1", "2", CWCTL_PATH};
    arguments.insert(arguments.end(), verb.words.begin(), verb.words.end());
    for (const commandline::Option& option : verb.positionals) {
      if (with_positionals || option.required) arguments.push_back(Sample(verb, option));
    }
    for (const commandline::Option& option : verb.options) {
      if (!option.required) continue;
      arguments.push_back(option.names[0]);
      arguments.push_back(Sample(verb, option));
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::map<std::string, std::string> environment = {{"CWFABRIC_SOCKET", folder_ + "/agent.sock"},
                                                      {"CWFABRIC_TIMEOUT", "3"}};
    if (verb.words[0] == "fleet" || verb.words[0] == "incident") {
      for (const auto& [key, value] : {std::pair{"FLEET", absl::StrCat("127.0.0.1:", port_)},
                                       {"CERT", user_.cert},
                                       {"KEY", user_.key},
                                       {"CA", user_.ca}})
        environment[absl::StrCat("CWFABRIC_", key)] = value;
    }
    return RunProgram("/usr/bin/timeout", arguments, environment);
  }
  // What a terminal would make of it.
  static void ExpectTame(const std::string& text, const std::string& of) {
    EXPECT_EQ(text, PrintableLines(text)) << of;
    for (const absl::string_view line : absl::StrSplit(text, '\n'))
      EXPECT_FALSE(absl::StartsWith(line, "FORGED")) << of << ":\n" << text;
  }

  std::string folder_;
  tls::Site site_;
  tls::Files user_ = site_.User("alice", "steer");
  HostileService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Of files, of this machine, or of shells: they ask nobody.
bool AsksSomebody(const Verb& verb) {
  for (const char* local : {"certs", "completion", "label", "replay", "report"}) {
    if (verb.words[0] == local) return false;
  }
  return true;
}

TEST_F(HostileWords, ReachNoTerminalByAnyVerb) {
  int shown = 0, asked = 0;
  std::string usage;
  for (const Verb& verb : AllVerbs()) {
    if (!AsksSomebody(verb)) continue;
    bool waits = false;  // for what never comes: once is enough
    for (const bool positionals : {false, true}) {
      if (waits || (positionals && verb.positionals.empty())) continue;
      for (const bool json : {false, true}) {
        const std::string of =
            absl::StrCat(absl::StrJoin(verb.words, " "), positionals ? " with all" : "", json ? " --json" : "");
        SCOPED_TRACE(of);
        const RunResult run =
            Run(verb, positionals, json ? std::vector<std::string>{"--json"} : std::vector<std::string>());
        ExpectTame(run.out, of);
        ExpectTame(run.err, of);
        ++asked;
        const bool hostile = absl::StrContains(run.out + run.err, "FORGED");
        shown += hostile;
        EXPECT_TRUE(!hostile || !json || absl::StrContains(run.out, "\\u202e")) << "programs get what was sent";
        waits |= run.exit_code == 124;
        if (run.exit_code == 2) absl::StrAppend(&usage, of, ": ", run.out, run.err);
      }
    }
  }
  std::printf("%d runs, %d showed what was hostile\n%s", asked, shown, usage.c_str());
  EXPECT_GT(asked, 100);
  EXPECT_GT(shown, asked / 2);
}

TEST_F(HostileWords, ReachNoTerminalByAnyError) {
  service_.fails = true;
  int shown = 0;
  for (const Verb& verb : AllVerbs()) {
    if (!AsksSomebody(verb)) continue;
    const std::string of = absl::StrJoin(verb.words, " ");
    const RunResult run = Run(verb, true, {});
    ExpectTame(run.out, of);
    ExpectTame(run.err, of);
    shown += absl::StrContains(run.out + run.err, "FORGED");
  }
  EXPECT_GT(shown, 40);
}

}  // namespace
}  // namespace cw::cli
