// SPDX-License-Identifier: Apache-2.0
//
// Labels that operators and batch systems give to processes: cwctl label. Thread rule: the agent's loop.
#pragma once

#include "absl/status/statusor.h"
#include "userspace/agent/journal.h"
#include "userspace/agent/label_book.h"
#include "userspace/api/caller.h"
#include "userspace/api/cwfabric.pb.h"

namespace cw::agent {

namespace v1 = ::cwfabric::v1;

// No label: what is there goes. NotFound: there is nothing to clear; else LabelBook's errors.
absl::StatusOr<v1::ActionReply> SetLabel(LabelBook& labels, Journal& journal, const api::Caller& caller,
                                         const v1::LabelRequest& request);
v1::LabelsReply ListLabels(const LabelBook& labels);

}  // namespace cw::agent
