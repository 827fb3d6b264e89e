// SPDX-License-Identifier: Apache-2.0
#include "userspace/doors/guests.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_format.h"

namespace cw::doors {
namespace {

constexpr rlim_t kUsual = 1024, kMost = 1 << 20, kLeast = 256;

}  // namespace

ino_t InodeOf(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

void Guests::LookAgain(std::vector<Place>& places) {
  count_ -= std::erase_if(places, [](const Place& place) { return InodeOf(place.fd) != place.inode; });
}

void Guests::LookAtAll() {
  for (auto& [guest, places] : places_) LookAgain(places);
  std::erase_if(places_, [](const auto& guest) { return guest.second.empty(); });
}

Guests::Answer Guests::Admit(int fd, const std::string& guest) {
  if (const auto its = places_.find(guest); its != places_.end() && its->second.size() >= limits_.each) {
    LookAgain(its->second);
    if (its->second.size() >= limits_.each) return Answer::kTooManyOfIts;
  }
  if (count_ >= limits_.all) LookAtAll();
  if (count_ >= limits_.all) return Answer::kTooManyInAll;
  places_[guest].push_back({fd, InodeOf(fd)});
  ++count_;
  return Answer::kIn;
}

std::vector<int> Guests::Of(const std::string& guest) const {
  std::vector<int> fds;
  const auto its = places_.find(guest);
  if (its == places_.end()) return fds;
  for (const Place& place : its->second) fds.push_back(place.fd);
  return fds;
}

void Guests::Leave(int fd, const std::string& guest) {
  const auto its = places_.find(guest);
  if (its == places_.end()) return;
  count_ -= std::erase_if(its->second, [fd](const Place& place) { return place.fd == fd; });
  if (its->second.empty()) places_.erase(its);
}

size_t ShareOfDescriptors(size_t wanted, size_t part) {
  rlimit limit{};
  const rlim_t most = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : kUsual;
  return std::min<size_t>(wanted, most / part);
}

absl::Status EnoughDescriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kLeast) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("the limit on open files is %d, and %d are needed at least; raise it (ulimit -n, or LimitNOFILE= "
                      "in the unit)",
                      limit.rlim_cur, kLeast));
}

void RaiseDescriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kMost));
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace cw::doors
