// SPDX-License-Identifier: Apache-2.0
// Labels that operators and batch systems give to processes: cwctl label.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/label_book.h"

namespace cw::agent {

namespace v1 = api::v1;

absl::StatusOr<v1::ActionReply> Agent::DoSetLabel(const api::Caller& caller, const v1::LabelRequest& request) {
  v1::ActionReply reply;
  const bool of_process = request.pid() != 0, of_group = !request.cgroup().empty();
  const std::string whose = of_process ? absl::StrCat("process ", request.pid())
                            : of_group ? absl::StrCat("control group ", request.cgroup())
                                       : "every process and control group";
  if (request.label().empty()) {
    const size_t cleared = of_process ? labels_->ClearPid(request.pid())
                           : of_group ? labels_->ClearCgroup(request.cgroup())
                                      : labels_->ClearAll();
    if (cleared == 0 && (of_process || of_group))
      return absl::NotFoundError(absl::StrCat(whose, " has no label; cwctl label list shows those that are given"));
    reply.set_effect(absl::StrCat("label of ", whose, " taken away"));
  } else {
    const absl::Status set = of_process ? labels_->SetPid(request.pid(), request.label())
                                        : labels_->SetCgroup(request.cgroup(), request.label());
    if (!set.ok()) return set;
    reply.set_effect(absl::StrCat(whose, of_group ? " and all below is " : " is ", request.label()));
    reply.set_undo(of_process ? absl::StrCat("label clear --pid ", request.pid())
                              : absl::StrCat("label clear --cgroup ", request.cgroup()));
  }
  journal_.LogAct(caller, {.type = "agent", .text = reply.effect()});
  return reply;
}

absl::StatusOr<v1::ActionReply> Agent::Label(const v1::LabelRequest& request, const api::Caller& caller) {
  return loop_->Call<v1::ActionReply>([this, caller, request] { return DoSetLabel(caller, request); });
}

absl::StatusOr<v1::LabelsReply> Agent::Labels(const v1::LabelsRequest&, const api::Caller&) {
  return loop_->Call<v1::LabelsReply>([this] {
    v1::LabelsReply reply;
    for (const agent::Label& label : labels_->All()) {
      v1::ProcessLabel& out = *reply.add_labels();
      out.set_pid(label.pid);
      out.set_cgroup(label.cgroup);
      out.set_label(label.label);
    }
    return absl::StatusOr<v1::LabelsReply>(std::move(reply));
  });
}

}  // namespace cw::agent
