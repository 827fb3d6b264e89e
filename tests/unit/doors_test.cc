// SPDX-License-Identifier: Apache-2.0
// Who may come in, over real sockets: silent guests, too many of one, too many in all, no descriptors.
#include "userspace/doors/door.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "tests/unit/no_descriptors.h"

namespace cw::doors {
namespace {

using maps::UniqueFd;

constexpr absl::Duration kPatience = absl::Seconds(20);

std::unique_ptr<Door> Opened(absl::StatusOr<Listener> listener, DoorSpec spec) {
  EXPECT_TRUE(listener.ok()) << listener.status();
  if (!listener.ok()) return nullptr;
  std::vector<Listener> listeners;
  listeners.push_back(*std::move(listener));
  auto door = Door::Open(std::move(listeners), std::move(spec));
  EXPECT_TRUE(door.ok()) << door.status();
  if (!door.ok()) return nullptr;
  (*door)->Start();
  return *std::move(door);
}

// The other end has closed it.
bool Ends(const UniqueFd& fd, absl::Duration patience = kPatience) {
  pollfd one{.fd = fd.get(), .events = POLLIN, .revents = 0};
  char byte = 0;
  return poll(&one, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) == 1 &&
         recv(fd.get(), &byte, 1, MSG_DONTWAIT) <= 0;
}

class Doors : public ::testing::Test {
 protected:
  Doors() {
    char name[] = "/tmp/cw-doors-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~Doors() override { std::filesystem::remove_all(folder_); }

  std::string Path() const { return folder_ + "/d.sock"; }

  void OpenAt(DoorSpec spec) {
    spec.admit = [this](UniqueFd fd, const sockaddr_storage&) {
      const std::lock_guard lock(mutex_);
      in_.push_back(std::move(fd));
    };
    door_ = Opened(Listener::Unix(Path(), 0600), std::move(spec));
    ASSERT_NE(door_, nullptr);
  }

  static UniqueFd Socket() { return UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }
  bool Connect(const UniqueFd& fd) const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", Path().c_str());
    return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  UniqueFd Come(bool speaks) const {
    UniqueFd fd = Socket();
    EXPECT_TRUE(Connect(fd));
    if (speaks) {
      (void)send(fd.get(), "x", 1, MSG_NOSIGNAL);  // it may be sent away already
    }
    return fd;
  }
  size_t In() {
    const std::lock_guard lock(mutex_);
    return in_.size();
  }
  bool Comes(size_t many) {
    for (const absl::Time end = absl::Now() + kPatience; absl::Now() < end;) {
      if (In() == many) return true;
      (void)door_->Answers(absl::Seconds(1));  // a turn of its loop
    }
    return In() == many;
  }

  std::string folder_;
  std::mutex mutex_;
  std::vector<UniqueFd> in_;
  std::unique_ptr<Door> door_;
};

TEST_F(Doors, WhoSpeaksComesInWhoIsSilentGoes) {
  OpenAt({.silent = absl::Milliseconds(50)});
  const UniqueFd silent = Come(false);
  EXPECT_TRUE(Ends(silent));
  EXPECT_EQ(door_->counts().silent, 1u);
  const UniqueFd speaks = Come(true);
  EXPECT_TRUE(Comes(1));
  char first = 0;
  EXPECT_EQ(recv(in_[0].get(), &first, 1, MSG_DONTWAIT), 1);
  EXPECT_EQ(first, 'x') << "nothing of what it said is taken away";
}

TEST_F(Doors, WhoGoesAtOnceIsNobody) {
  OpenAt({});
  { const UniqueFd gone = Come(false); }
  const UniqueFd speaks = Come(true);
  EXPECT_TRUE(Comes(1));
  EXPECT_EQ(door_->counts().admitted, 1u);
}

// Whoever has the descriptors closes them without a word.
TEST_F(Doors, OneGuestHasSoManyPlacesAndGetsThemBack) {
  OpenAt({.limits = {.each = 3, .all = 100}});
  std::vector<UniqueFd> guests;
  for (int i = 0; i < 3; ++i) guests.push_back(Come(true));
  ASSERT_TRUE(Comes(3));
  EXPECT_TRUE(Ends(Come(true)));
  EXPECT_EQ(door_->counts().too_many, 1u);
  {
    const std::lock_guard lock(mutex_);
    in_.erase(in_.begin());
  }
  const UniqueFd next = Come(true);
  EXPECT_TRUE(Comes(3));
}

TEST_F(Doors, ASilentGuestMakesSpaceForOneWhoComes) {
  int guest = 0;
  OpenAt({.limits = {.each = 1, .all = 2}, .silent = absl::Hours(1), .screen = [&guest](int, const sockaddr_storage&) {
            return std::optional<std::string>(std::to_string(guest++));
          }});
  const UniqueFd first = Come(false), second = Come(false);
  const UniqueFd third = Come(true);
  EXPECT_TRUE(Comes(1));
  EXPECT_TRUE(Ends(first)) << "the oldest";
  const UniqueFd fourth = Come(true);
  EXPECT_TRUE(Comes(2));
  EXPECT_TRUE(Ends(second));
  EXPECT_TRUE(Ends(Come(true))) << "nobody is silent any more";
  EXPECT_EQ(door_->counts().full, 1u);
}

TEST_F(Doors, WhoIsScreenedOutNeverWaits) {
  OpenAt({.screen = [](int, const sockaddr_storage&) { return std::optional<std::string>(); }});
  EXPECT_TRUE(Ends(Come(false)));
  EXPECT_EQ(door_->counts().screened, 1u);
}

// gRPC's own listener stopped for good then.
TEST_F(Doors, WithoutDescriptorsGuestsHearAnEndAndLaterOnesComeIn) {
  OpenAt({});
  const UniqueFd one = Socket(), two = Socket();
  {
    const NoDescriptors none;
    ASSERT_TRUE(none.none_left());
    ASSERT_TRUE(Connect(one));
    EXPECT_TRUE(Ends(one));
    ASSERT_TRUE(Connect(two));
    EXPECT_TRUE(Ends(two));
  }
  EXPECT_GE(door_->counts().no_descriptors, 2u);
  const UniqueFd later = Come(true);
  EXPECT_TRUE(Comes(1));
}

TEST_F(Doors, AnswersWhileManyAreSilent) {
  OpenAt({.limits = {.each = 1000, .all = 1000}, .silent = absl::Hours(1)});
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(Come(false));
  EXPECT_TRUE(door_->Answers(kPatience));
  const UniqueFd speaks = Come(true);
  EXPECT_TRUE(Comes(1));
}

TEST_F(Doors, ASecondOneOnALivingSocketIsRefusedAndADeadOnesPlaceIsTaken) {
  OpenAt({});
  EXPECT_TRUE(absl::IsAlreadyExists(Listener::Unix(Path(), 0600).status()));
  struct stat info {};
  ASSERT_EQ(stat(Path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  door_.reset();
  EXPECT_FALSE(std::filesystem::exists(Path()));
}

// Over TCP, whose ends have addresses: of 127.0.0.0/8.
class Newcomers : public ::testing::Test {
 protected:
  void Open(DoorSpec spec) {
    absl::StatusOr<Listener> listener =
        Listener::Tcp({.kind = config::Listen::Kind::kTcp, .address = "127.0.0.1", .port = 0});
    ASSERT_TRUE(listener.ok()) << listener.status();
    socklen_t size = sizeof(at_);
    ASSERT_EQ(getsockname(listener->fd(), reinterpret_cast<sockaddr*>(&at_), &size), 0);
    spec.admit = [this](UniqueFd fd, const sockaddr_storage& from) {
      const std::lock_guard lock(mutex_);
      in_.push_back(PeerOf(from));
      fds_.push_back(std::move(fd));
    };
    door_ = Opened(std::move(listener), std::move(spec));
    ASSERT_NE(door_, nullptr);
  }
  UniqueFd Come(int host, bool speaks = true) const {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in own{.sin_family = AF_INET};
    own.sin_addr.s_addr = htonl(0x7f000000 + static_cast<uint32_t>(host));
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&at_), sizeof(at_)), 0);
    if (speaks) {
      (void)send(fd.get(), "x", 1, MSG_NOSIGNAL);
    }
    return fd;
  }
  std::string PeerOfGuest(const UniqueFd& fd) const {
    sockaddr_storage own{};
    socklen_t size = sizeof(own);
    EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
    return PeerOf(own);
  }
  bool IsIn(const UniqueFd& fd) {
    const std::string peer = PeerOfGuest(fd);
    for (const absl::Time end = absl::Now() + kPatience; absl::Now() < end;) {
      {
        const std::lock_guard lock(mutex_);
        if (std::find(in_.begin(), in_.end(), peer) != in_.end()) return true;
      }
      (void)door_->Answers(absl::Seconds(1));
    }
    return false;
  }
  std::vector<std::string> In() {
    const std::lock_guard lock(mutex_);
    return in_;
  }

