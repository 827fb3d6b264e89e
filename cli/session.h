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
  std::string fleet_host, fleet_at;  // of reading verbs: answered by the fleet service, of this host, as it was then
  bool instance_given = false;       // it was typed, so it is meant

  // What the typed verb does. The number is the exit code; errors are printed by the caller.
  std::function<absl::StatusOr<int>()> action;

  std::string SocketPath() const;
  // InvalidArgument: the options name both a socket and a server, or a server without the files that it takes.
  absl::Status CheckOptions() const;
  bool IsRemote() const { return !remote.server.empty(); }
  // The socket, or the server.
  std::string Where() const;
  api::Client& Agent();
  std::unique_ptr<api::Client> NewClient(absl::Duration timeout) const;
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
    std::string every;   // "" = once
    uint64_t count = 0;  // rounds, 0 = until interrupted
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

// Registered by each verb's file.
void AddStatusVerbs(CLI::App& app, Session& session);
void AddDoctorVerb(CLI::App& app, Session& session);
void AddClockVerbs(CLI::App& app, Session& session);
void AddPathVerbs(CLI::App& app, Session& session);
void AddQpVerbs(CLI::App& app, Session& session);
void AddEventVerbs(CLI::App& app, Session& session);
void AddSteerVerbs(CLI::App& app, Session& session);
void AddModeVerbs(CLI::App& app, Session& session);
void AddWhyVerb(CLI::App& app, Session& session);
void AddDrainVerbs(CLI::App& app, Session& session);
void AddJobVerbs(CLI::App& app, Session& session);
void AddLabelVerb(CLI::App& app, Session& session);
void AddNicsVerb(CLI::App& app, Session& session);
void AddReplayVerb(CLI::App& app, Session& session);
void AddReportVerb(CLI::App& app, Session& session);
void AddFleetVerbs(CLI::App& app, Session& session);
void AddIncidentVerbs(CLI::App& app, Session& session);
void AddCertsVerbs(CLI::App& app, Session& session);
void AddCompletionVerb(CLI::App& app, Session& session);  // after all others, of which it tells

}  // namespace cw::cli
