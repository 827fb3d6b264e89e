// SPDX-License-Identifier: Apache-2.0
//
// One run of cwctl: the options that every verb has, and how results and errors leave it.
// A verb's file registers its verbs with the parser; the verb that was typed becomes `action`.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "userspace/api/client.h"

namespace CLI {
class App;
}

namespace cw::cli {

enum ExitCode { kOk = 0, kFailed = 1, kUsage = 2, kNoAgent = 3, kUnsupported = 4 };

ExitCode ExitCodeOf(const absl::Status& status);

class Session {
 public:
  // Options of every verb.
  bool json = false;
  std::string instance = "default";
  std::string socket;                // "" = that of the instance
  api::RemoteAgent remote;           // server "" = the agent of this host
  std::string fleet;                 // the fleet service, HOST:PORT; "" = none
  bool fleet_typed = false;          // not from the environment
  std::string fleet_host, fleet_at;  // of reading verbs: answered by the fleet service, of this host, as it was then
  bool instance_given = false;       // it was typed, so it is meant
  double timeout_s = 0;              // of each call; 0 = as long as is usual for it
  bool timeout_typed = false;        // it is not the environment's

  // What the typed verb does. The number is the exit code; errors are printed by the caller.
  std::function<absl::StatusOr<int>()> action;

  std::string SocketPath() const;
  // InvalidArgument: the options name both a socket and a server, or a server without the files that it takes.
  absl::Status CheckOptions() const;
  bool IsRemote() const { return !remote.server.empty(); }
  // The socket, or the server.
  std::string Where() const;
  api::Client& Agent();
  absl::Duration Timeout(absl::Duration usual) const { return timeout_s > 0 ? absl::Seconds(timeout_s) : usual; }
  std::unique_ptr<api::Client> NewClient(absl::Duration timeout) const;
  // People read what others chose to say without what would move their terminal.
  void ForPeople(google::protobuf::Message& message) const {
    if (!json) api::MakePrintable(message);
  }
  api::Words Words() const { return json ? api::Words::kAsSent : api::Words::kPrintable; }
  bool Colour() const;
  // "cwctl" with the options that lead to this agent: for lines that people paste.
  std::string Self() const;

  // Prints the message as JSON, or calls `text` when people read.
  void Show(const google::protobuf::Message& reply, const std::function<void()>& text) const;
  // An action's effect and the line that undoes it.
  void ShowAction(const cwfabric::v1::ActionReply& reply) const;
  void ShowError(const absl::Status& status) const;

  // --watch: runs `once` again and again. Registers --watch[=INTERVAL] and --count with the verb.
  struct Watch {
    std::string every;      // "" = once
    uint64_t count = 0;     // rounds, 0 = until interrupted
    bool of_fleet = false;  // what is shown is the fleet service's
  };
  static void AddWatch(CLI::App& verb, Watch& watch);
  // A positional argument that was meant as --watch's interval, which stands behind a "=".
  static absl::Status CheckWatch(const Watch& watch, const std::string& positional);
  absl::StatusOr<int> Repeat(const Watch& watch, const std::function<absl::StatusOr<int>()>& once);

 private:
  std::unique_ptr<api::Client> agent_;
  std::string HostText();
  bool one_line_ = false;  // JSON documents one per line
};

// "30m" as seconds. InvalidArgument with what is wanted.
absl::StatusOr<double> ParseFor(const std::string& text);

// Each of cwctl's verbs: X(function that adds it, of its own file in cli/).
#define CW_CLI_VERBS(X)                                          \
  X(AddStatusVerbs)                                              \
  X(AddDoctorVerb)                                               \
  X(AddNicsVerb)                                                 \
  X(AddPathVerbs)                                                \
  X(AddQpVerbs)                                                  \
  X(AddClockVerbs)                                               \
  X(AddEventVerbs)                                               \
  X(AddSteerVerbs)                                               \
  X(AddDrainVerbs)                                               \
  X(AddModeVerbs)                                                \
  X(AddWhyVerb)                                                  \
  X(AddJobVerbs)                                                 \
  X(AddLabelVerb)                                                \
  X(AddReplayVerb)                                               \
  X(AddReportVerb)                                               \
  X(AddFleetVerbs)                                               \
  X(AddIncidentVerbs)                                            \
  X(AddCertsVerbs)                                               \
  X(AddFleetReading)    /* --host and --at of verbs before it */ \
  X(AddCompletionVerb)  // after all others, of which it tells

#define CW_CLI_DECLARE(add) void add(CLI::App& app, Session& session);
CW_CLI_VERBS(CW_CLI_DECLARE)

}  // namespace cw::cli
