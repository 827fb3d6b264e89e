// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/label_orders.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace cw::agent {
namespace {

enum class Whose : uint8_t { kProcess, kGroup, kAll };

Whose WhoseOf(const v1::LabelRequest& request) {
  if (request.pid() != 0) return Whose::kProcess;
  return request.cgroup().empty() ? Whose::kAll : Whose::kGroup;
}

std::string Text(const v1::LabelRequest& request) {
  switch (WhoseOf(request)) {
    case Whose::kProcess:
      return absl::StrCat("process ", request.pid());
    case Whose::kGroup:
      return absl::StrCat("control group ", request.cgroup());
    case Whose::kAll:
      break;
  }
  return "every process and control group";
}

size_t Clear(LabelBook& labels, const v1::LabelRequest& request) {
  switch (WhoseOf(request)) {
    case Whose::kProcess:
      return labels.ClearPid(request.pid());
    case Whose::kGroup:
      return labels.ClearCgroup(request.cgroup());
    case Whose::kAll:
      break;
  }
  return labels.ClearAll();
}

}  // namespace

absl::StatusOr<v1::ActionReply> SetLabel(LabelBook& labels, Journal& journal, const api::Caller& caller,
                                         const v1::LabelRequest& request) {
  v1::ActionReply reply;
  const std::string whose = Text(request);
  const bool of_process = WhoseOf(request) == Whose::kProcess;
  if (request.label().empty()) {
    if (Clear(labels, request) == 0 && WhoseOf(request) != Whose::kAll)
      return absl::NotFoundError(absl::StrCat(whose, " has no label; cwctl label list shows those that are given"));
    reply.set_effect(absl::StrCat("label of ", whose, " taken away"));
  } else {
    const absl::Status set = of_process ? labels.SetPid(request.pid(), request.label())
                                        : labels.SetCgroup(request.cgroup(), request.label());
    if (!set.ok()) return set;
    reply.set_effect(absl::StrCat(whose, of_process ? " is " : " and all below is ", request.label()));
    reply.set_undo(of_process ? absl::StrCat("label clear --pid ", request.pid())
                              : absl::StrCat("label clear --cgroup ", request.cgroup()));
  }
  journal.LogAct(caller, {.type = "agent", .text = reply.effect()});
  return reply;
}

v1::LabelsReply ListLabels(const LabelBook& labels) {
  v1::LabelsReply reply;
  for (const Label& label : labels.All()) {
    v1::ProcessLabel& out = *reply.add_labels();
    out.set_pid(label.pid);
    out.set_cgroup(label.cgroup);
    out.set_label(label.label);
  }
  return reply;
}

}  // namespace cw::agent
