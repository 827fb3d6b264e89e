// SPDX-License-Identifier: Apache-2.0
//
// The program cwfleetd: hosts' uplinks in, one SQLite file, answers for cwctl. docs/fleet.md.
#pragma once

namespace cw::fleet {

// The exit status of main: 0 ended as asked, 1 failed, 2 usage.
int DaemonMain(int argc, char** argv);

}  // namespace cw::fleet
