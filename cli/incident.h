// SPDX-License-Identifier: Apache-2.0
//
// How cwctl incident shows things. One thread.
#pragma once

#include "userspace/api/incident.pb.h"

namespace cw::cli {

void ShowIncidentList(const cwfabric::v1::IncidentListReply& reply, bool colour);
// `all`: every path, every step and every second; else the first of them.
void ShowIncidentView(const cwfabric::v1::IncidentView& view, bool all, bool colour);
void ShowIncidentReplay(const cwfabric::v1::IncidentReplay& replay, bool colour);

}  // namespace cw::cli
