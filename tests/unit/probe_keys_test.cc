// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/unit/probe_fakes.h"

namespace cw::probe {
namespace {

constexpr char kHex[] = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

class KeyFile : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/cw_probe_keys_XXXXXX";
    const int fd = mkstemp(name);
    ASSERT_GE(fd, 0);
    close(fd);
    path_ = name;
  }
  void TearDown() override { unlink(path_.c_str()); }
  void Write(const std::string& content) { std::ofstream(path_, std::ios::binary) << content; }
  std::string path_;
};

TEST(ProbeKeys, DerivationEqualsAnIndependentOne) {
  // Python: hmac.new(secret, b"cwfabric probe key, version 1\0" + bytes([id]) + from + to, "sha256").digest()[:16]
  auto secret = GroupSecret::FromBytes(kHex);
  ASSERT_TRUE(secret.ok());
  const MacKey k0 = secret->Derive(TestAddr("10.0.0.10"), TestAddr("10.0.1.10"), 0);
  const MacKey k1 = secret->Derive(TestAddr("10.0.0.10"), TestAddr("10.0.1.10"), 1);
  EXPECT_EQ(0xc7c15e1daaf1b2a7u, k0.k[0]);
  EXPECT_EQ(0xf038544eb828ca68u, k0.k[1]);
  EXPECT_EQ(0xea988aa81fc755f5u, k1.k[0]);
  EXPECT_EQ(0xd17a2aa8a6627506u, k1.k[1]);
}

TEST(ProbeKeys, TheTwoEndsAgreeAndDirectionsDiffer) {
  const KeyRing ring = TestKeys();
  const cw_pair_keys a = ring.Derive(TestAddr("10.0.0.10"), TestAddr("10.0.1.10"));
  const cw_pair_keys b = ring.Derive(TestAddr("10.0.1.10"), TestAddr("10.0.0.10"));
  EXPECT_EQ(a.tx[0][0], b.rx[0][0]);
  EXPECT_EQ(a.tx[0][1], b.rx[0][1]);
  EXPECT_EQ(a.rx[0][0], b.tx[0][0]);
  EXPECT_NE(a.tx[0][0], a.rx[0][0]);
  EXPECT_EQ(1u, a.valid);
}

TEST(ProbeKeys, ChangeOfSecretKeepsBothAliveInBetween) {
  KeyRing ring = TestKeys();
  const Addr from = TestAddr("10.0.0.10"), to = TestAddr("10.0.1.10");
  const cw_pair_keys before = ring.Derive(from, to);
  ASSERT_TRUE(ring.Set(1, *GroupSecret::FromBytes("another secret of enough bytes")).ok());
  EXPECT_EQ(3u, ring.Derive(from, to).valid);
  EXPECT_EQ(0u, ring.Derive(from, to).tx_id);
  EXPECT_EQ(before.tx[0][0], ring.Derive(from, to).tx[0][0]);
  EXPECT_FALSE(ring.Drop(0).ok()) << "still sent with";
  ASSERT_TRUE(ring.SendWith(1).ok());
  EXPECT_EQ(1u, ring.Derive(from, to).tx_id);
  ASSERT_TRUE(ring.Drop(0).ok());
  EXPECT_EQ(2u, ring.Derive(from, to).valid);
  EXPECT_EQ(0u, ring.Derive(from, to).tx[0][0]);
  EXPECT_FALSE(ring.SendWith(0).ok());
  EXPECT_FALSE(ring.Set(2, *GroupSecret::FromBytes(kHex)).ok());
}

