// SPDX-License-Identifier: Apache-2.0
//
// The seam between cwlab's verbs: each group registers its subcommands from a file of its own, main runs the one that
// was asked for. A verb's callback calls Finish exactly once.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"

namespace cw::lab {

enum ExitCode { kExitOk = 0, kExitFailed = 1, kExitUsage = 2, kExitNotSupported = 4 };

struct Cli {
  bool json = false;         // --json: one JSON document on stdout, errors too
  std::string lab = "lab0";  // --lab
  int exit_code = kExitOk;

  // Prints the error ({"error": {"code", "message"}} with --json, else to stderr), or the result: `result` with
  // --json, else `text` (may be empty). Sets exit_code.
  void Finish(const absl::Status& status, const nlohmann::json& result, const std::string& text);
};

// up, down, status, exec, fault, hash.
void AddFabricVerbs(CLI::App& app, Cli& cli);
void AddFaultVerb(CLI::App& app, Cli& cli);
void AddDemoVerb(CLI::App& app, Cli& cli);
void AddFleetDemoVerb(CLI::App& app, Cli& cli);
void AddRunVerb(CLI::App& app, Cli& cli);
void AddTrafficVerb(CLI::App& app, Cli& cli);

}  // namespace cw::lab
