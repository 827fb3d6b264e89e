// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/first_attach.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/model/counted.h"

namespace cw::agent {
namespace {

constexpr uint8_t kManagement = 1;  // enum ib_qp_type: up to here queue pairs of the subsystem itself

}  // namespace

std::string WhyNotYet(uint32_t ifindex, const std::string& does,
                      const std::function<absl::StatusOr<std::unique_ptr<rdma::QpLists>>()>& open) {
  if (does.empty()) return "";
  const auto lists = open();
  if (!lists.ok()) return "";
  const absl::StatusOr<std::vector<rdma::Link>> links = (*lists)->Links();
  const absl::StatusOr<std::vector<rdma::Qp>> qps = (*lists)->Qps();
  if (!links.ok() || !qps.ok()) return "";
  const auto uses = [&](const rdma::Qp& qp) {
    return qp.type > kManagement && std::any_of(links->begin(), links->end(), [&](const rdma::Link& link) {
             return link.ifindex == ifindex && link.device_index == qp.device_index;
           });
  };
  const auto there = static_cast<size_t>(std::count_if(qps->begin(), qps->end(), uses));
  if (there == 0) return "";
  return absl::StrCat("the programs wait for a moment without queue pairs (wait_for_idle): attaching ", does, ", and ",
                      Counted(there, "queue pair"), there == 1 ? " uses it" : " use it");
}

}  // namespace cw::agent
