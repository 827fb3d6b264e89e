// SPDX-License-Identifier: Apache-2.0
#include "userspace/doors/newcomers.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "userspace/doors/guests.h"

namespace cw::doors {
namespace {

constexpr std::chrono::milliseconds kLookAgain{10};
constexpr absl::Duration kMostPatience = absl::Seconds(4);  // cwctl waits for 10 s
constexpr double kFar = 4;                                  // times as long as is typical
constexpr double kOfEach = 1.0 / 16;                        // what one weighs in that

}  // namespace

bool Newcomers::Lives(const Connection& connection) { return InodeOf(connection.fd) == connection.inode; }

void Newcomers::Shut(const Connection& connection) {
  if (Lives(connection)) (void)shutdown(connection.fd, SHUT_RDWR);
}

void Newcomers::Erase(Place newcomer) {
  by_peer_.erase(newcomer->peer);
  by_fd_.erase(newcomer->fd);
  Count(newcomer->guest, -1);
  newcomers_.erase(newcomer);
}

void Newcomers::Count(const std::string& guest, int change) {
  size_t& count = counts_[guest];
  if (count > 0) by_size_.erase({count, guest});
  count = change < 0 && count == 0 ? 0 : count + static_cast<size_t>(change);
  if (count > 0)
    by_size_.emplace(count, guest);
  else
    counts_.erase(guest);
}

void Newcomers::Came(const std::string& guest) {
  if (limits_.most == 0) return;
  const std::lock_guard lock(mutex_);
  Count(guest, 1);
}

void Newcomers::Went(const std::string& guest) {
  if (limits_.most == 0) return;
  const std::lock_guard lock(mutex_);
  Count(guest, -1);
}

std::pair<std::string, size_t> Newcomers::Largest() {
  const std::lock_guard lock(mutex_);
  if (by_size_.empty()) return {"", 0};
  const auto& [count, guest] = *by_size_.rbegin();
  return {guest, count};
}

void Newcomers::EraseDead(Time now) {
  if (now - looked_ < kLookAgain) return;
  looked_ = now;
  for (auto it = newcomers_.begin(); it != newcomers_.end();) {
    const Place each = it++;
    if (!Lives(*each)) Erase(each);
  }
}

bool Newcomers::HasSpace(Time now) {
  if (limits_.most == 0) return true;
  const std::lock_guard lock(mutex_);
  if (newcomers_.size() >= limits_.most) EraseDead(now);
  if (newcomers_.size() < limits_.most) return true;
  const Place oldest = newcomers_.begin();
  const absl::Duration patience =
      std::clamp(kFar * typical_, limits_.patience, std::max(limits_.patience, kMostPatience));
  if (absl::FromChrono(now - oldest->since) < patience) return false;
  Shut(*oldest);
  Erase(oldest);
  ++ended_;
  return true;
}

void Newcomers::Add(int fd, const std::string& peer, const std::string& guest, Time now) {
  if (limits_.most == 0) return;
  const std::lock_guard lock(mutex_);
  if (peer.empty()) return Count(guest, -1);
  Leave(peer);
  newcomers_.push_back({fd, InodeOf(fd), peer, guest, now, ""});
  by_peer_[peer] = by_fd_[fd] = std::prev(newcomers_.end());
}

// A connection from the same port: the one before is over.
void Newcomers::Leave(const std::string& peer) {
  if (const auto old = by_peer_.find(peer); old != by_peer_.end()) Erase(old->second);
  const auto old = known_by_peer_.find(peer);
  if (old == known_by_peer_.end()) return;
  const auto its = known_.find(old->second->who);
  its->second.erase(old->second);
  if (its->second.empty()) known_.erase(its);
  known_by_peer_.erase(old);
}

void Newcomers::Forget(int fd) {
  if (limits_.most == 0) return;
  const std::lock_guard lock(mutex_);
  if (const auto old = by_fd_.find(fd); old != by_fd_.end()) Erase(old->second);
}

bool Newcomers::End(int fd) {
  const std::lock_guard lock(mutex_);
  const auto found = by_fd_.find(fd);
  if (found == by_fd_.end()) return false;
  Shut(*found->second);
  Erase(found->second);
  ++ended_;
  return true;
}

std::optional<std::pair<int, std::string>> Newcomers::EndOldest() {
  const std::lock_guard lock(mutex_);
  if (newcomers_.empty()) return std::nullopt;
  const std::pair ended{newcomers_.front().fd, newcomers_.front().guest};
  Shut(newcomers_.front());
  Erase(newcomers_.begin());
  ++ended_;
  return ended;
}

bool Newcomers::Known(const std::string& peer, const std::string& who, Time now) {
  if (limits_.most == 0) return false;
  const std::lock_guard lock(mutex_);
  if (const auto old = known_by_peer_.find(peer); old != known_by_peer_.end()) {
    std::list<Connection>& its = known_[old->second->who];
    its.splice(its.end(), its, old->second);
    return false;
  }
  const auto newcomer = by_peer_.find(peer);
  if (newcomer == by_peer_.end()) return false;  // ended already
  Connection connection = *newcomer->second;
  typical_ += kOfEach * (absl::FromChrono(now - connection.since) - typical_);
  Erase(newcomer->second);
  connection.who = who;
  std::list<Connection>& its = known_[who];
  its.push_back(std::move(connection));
  known_by_peer_[peer] = std::prev(its.end());
  KeepFew(its);
  LookAtKnown();
  return true;
}

void Newcomers::KeepFew(std::list<Connection>& its) {
  if (its.size() <= limits_.of_one) return;
  const auto dead = [this](const Connection& each) {
    if (Lives(each)) return false;
    known_by_peer_.erase(each.peer);
    return true;
  };
  its.remove_if(dead);
  if (its.size() <= limits_.of_one) return;
  Shut(its.front());
  known_by_peer_.erase(its.front().peer);
  its.pop_front();
  ++crowding_;
}

// Nobody says when one ends.
void Newcomers::LookAtKnown() {
  if (known_by_peer_.size() < look_at_) return;
  std::erase_if(known_by_peer_, [this](const auto& entry) {
    if (Lives(*entry.second)) return false;
    known_[entry.second->who].erase(entry.second);
    return true;
  });
  std::erase_if(known_, [](const auto& entry) { return entry.second.empty(); });
  look_at_ = std::max<size_t>(1024, 2 * known_by_peer_.size());
}

}  // namespace cw::doors
