// SPDX-License-Identifier: Apache-2.0
//
// A site's authority and certificates in a folder that goes with the test. Keys are made anew each time.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "userspace/tls/authority.h"
#include "userspace/tls/certificate.h"

namespace cw::tls {

void WriteText(const std::string& path, const std::string& text, unsigned mode = 0600);

class Site {
 public:
  explicit Site(const std::string& name = "site");
  ~Site();
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  // NAME.crt and NAME.key in the folder, replacing what was there; `days` may be so few that it is over.
  Files Host(const std::string& name, const std::vector<std::string>& others = {"127.0.0.1"});
  Files User(const std::string& name, const std::string& role, absl::Time made = absl::Now(), int days = 1);

  const std::string& folder() const { return folder_; }
  const Issued& authority() const { return authority_; }
  std::string authority_file() const { return folder_ + "/ca.crt"; }

 private:
  Files Store(const std::string& name, const absl::StatusOr<Issued>& issued);

  std::string folder_;
  Issued authority_;
};

}  // namespace cw::tls
