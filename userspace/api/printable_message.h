// SPDX-License-Identifier: Apache-2.0
//
// What others put into a message, made fit for terminals, logs, labels and pages at the door, so that nobody behind it
// can forget it. Pure; any thread.
#pragma once

#include "google/protobuf/message.h"

namespace cw::api {

// Of an answer's strings. Programs that read want them as they were sent; people want them Printable (model/printable).
enum class Words : bool { kAsSent, kPrintable };

// Every string of the message and of those in it; bytes stay as they are. Messages without strings cost one look.
void MakePrintable(google::protobuf::Message& message);

}  // namespace cw::api
