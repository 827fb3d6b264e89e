// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/query/hop_book.h"

#include <utility>

namespace cw::fleet {
namespace {

constexpr size_t kMostNames = 40'000;  // of a host, twice what the store keeps: beyond, it begins anew
constexpr size_t kManyNames = 64;      // from so many on one reading of all is less work

}  // namespace

std::shared_ptr<const HopBook::Lists> HopBook::Cached(const std::string& host) {
  const std::lock_guard lock(mutex_);
  const auto known = hosts_.find(host);
  return known == hosts_.end() ? nullptr : known->second.lists;
}

std::vector<uint64_t> HopBook::Lacking(const std::string& host, const std::set<uint64_t>& names, absl::Time now) {
  const std::lock_guard lock(mutex_);
  Host& known = hosts_[host];
  if (known.lists == nullptr || known.lists->size() > kMostNames) known.lists = std::make_shared<Lists>();
  if (known.missed.size() > kMostNames) known.missed.clear();
  std::vector<uint64_t> lacking;
  for (const uint64_t name : names) {
    if (name == 0 || known.lists->contains(name)) continue;
    const auto missed = known.missed.find(name);
    if (missed == known.missed.end() || now - missed->second >= kMissHolds) lacking.push_back(name);
  }
  return lacking;
}

absl::StatusOr<std::shared_ptr<const HopBook::Lists>> HopBook::Of(const std::string& host,
                                                                  const std::set<uint64_t>& names, absl::Time now) {
  const std::vector<uint64_t> lacking = Lacking(host, names, now);
  Lists found;
  if (lacking.size() >= kManyNames) {
    const absl::StatusOr<std::vector<HopList>> all = store_.AllHops(host);
    if (!all.ok() && !absl::IsNotFound(all.status())) return all.status();
    if (all.ok()) {
      for (const HopList& list : *all) found[list.id] = list.hops;
    }
  }
  for (const uint64_t name : lacking) {
    if (lacking.size() >= kManyNames) break;
    absl::StatusOr<HopList> list = store_.Hops(host, name);
    if (!list.ok() && !absl::IsNotFound(list.status())) return list.status();
    if (list.ok()) found[name] = std::move(list->hops);
  }
  const std::lock_guard lock(mutex_);
  Host& known = hosts_[host];
  for (const uint64_t name : lacking) {
    if (!found.contains(name)) known.missed[name] = now;
  }
  if (!found.empty()) {
    auto more = std::make_shared<Lists>(*known.lists);
    more->merge(found);
    known.lists = std::move(more);
  }
  return known.lists;
}

}  // namespace cw::fleet
