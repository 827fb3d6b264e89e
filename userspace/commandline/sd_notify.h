// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cw::commandline {

// Tells systemd (sd_notify(3)'s protocol: a datagram to $NOTIFY_SOCKET). Nothing happens without systemd. Any thread.
// The first call opens a socket, which stays open: make it at the start. A watchdog that had to open one when no
// descriptor is left would have systemd kill a healthy agent.
void SdNotify(const std::string& state);

}  // namespace cw::commandline
