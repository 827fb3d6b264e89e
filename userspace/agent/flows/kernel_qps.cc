// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/flows/kernel_qps.h"

#include <algorithm>
#include <set>

#include "userspace/rdma/placement.h"

namespace cw::agent {

void KernelQps::Read() {
  if (lists_ == nullptr) {
    absl::StatusOr<std::unique_ptr<rdma::QpLists>> opened = open_();
    if (!opened.ok()) return;
    lists_ = *std::move(opened);
  }
  absl::StatusOr<std::vector<rdma::Link>> links = lists_->Links();
  const absl::StatusOr<std::vector<rdma::Qp>> qps = lists_->Qps();
  if (!links.ok() || !qps.ok()) {
    // The devices are there still: who speaks for their queue pairs is not believed meanwhile.
    lists_.reset();  // what is left of a broken answer would be taken for the next one
    return;
  }
  links_ = *std::move(links);
  NameRdmaDevices();
  rdma::KernelCover cover;
  std::vector<rdma::QpInfo> list;
  datagrams_.clear();
  for (const NicState& nic : nics_) {
    if (nic.had_rdma) cover.addresses.insert(nic.address);  // with the device all of its queue pairs went
    for (const rdma::Link& link : links_) {
      if (nic.ifindex == link.ifindex) TakeQps(nic, link, *qps, list, cover);
    }
  }
  AddConnections(list);
  for (const rdma::QpInfo& ended : qps_.ReplaceKernelList(list, cover)) owners_.OnOwnerGone(ended);
  ends_.OnList(list, std::move(cover));
}

void KernelQps::TakeQps(const NicState& nic, const rdma::Link& link, const std::vector<rdma::Qp>& qps,
                        std::vector<rdma::QpInfo>& list, rdma::KernelCover& cover) {
  for (const rdma::Qp& qp : qps) {
    if (link.device_index != qp.device_index) continue;
    cover.there.insert({nic.address, qp.lqpn});
    rdma::QpInfo info{.lqpn = qp.lqpn, .pid = qp.pid, .comm = qp.comm, .device = link.device, .state = qp.state};
    if (qp.type == rdma::kQpTypeUd) datagrams_[{nic.address, qp.lqpn}] = info;
    if (rdma::IsConnected(qp)) {
      info.rqpn = qp.rqpn;
      info.laddr = nic.address;
      info.source = "nldev";
      list.push_back(std::move(info));
    } else if (qp.rqpn != 0) {  // it waits, or has failed: it is there, to whomever
      cover.sends.insert({.src = nic.address, .dst = {}, .dqpn = qp.rqpn});
    }
  }
}

void KernelQps::NameRdmaDevices() {
  for (NicState& nic : nics_) {
    nic.rdma_devices.clear();
    for (const rdma::Link& link : links_) {
      if (link.ifindex == nic.ifindex) nic.rdma_devices.push_back(link.device);
    }
    nic.had_rdma = nic.had_rdma || !nic.rdma_devices.empty();
  }
}

// rdma_cm knows both ends of its connections, and gives both the same flow label.
void KernelQps::AddConnections(std::vector<rdma::QpInfo>& list) {
  const bool lacks = std::any_of(list.begin(), list.end(), [](const rdma::QpInfo& qp) { return qp.raddr.is_zero(); });
  if (!lacks) return;
  const absl::StatusOr<std::vector<rdma::CmId>> ids = lists_->CmIds();
  if (!ids.ok()) {
    lists_.reset();
    return;
  }
  std::set<std::pair<uint32_t, uint16_t>> listened;
  for (const rdma::CmId& id : *ids) {
    if (id.listens) listened.insert({id.device_index, id.local_port});
  }
  for (const rdma::CmId& id : *ids) {
    const auto link = std::find_if(links_.begin(), links_.end(),
                                   [&](const rdma::Link& l) { return l.device_index == id.device_index; });
    if (id.lqpn == 0 || id.remote.is_zero() || link == links_.end()) continue;
    for (rdma::QpInfo& qp : list) {
      if (qp.lqpn != id.lqpn || qp.device != link->device || qp.laddr != id.local) continue;
      const bool accepted = listened.contains({id.device_index, id.local_port});
      qp.raddr = id.remote;
      qp.raddr_by_kernel = true;
      qp.label_known = true;
      qp.flow_label = id.flowinfo != 0 ? id.flowinfo & 0xfffff
                      : accepted       ? rdma::LabelOfCmPorts(id.remote_port, id.local_port)
                                       : rdma::LabelOfCmPorts(id.local_port, id.remote_port);
    }
  }
}

rdma::KernelWord KernelQps::WordOn(const rdma::QpInfo& qp) {
  if (lists_ == nullptr || links_.empty()) Read();
  rdma::KernelWord word;
  const auto nic = std::find_if(nics_.begin(), nics_.end(), [&](const NicState& n) { return n.address == qp.laddr; });
  if (nic == nics_.end()) return {.asked = !links_.empty(), .there = true};
  for (const rdma::Link& link : links_) {
    if (link.ifindex != nic->ifindex) continue;
    word.asked = true;
    word.there |= lists_ == nullptr;
    if (lists_ == nullptr) continue;
    const absl::StatusOr<rdma::Qp> known = lists_->FindQp(link, qp.lqpn);
    if (!known.ok() && !absl::IsNotFound(known.status())) word.there = true;  // it did not say no
    if (!known.ok()) continue;
    word = {.asked = true,
            .there = true,
            .by_kernel = known->pid == 0 && !known->comm.empty(),
            .pid = known->pid,
            .rqpn = known->rqpn};
    if (word.pid == qp.pid) break;  // two devices of one NIC may both have the number
  }
  // The device of a NIC may go by another name, as a bond's does: then nothing is proven.
  if (!word.asked && !links_.empty()) return {.asked = true, .there = true};
  return word;
}

}  // namespace cw::agent