  sockaddr_storage at_{};
  std::mutex mutex_;
  std::vector<std::string> in_;
  std::vector<UniqueFd> fds_;
  std::unique_ptr<Door> door_;
};

TEST_F(Newcomers, WaitUntilOthersAreKnown) {
  Open({.newcomers = {.most = 2, .patience = absl::Hours(1)}});
  const UniqueFd first = Come(1), second = Come(2);
  ASSERT_TRUE(IsIn(first) && IsIn(second));
  const UniqueFd third = Come(3);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(door_->Answers(kPatience));
  EXPECT_EQ(In().size(), 2u);
  door_->Known(PeerOfGuest(first), "anna");
  EXPECT_TRUE(IsIn(third));
  EXPECT_EQ(door_->counts().ended, 0u);
}

// As half of a TLS greeting: it spoke, and goes no further.
TEST_F(Newcomers, EndAfterAWhileWhereOthersWait) {
  Open({.newcomers = {.most = 1, .patience = absl::Milliseconds(50)}});
  const UniqueFd first = Come(1);
  ASSERT_TRUE(IsIn(first));
  const UniqueFd second = Come(2);
  EXPECT_TRUE(IsIn(second));
  EXPECT_TRUE(Ends(first));
  EXPECT_EQ(door_->counts().ended, 1u);
}

// On a slow machine handshakes take long, and do not end for each other.
TEST(NewcomersBook, PatienceIsThatOfThoseWhoBecameKnown) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  doors::Newcomers book({.most = 1, .patience = absl::Seconds(1)});
  auto now = std::chrono::steady_clock::now();
  const auto in = [&now](int seconds) { return now + std::chrono::seconds(seconds); };
  book.Add(ends[0], "a:1", "a", now);
  EXPECT_FALSE(book.HasSpace(now));
  EXPECT_TRUE(book.HasSpace(in(2))) << "so long as nobody became known a second is enough";
  for (int i = 0; i < 50; ++i) {
    book.Add(ends[0], "a:1", "a", now);
    now = in(1);
    EXPECT_TRUE(book.Known("a:1", "anna", now));
    book.Add(ends[0], "a:1", "a", now);  // as if it came anew
  }
  EXPECT_FALSE(book.HasSpace(in(3)));
  EXPECT_TRUE(book.HasSpace(in(5)));
  close(ends[0]);
  close(ends[1]);
}

// 64 addresses that come one after the other, and one guest of another.
TEST_F(Newcomers, WhoHasMostMakesSpace) {
  Open({.limits = {.each = 100, .all = 10}, .newcomers = {.most = 50, .patience = absl::Hours(1)}});
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 10; ++i) {
    flood.push_back(Come(2 + i % 2));
    ASSERT_TRUE(IsIn(flood.back()));
  }
  const UniqueFd silent = Come(9, false), speaks = Come(8);
  ASSERT_TRUE(IsIn(speaks));
  for (int i = 0; i < 30; ++i) flood.push_back(Come(2 + i % 2));
  ASSERT_TRUE(IsIn(flood.back()));
  EXPECT_FALSE(Ends(speaks, absl::ZeroDuration()));
  EXPECT_FALSE(Ends(silent, absl::ZeroDuration()));
}

