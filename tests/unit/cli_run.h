// SPDX-License-Identifier: Apache-2.0
//
// Runs a program as a person would, without a terminal, and keeps what it said.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace cw::cli {

struct RunResult {
  int exit_code = -1;  // −1: ended by a signal
  std::string out, err;
};

// PATH-less: program is a path. The environment is that of the test plus `extra`.
RunResult RunProgram(const std::string& program, const std::vector<std::string>& arguments,
                     const std::map<std::string, std::string>& extra = {});

}  // namespace cw::cli
