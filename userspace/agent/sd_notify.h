// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cw::agent {

// Tells systemd (sd_notify(3)'s protocol: a datagram to $NOTIFY_SOCKET). Nothing happens without systemd. Any thread.
void SdNotify(const std::string& state);

}  // namespace cw::agent