// A flood of one address does not make others wait behind it.
TEST_F(Newcomers, OfOneGuestTakeTheirTurn) {
  Open({.newcomers = {.most = 1, .patience = absl::Hours(1)}});
  std::vector<UniqueFd> flood;
  flood.push_back(Come(1));
  ASSERT_TRUE(IsIn(flood[0]));
  for (int i = 1; i < 8; ++i) flood.push_back(Come(1));
  const UniqueFd other = Come(2);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(door_->Answers(kPatience));
  door_->Known(PeerOfGuest(flood[0]), "anna");
  while (In().size() < 2) ASSERT_TRUE(door_->Answers(kPatience));
  door_->Known(In().back(), "anna");
  EXPECT_TRUE(IsIn(other)) << "the third turn at the latest";
  EXPECT_LE(In().size(), 3u);
}

// Behind one address (NAT) are an attacker and a host.
TEST_F(Newcomers, MakeSpaceForLaterOnesOfTheirAddress) {
  Open({.limits = {.each = 3, .all = 100}, .newcomers = {.most = 50, .patience = absl::Hours(1)}});
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 3; ++i) {
    flood.push_back(Come(1));
    ASSERT_TRUE(IsIn(flood.back()));
  }
  const UniqueFd host = Come(1);
  EXPECT_TRUE(IsIn(host));
  EXPECT_TRUE(Ends(flood[0])) << "the oldest";
  door_->Known(PeerOfGuest(host), "h1");
  for (int i = 0; i < 5; ++i) flood.push_back(Come(1));
  ASSERT_TRUE(IsIn(flood.back()));
  EXPECT_FALSE(Ends(host, absl::ZeroDuration())) << "who is known stays";
}

