// SPDX-License-Identifier: Apache-2.0
//
// Where a fault is, as a regular expression for scopes: by names, by addresses, or by both. Pure.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "userspace/lab/fabric_layout.h"

namespace cw::lab {

inline std::string OfAddress(const std::string& address) {
  return absl::StrCat("(^|[^0-9.])", absl::StrReplaceAll(address, {{".", "\\."}}), "($|[^0-9.])");
}
inline std::string OfHost(int host) { return absl::StrCat("\\bh", host, "\\b"); }
inline std::string OfLeaf(int leaf) { return absl::StrCat("^switch.*\\bleaf", leaf, "\\b"); }
inline std::string OfSpine(int spine) { return absl::StrCat("^switch.*\\bspine", spine, "\\b"); }
// Its own link is a NIC's, too.
inline std::string OfNic(int host, const std::string& device, const std::string& address) {
  return absl::StrCat(OfAddress(address), "|\\b", device, " of h", host, "\\b");
}
// One direction, the right one, by the port where it ends.
inline std::string OfLink(const std::string& from, const std::string& to, const std::string& port) {
  return absl::StrCat("^link.*(>|> )", absl::StrReplaceAll(port, {{".", "\\."}}), "($|[^0-9.])|^link.*\\b", from,
                      "\\b.*>.*\\b", to, "\\b");
}
inline std::string OfUplink(int leaf, int spine) {
  return OfLink(absl::StrCat("leaf", leaf), absl::StrCat("spine", spine), SpineAddr(leaf, spine));
}
inline std::string OfDownlink(int spine, int leaf) {
  return OfLink(absl::StrCat("spine", spine), absl::StrCat("leaf", leaf), LeafAddr(leaf, spine));
}
// Both directions, or one of them where that is said of the whole.
inline std::string OfCable(int leaf, int spine) {
  return absl::StrCat("^cable.*\\bleaf", leaf, "\\b.*\\bspine", spine, "\\b|^cable.*\\bspine", spine, "\\b.*\\bleaf",
                      leaf, "\\b");
}

}  // namespace cw::lab
