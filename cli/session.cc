// SPDX-License-Identifier: Apache-2.0
#include "cli/session.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <sstream>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "cli/columns.h"
#include "cli/format.h"
#include "cli/table.h"
#include "userspace/api/json.h"

namespace cw::cli {

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kInvalidArgument:
      return kUsage;
    case absl::StatusCode::kUnavailable:
      return kNoAgent;
    case absl::StatusCode::kUnimplemented:
      return kUnsupported;
    default:
      return kFailed;
  }
}

absl::StatusOr<double> ParseFor(const std::string& text) {
  if (text.empty()) return 0.0;
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration < absl::Seconds(1) || duration > absl::Hours(24 * 365)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--for %s: give a duration with its unit, from 1s on, such as 90s, 30m or 2h", text));
  }
  return absl::ToDoubleSeconds(duration);
}

std::string Session::SocketPath() const {
  return socket.empty() ? absl::StrFormat("/run/cwfabric/%s/agent.sock", instance) : socket;
}

api::Client& Session::Agent() {
  if (agent_ == nullptr) agent_ = NewClient(Timeout(absl::Seconds(5)));
  return *agent_;
}

std::unique_ptr<api::Client> Session::NewClient(absl::Duration timeout) const {
  return IsRemote() ? std::make_unique<api::Client>(remote, timeout, Words())
                    : std::make_unique<api::Client>(SocketPath(), timeout, Words());
}

std::string Session::Where() const { return IsRemote() ? remote.server : SocketPath(); }

// A socket on the command line means this host, whatever the environment says of a server; main sees to that.
absl::Status Session::CheckOptions() const {
  if (!IsRemote()) return absl::OkStatus();
  if (!socket.empty()) return absl::InvalidArgumentError("give either --socket or --server");
  for (const auto& [option, file] :
       {std::pair{"--cert", &remote.tls.cert}, {"--key", &remote.tls.key}, {"--ca", &remote.tls.ca}}) {
    if (file->empty())
      return absl::InvalidArgumentError(absl::StrFormat(
          "--server needs %s as well: an agent takes nobody over TCP without a certificate; see cwctl certs --help",
          option));
  }
  return absl::OkStatus();
}

bool Session::Colour() const { return !json && ColourWanted(STDOUT_FILENO); }

std::string Session::Self() const {
  if (IsRemote())
    return absl::StrFormat("cwctl --server %s --cert %s --key %s --ca %s", remote.server, remote.tls.cert,
                           remote.tls.key, remote.tls.ca);
  if (!socket.empty()) return "cwctl --socket " + socket;
  return instance == "default" ? "cwctl" : "cwctl --instance " + instance;
}

void Session::Show(const google::protobuf::Message& reply, const std::function<void()>& text) const {
  if (!json) {
    text();
  } else {
    // Names that other programs chose need not be UTF-8.
    std::cout << api::ToJson(reply).dump(one_line_ ? -1 : 2, ' ', false, nlohmann::json::error_handler_t::replace)
              << '\n';
  }
  std::cout.flush();
}

void Session::ShowAction(const cwfabric::v1::ActionReply& reply) const {
  Show(reply, [&] {
    std::cout << Printable(reply.effect()) << '\n';
    if (reply.pending()) {
      std::cout << "pending: it waits for a moment that reorders nothing, which a busy queue pair may not have; see\n"
                   "  steer show. --force moves it at once, at the price of one go-back-N\n";
    }
    if (reply.reverts_s() > 0) std::cout << "reverts by itself in " << DurationText(reply.reverts_s()) << '\n';
    if (!reply.undo().empty()) std::cout << "undo: " << Self() << " " << Printable(reply.undo()) << '\n';
  });
}

void Session::ShowError(const absl::Status& status) const {
  const std::string message(status.message());
  if (json) {
    const nlohmann::ordered_json error = {
        {"error", {{"code", absl::StatusCodeToString(status.code())}, {"message", message}}}};
    std::cout << error.dump(one_line_ ? -1 : 2, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    return;
  }
  // Lines after the first are set in: none of them passes for one of cwctl's own.
  std::cerr << "cwctl: " << absl::StrReplaceAll(PrintableLines(message), {{"\n", "\n  "}}) << std::endl;
}

void Session::AddWatch(CLI::App& verb, Watch& watch) {
  verb.add_flag("--watch{1s}", watch.every, "Show again every second, or as often as --watch=INTERVAL says");
  verb.add_option("--count", watch.count, "With --watch: how often to show, 0 = until interrupted");
}

// Of the agent, which may be another host's.
std::string Session::HostText() {
  absl::StatusOr<cwfabric::v1::StatusReply> status = Agent().Status();
  if (!status.ok()) return Where();
  return absl::StrCat(status->host_name(), ", instance ", status->instance());
}

absl::Status Session::CheckWatch(const Watch& watch, const std::string& positional) {
  if (watch.every.empty() || positional.empty()) return absl::OkStatus();
  double seconds = 0;
  absl::Duration duration;
  const bool number = absl::SimpleAtod(positional, &seconds);
  if (!number && !absl::ParseDuration(positional, &duration)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("--watch takes its interval behind a \"=\": --watch=%s%s", positional, number ? "s" : ""));
}

// Below the title and the line that the cursor stands on: what scrolled away would take the title with it.
static absl::StatusOr<int> OnScreen(const std::function<absl::StatusOr<int>()>& once) {
  constexpr size_t kTitleRows = 3;
  std::ostringstream text;
  std::streambuf* const before = std::cout.rdbuf(text.rdbuf());
  const absl::StatusOr<int> result = once();
  std::cout.rdbuf(before);
  const size_t rows = TerminalRows();
  std::cout << FirstRows(text.str(), rows > kTitleRows ? rows - kTitleRows : 0) << std::flush;
  return result;
}

absl::StatusOr<int> Session::Repeat(const Watch& watch, const std::function<absl::StatusOr<int>()>& once) {
  if (watch.every.empty()) return once();
  absl::Duration every;
  if (!absl::ParseDuration(watch.every, &every) || every < absl::Milliseconds(100)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--watch=%s: give an interval with its unit, from 100ms on", watch.every));
  }
  one_line_ = true;
  const std::string host = json ? "" : watch.of_fleet ? "fleet service " + fleet : HostText();
  const bool screen = !json && isatty(STDOUT_FILENO) != 0;
  absl::StatusOr<int> result = kOk;
  for (uint64_t round = 1; result.ok(); ++round) {
    if (screen) std::cout << "\033[H\033[J";
    if (!screen && !json && round > 1) std::cout << '\n';
    // Several of these stand side by side, and a screen that stands still looks like one that is up to date.
    if (!json) {
      std::cout << Paint(UtcText(absl::ToUnixNanos(absl::Now())) + "  " + host, Tone::kTitle, Colour()) << "\n\n";
    }
    result = screen ? OnScreen(once) : once();
    if (!std::cout || round == watch.count) break;
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(every));
  }
  return result;
}

}  // namespace cw::cli
