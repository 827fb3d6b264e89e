// SPDX-License-Identifier: Apache-2.0
//
// gRPC (1.51) waits for its next timer by the wall clock: one that is set back by a day stops timers for a day, and
// with them deadlines, handshakes and connection attempts. A thread of the process sees each set of the clock
// (timerfd_create(2), TFD_TIMER_CANCEL_ON_SET) and makes gRPC wait anew. Any thread.
#pragma once

namespace cw::api {

void WatchClockForGrpc();  // once in a process; later calls do nothing
void WakeGrpcTimers();

}  // namespace cw::api
