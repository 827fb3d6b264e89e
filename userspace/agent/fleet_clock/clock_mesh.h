// SPDX-License-Identifier: Apache-2.0
//
// The audit of the links that a host hears of: its own and those of its neighbours, who tell theirs once a second. Over
// loops the differences of fleet times must add up to nothing, so a link that is slower one way than the other shows,
// and a host that is wrong about itself does on most of its links (sync/mesh.h). Up to 17 hosts that is the whole
// fleet. It names; it moves no clock. Pure; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace cw::agent {

// What one host measures of another: the other's fleet time − its own.
struct LinkReport {
  uint64_t peer_id = 0;  // sync::HostId
  int64_t disagreement_ns = 0;
  int64_t error_ns = 1;  // likely; > 0
};

struct AuditedLink {
  std::string from, to;
  int64_t disagreement_ns = 0;
  int64_t error_ns = 0;
  double residual_ns = 0;  // what the fleet times that fit all links best do not explain
  double deviations = 0;   // the same, in likely errors
  bool suspect = false;
};

struct MeshAudit {
  std::vector<AuditedLink> links;          // as told, by host
  std::vector<std::string> suspect_hosts;  // most of whose links are suspects
};

class LinkBook {
 public:
  explicit LinkBook(std::string host) : host_(std::move(host)) {}

  // Names by which hosts are shown; others have a label.
  void SetNames(const std::vector<std::string>& names);
  void OnReport(const std::string& peer, std::vector<LinkReport> links, int64_t now_ns);
  // own: this host's links now. Reports older than five seconds are left out.
  MeshAudit Audit(absl::Span<const LinkReport> own, int64_t now_ns) const;

 private:
  struct Told {
    std::vector<LinkReport> links;
    int64_t at_ns = 0;
  };
  std::string host_;
  std::map<uint64_t, std::string> names_;
  std::map<std::string, Told> told_;
};

}  // namespace cw::agent
