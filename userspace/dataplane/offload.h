// SPDX-License-Identifier: Apache-2.0
//
// Does a NIC carry RoCE past the kernel? Then programs on its netdev would see none of it.
#pragma once

#include <string>

namespace cw::dataplane {

// Name of the RDMA device that offloads RoCE for the interface; empty when there is none. Software RoCE (rxe) sends and
// receives through the kernel and does not count, nor does iWARP (node_type 4: siw and others), which is no RoCE.
// sysfs_root: "/sys", or a tree made for a test.
std::string RoceOffloadDevice(const std::string& sysfs_root, const std::string& ifname);

}  // namespace cw::dataplane
