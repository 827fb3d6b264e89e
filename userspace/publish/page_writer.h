// SPDX-License-Identifier: Apache-2.0
//
// Writes the page that libcwclock reads (libcwclock/cwclock_page.h says how it is laid out and locked).
// The file is made beside its final name and renamed into place; it is never truncated. What an earlier agent left
// there stays in place while readers can still use it and we have nothing better; then it is replaced and marked as
// retired, so that readers change over with their next call. Only one writer per path: the agent's lock on its instance
// sees to it. Threads: one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcwclock/cwclock_page.h"

namespace cw::publish {

struct PageOptions {
  std::string path;                        // on a tmpfs; its folder must exist
  std::optional<gid_t> group;              // given: only this group may read it (0640); otherwise everybody (0644)
  clockid_t base_clock = CLOCK_MONOTONIC;  // or CLOCK_MONOTONIC_RAW
};

class PageWriter {
 public:
  static absl::StatusOr<std::unique_ptr<PageWriter>> Create(const PageOptions& options);
  // Leaves the file: its last line is good until void_after_ns.
  ~PageWriter();
  PageWriter(const PageWriter&) = delete;
  PageWriter& operator=(const PageWriter&) = delete;

  // No system call, except when the file is put in place. line.epoch is counted on from an earlier agent's.
  absl::Status Write(const cw_clock_line& line);
  // Takes the page away: fleet time is not published any more. Write(unknown) first tells those who have it open.
  absl::Status Withdraw();
  bool in_place() const { return in_place_; }

 private:
  PageWriter(PageOptions options, std::string made_as, cw_clock_page* page);
  absl::Status PutInPlace();
  bool EarlierIsGood(int64_t mono_ns) const;

  PageOptions options_;
  std::string made_as_;                   // name before the rename
  cw_clock_page* page_;                   // mapped
  std::optional<cw_clock_line> earlier_;  // line of an earlier agent, of this boot
  uint32_t epoch_base_ = 0;
  bool in_place_ = false;
};

}  // namespace cw::publish