TEST(ProbeKeys, AChangeKeepsWhatIsSentWith) {
  const auto ring = [](const char* first, const char* second, uint8_t send) {
    KeyRing out;
    if (first != nullptr) {
      EXPECT_TRUE(out.Set(0, *GroupSecret::FromBytes(first)).ok());
    }
    if (second != nullptr) {
      EXPECT_TRUE(out.Set(1, *GroupSecret::FromBytes(second)).ok());
    }
    EXPECT_TRUE(out.SendWith(send).ok());
    return out;
  };
  constexpr char kOld[] = "the old secret, long enough", kNew[] = "the new secret, long enough";
  EXPECT_TRUE(CheckChange({}, ring(kOld, nullptr, 0)).ok());
  EXPECT_TRUE(CheckChange(ring(kOld, nullptr, 0), ring(kOld, kNew, 0)).ok());
  EXPECT_TRUE(CheckChange(ring(kOld, kNew, 0), ring(kOld, kNew, 1)).ok());
  EXPECT_TRUE(CheckChange(ring(kOld, kNew, 1), ring(nullptr, kNew, 1)).ok());
  EXPECT_TRUE(CheckChange(ring(kOld, kNew, 1), ring(kNew, kNew, 1)).ok()) << "the one that is not sent with may change";
  EXPECT_FALSE(CheckChange(ring(kOld, kNew, 0), ring(nullptr, kNew, 1)).ok());
  EXPECT_FALSE(CheckChange(ring(kOld, nullptr, 0), ring(kNew, nullptr, 0)).ok());
  EXPECT_FALSE(CheckChange(ring(kOld, nullptr, 0), {}).ok());
  const std::string message(CheckChange(ring(kOld, nullptr, 0), ring(kNew, kOld, 1)).message());
  EXPECT_EQ(message.find("secret, long"), std::string::npos) << message;
  EXPECT_TRUE(ring(kOld, kNew, 1) == ring(kOld, kNew, 1));
  EXPECT_FALSE(ring(kOld, kNew, 1) == ring(kOld, kNew, 0));
}

TEST(ProbeKeys, ShortSecretsAreRefused) {
  EXPECT_FALSE(GroupSecret::FromBytes("").ok());
  EXPECT_FALSE(GroupSecret::FromBytes("0123456789abcde").ok());
  EXPECT_TRUE(GroupSecret::FromBytes("0123456789abcdef").ok()) << "16 raw bytes";
}

TEST_F(KeyFile, HexWithNewlineIsHexAndRawIsRaw) {
  Write(absl::StrCat(kHex, "\n"));
  ASSERT_EQ(0, chmod(path_.c_str(), 0600));
  auto from_file = GroupSecret::FromFile(path_);
  ASSERT_TRUE(from_file.ok()) << from_file.status();
  const Addr a = TestAddr("10.0.0.10"), b = TestAddr("10.0.1.10");
  EXPECT_EQ(GroupSecret::FromBytes(kHex)->Derive(a, b, 0).k[0], from_file->Derive(a, b, 0).k[0]);
  Write(std::string("\0\1raw bytes \xff with a zero\n", 25));
  from_file = GroupSecret::FromFile(path_);
  ASSERT_TRUE(from_file.ok()) << from_file.status();
  EXPECT_NE(GroupSecret::FromBytes(kHex)->Derive(a, b, 0).k[0], from_file->Derive(a, b, 0).k[0]);
}

TEST_F(KeyFile, ErrorsNameTheFileAndNeverTheSecret) {
  Write(std::string(kHex));
  ASSERT_EQ(0, chmod(path_.c_str(), 0644));
  const absl::Status open = GroupSecret::FromFile(path_).status();
  EXPECT_TRUE(absl::IsPermissionDenied(open));
  EXPECT_NE(std::string::npos, std::string(open.message()).find("chmod 0600"));
  ASSERT_EQ(0, chmod(path_.c_str(), 0600));
  Write("short secret");
  const absl::Status small = GroupSecret::FromFile(path_).status();
  EXPECT_NE(std::string::npos, std::string(small.message()).find(path_));
  EXPECT_EQ(std::string::npos, std::string(small.message()).find("short secret"));
  EXPECT_TRUE(absl::IsNotFound(GroupSecret::FromFile(path_ + ".none").status()));
  Write(std::string(5000, 'a'));
  EXPECT_FALSE(GroupSecret::FromFile(path_).ok());
}

}  // namespace
}  // namespace cw::probe