TEST_F(Newcomers, MakeSpaceWhereAllPlacesAreTaken) {
  Open({.limits = {.each = 10, .all = 2}, .newcomers = {.most = 50, .patience = absl::Hours(1)}});
  const UniqueFd first = Come(1), second = Come(2);
  ASSERT_TRUE(IsIn(first) && IsIn(second));
  door_->Known(PeerOfGuest(first), "anna");
  const UniqueFd third = Come(3);
  EXPECT_TRUE(IsIn(third));
  EXPECT_TRUE(Ends(second));
  EXPECT_FALSE(Ends(first, absl::ZeroDuration()));
}

TEST_F(Newcomers, OneWhoIsKnownHasSoManyConnections) {
  Open({.newcomers = {.most = 50, .patience = absl::Hours(1), .of_one = 2}});
  std::vector<UniqueFd> its;
  for (int i = 0; i < 3; ++i) {
    its.push_back(Come(1));
    ASSERT_TRUE(IsIn(its.back()));
    if (i < 2) door_->Known(PeerOfGuest(its.back()), "anna");
  }
  door_->Known(PeerOfGuest(its[0]), "anna");  // it asks again
  door_->Known(PeerOfGuest(its[2]), "anna");
  EXPECT_TRUE(Ends(its[1])) << "it asked longest ago";
  EXPECT_FALSE(Ends(its[0], absl::ZeroDuration()));
  EXPECT_EQ(door_->counts().crowding, 1u);
}

TEST_F(Newcomers, ThatWentLeaveTheirPlace) {
  Open({.newcomers = {.most = 2, .patience = absl::Hours(1)}});
  const UniqueFd first = Come(1), second = Come(2);
  ASSERT_TRUE(IsIn(first) && IsIn(second));
  {
    const std::lock_guard lock(mutex_);
    fds_.clear();  // as gRPC does after its deadline
  }
  const UniqueFd third = Come(3);
  EXPECT_TRUE(IsIn(third));
}

TEST(Descriptors, TooFewAreSaidAtTheStart) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 128;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_TRUE(absl::StrContains(EnoughDescriptors().message(), "limit on open files is 128"));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(EnoughDescriptors().ok());
}

TEST(Listeners, AllAddressesOfBothFamilies) {
  const auto listener = Listener::Tcp({.kind = config::Listen::Kind::kTcp, .address = "0.0.0.0", .port = 0}, true);
  ASSERT_TRUE(listener.ok()) << listener.status();
  sockaddr_storage at{};
  socklen_t size = sizeof(at);
  ASSERT_EQ(getsockname(listener->fd(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  if (at.ss_family != AF_INET6) GTEST_SKIP() << "a host without IPv6";
  sockaddr_in v4{.sin_family = AF_INET, .sin_port = reinterpret_cast<sockaddr_in6&>(at).sin6_port};
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const UniqueFd guest(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(guest.get(), reinterpret_cast<sockaddr*>(&v4), sizeof(v4)), 0);
  sockaddr_storage from{};
  size = sizeof(from);
  const UniqueFd in(accept(listener->fd(), reinterpret_cast<sockaddr*>(&from), &size));
  EXPECT_EQ(AddressOf(from), "127.0.0.1") << "as the same host's by IPv4";
}

}  // namespace
}  // namespace cw::doors
