// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/incidents/shelf.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "userspace/fleet/findings/finding.h"

namespace cw::fleet {
namespace {

namespace fs = std::filesystem;
namespace pb = cwfabric::v1;

}  // namespace

absl::StatusOr<std::unique_ptr<Shelf>> Shelf::Open(const std::string& folder, const ShelfLimits& limits,
                                                   std::function<void(const std::string&)> tell) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot make ", folder, ": ", error.message()));
  fs::permissions(folder, fs::perms::owner_all, error);
  std::unique_ptr<Shelf> shelf(new Shelf(folder, limits, std::move(tell)));
  if (absl::Status status = shelf->Load(); !status.ok()) return status;
  return shelf;
}

absl::Status Shelf::Load() {
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (absl::EndsWith(name, ".part") || absl::EndsWith(name, ".new")) unlink(it->path().c_str());
    absl::string_view id = name;
    if (!absl::ConsumeSuffix(&id, kEnding) || !ParseId(id)) continue;
    absl::StatusOr<pb::Incident> head = ReadHead(it->path().string());
    if (!head.ok()) tell_(absl::StrCat(it->path().string(), ": ", std::string(head.status().message())));
    if (!head.ok()) continue;
    head->set_id(std::string(id));
    Keep(*std::move(head));
  }
  if (error) return absl::UnavailableError(absl::StrCat("cannot list ", folder_, ": ", error.message()));
  MakeRoom();
  return absl::OkStatus();
}

void Shelf::Keep(pb::Incident head) {
  head.clear_rules();
  head.clear_fabric();
  head.clear_topology();
  std::error_code error;
  const uint64_t bytes = fs::file_size(PathOf(head.id()), error);
  if (error) return;
  head.set_bytes(bytes);
  const std::pair key{head.taken_ns(), head.id()};
  entries_[key] = {std::move(head), bytes};
}

void Shelf::MakeRoom() {
  uint64_t bytes = 0;
  for (const auto& [key, entry] : entries_) bytes += entry.bytes;
  while (entries_.size() > 1 && (bytes > limits_.bytes || entries_.size() > limits_.incidents)) {
    const auto oldest = entries_.begin();
    unlink(PathOf(oldest->second.head.id()).c_str());
    tell_(absl::StrCat("incident ", oldest->second.head.id(), " is removed, to make room for newer ones"));
    bytes -= oldest->second.bytes;
    ++removed_;
    entries_.erase(oldest);
  }
}

void Shelf::Put(const pb::Incident& head) {
  Keep(head);
  MakeRoom();
}

absl::StatusOr<std::string> Shelf::Find(const std::string& id) const {
  const std::optional<uint64_t> number = ParseId(id);
  const std::string name = number ? IdText(*number) : "";
  for (const auto& [key, entry] : entries_) {
    if (number && entry.head.id() == name) return PathOf(name);
  }
  return absl::NotFoundError(absl::StrCat("no incident ", id, "; see cwctl incident list"));
}

std::vector<pb::Incident> Shelf::List() const {
  std::vector<pb::Incident> heads;
  for (auto at = entries_.rbegin(); at != entries_.rend(); ++at) heads.push_back(at->second.head);
  return heads;
}

}  // namespace cw::fleet
