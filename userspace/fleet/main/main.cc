// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/daemon.h"

int main(int argc, char** argv) { return cw::fleet::DaemonMain(argc, argv); }
