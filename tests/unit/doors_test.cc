// SPDX-License-Identifier: Apache-2.0
// Who may come in, over real sockets: silent guests, too many of one, too many in all, no descriptors.
#include "userspace/doors/door.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>
#include <mutex>

#include "absl/time/clock.h"
#include "tests/unit/no_descriptors.h"

namespace cw::doors {
namespace {

using maps::UniqueFd;

constexpr absl::Duration kPatience = absl::Seconds(20);

class Doors : public ::testing::Test {
 protected:
  Doors() {
    char name[] = "/tmp/cw-doors-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~Doors() override { std::filesystem::remove_all(folder_); }

  std::string Path() const { return folder_ + "/d.sock"; }

  void OpenAt(DoorSpec spec) {
    absl::StatusOr<Listener> listener = Listener::Unix(Path(), 0600);
    ASSERT_TRUE(listener.ok()) << listener.status();
    spec.admit = [this](UniqueFd fd, const sockaddr_storage&) {
      const std::lock_guard lock(mutex_);
      in_.push_back(std::move(fd));
    };
    std::vector<Listener> listeners;
    listeners.push_back(*std::move(listener));
    auto door = Door::Open(std::move(listeners), std::move(spec));
    ASSERT_TRUE(door.ok()) << door.status();
    door_ = *std::move(door);
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
  // The other end has closed it.
  static bool Ends(const UniqueFd& fd) {
    pollfd one{.fd = fd.get(), .events = POLLIN, .revents = 0};
    char byte = 0;
    return poll(&one, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))) == 1 &&
           recv(fd.get(), &byte, 1, MSG_DONTWAIT) <= 0;
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
