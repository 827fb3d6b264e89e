// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/tls_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/time/clock.h"

namespace cw::tls {

// Under another name first: a reader finds the old text or the new one.
void WriteText(const std::string& path, const std::string& text, unsigned mode) {
  const std::string draft = path + ".new";
  std::ofstream(draft, std::ios::binary) << text;
  EXPECT_EQ(chmod(draft.c_str(), mode), 0);
  std::filesystem::rename(draft, path);
}

Site::Site(const std::string& name) {
  char folder[] = "/tmp/cw-tls-XXXXXX";
  folder_ = mkdtemp(folder);
  absl::StatusOr<Issued> made = MakeAuthority(name, {.now = absl::Now() - absl::Hours(24 * 30), .days = 365});
  EXPECT_TRUE(made.ok()) << made.status();
  authority_ = *std::move(made);
  WriteText(authority_file(), authority_.certificate);
}

Site::~Site() { std::filesystem::remove_all(folder_); }

Files Site::Host(const std::string& name, const std::vector<std::string>& others) {
  return Store(name, MakeHost(authority_, name, others, {.now = absl::Now(), .days = 30}));
}

Files Site::User(const std::string& name, const std::string& role, absl::Time made, int days) {
  return Store(name, MakeUser(authority_, name, role, {.now = made, .days = days}));
}

Files Site::Store(const std::string& name, const absl::StatusOr<Issued>& issued) {
  EXPECT_TRUE(issued.ok()) << issued.status();
  const Files files{
      .cert = folder_ + "/" + name + ".crt", .key = folder_ + "/" + name + ".key", .ca = authority_file()};
  WriteText(files.key, issued->key);
  WriteText(files.cert, issued->certificate);
  return files;
}

}  // namespace cw::tls
