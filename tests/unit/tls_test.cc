// SPDX-License-Identifier: Apache-2.0
//
// Certificates: made, read back, checked as a TLS stack does, loaded, and watched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "absl/time/clock.h"
#include "tests/unit/tls_files.h"
#include "userspace/tls/handshake.h"
#include "userspace/tls/watch.h"

namespace cw::tls {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr absl::Duration kDay = absl::Hours(24);

CertificateInfo InfoOf(const Issued& issued) {
  absl::StatusOr<std::vector<CertificateInfo>> infos = ReadCertificates(issued.certificate);
  EXPECT_TRUE(infos.ok()) << infos.status();
  return infos->at(0);
}

TEST(Certificates, SayWhatTheyWereMadeFor) {
  const Site site("a site");
  const absl::Time now = absl::Now();
  const CertificateInfo ca = InfoOf(site.authority());
  EXPECT_TRUE(ca.is_authority);
  EXPECT_EQ(ca.subject, "CN=a site");

  const CertificateInfo host = InfoOf(*MakeHost(site.authority(), "node17", {"10.0.1.17", "fd00::17"}, {now, 30}));
  EXPECT_FALSE(host.is_authority);
  EXPECT_EQ(host.issuer, "CN=a site");
  EXPECT_THAT(host.dns_names, ElementsAre("node17"));
  EXPECT_THAT(host.addresses, ElementsAre("10.0.1.17", "fd00::17"));
  EXPECT_THAT(host.uris, IsEmpty());
  EXPECT_EQ(host.serial.size(), 32u);
  EXPECT_LT(host.not_before, now);
  EXPECT_LE(absl::AbsDuration(host.not_after - now - 30 * kDay), absl::Seconds(1));

  const CertificateInfo user = InfoOf(*MakeUser(site.authority(), "alice", "steer", {now, 90}));
  EXPECT_EQ(user.common_name, "alice");
  EXPECT_THAT(user.uris, ElementsAre("cwfabric://role/steer"));
  EXPECT_EQ(RoleOf(user.uris).value_or(""), "steer");
  EXPECT_NE(user.serial, host.serial);
}

TEST(Certificates, AreTakenForTheirOwnUseAndTimeAndFromTheirAuthorityOnly) {
  const Site site, other("other site");
  const absl::Time now = absl::Now();
  const Issued host = *MakeHost(site.authority(), "node17", {}, {now, 30});
  const Issued user = *MakeUser(site.authority(), "alice", "read", {now, 30});
  const std::string& ca = site.authority().certificate;
  EXPECT_TRUE(Verify(host.certificate, ca, Use::kServer, now).ok());
  EXPECT_TRUE(Verify(user.certificate, ca, Use::kClient, now).ok());
  EXPECT_TRUE(Verify(host.certificate, ca, Use::kClient, now).ok()) << "a host is the fleet service's client";
  EXPECT_FALSE(RoleOf(InfoOf(host).uris).ok()) << "and has no role";
  EXPECT_FALSE(Verify(user.certificate, ca, Use::kServer, now).ok()) << "a user cannot pose as a host";
  EXPECT_FALSE(Verify(user.certificate, other.authority().certificate, Use::kClient, now).ok());
  EXPECT_THAT(std::string(Verify(user.certificate, ca, Use::kClient, now + 31 * kDay).message()), HasSubstr("expired"));
  EXPECT_FALSE(Verify(user.certificate, ca, Use::kClient, now - kDay).ok());
}

TEST(Certificates, DoNotOutliveTheirAuthority) {
  const absl::Time now = absl::Now();
  const Issued ca = *MakeAuthority("short", {now, 10});
  EXPECT_EQ(InfoOf(*MakeUser(ca, "alice", "read", {now, 90})).not_after, InfoOf(ca).not_after);
  EXPECT_FALSE(MakeUser(ca, "alice", "read", {now + 11 * kDay, 90}).ok());
}

TEST(Certificates, RefuseNamesThatAreMoreThanNames) {
  const Site site;
  const Life life{absl::Now(), 1};
  for (const char* name : {"", "a b", "../a", ".a", "-a", "a,DNS:b", "a\nb", "a/b"}) {
    EXPECT_FALSE(MakeHost(site.authority(), name, {}, life).ok()) << name;
    EXPECT_FALSE(MakeUser(site.authority(), name, "read", life).ok()) << name;
    EXPECT_FALSE(MakeHost(site.authority(), "good", {name}, life).ok()) << name;
  }
  EXPECT_FALSE(MakeUser(site.authority(), "alice", "root", life).ok());
  const Issued user = *MakeUser(site.authority(), "alice", "read", life);
  EXPECT_FALSE(MakeHost(user, "node17", {}, life).ok()) << "a user signs nothing";
}

TEST(Certificates, NameOneRole) {
  EXPECT_FALSE(RoleOf({}).ok());
  EXPECT_FALSE(RoleOf({"spiffe://site/alice"}).ok());
  EXPECT_EQ(RoleOf({"spiffe://site/alice", "cwfabric://role/admin"}).value_or(""), "admin");
  EXPECT_FALSE(RoleOf({"cwfabric://role/read", "cwfabric://role/admin"}).ok());
}

TEST(TlsFiles, AreCheckedBeforeTheyAreUsed) {
  Site site;
  const Files good = site.Host("node17"), user = site.User("alice", "read");
  EXPECT_TRUE(Load(good).ok()) << Load(good).status();
  EXPECT_THAT(std::string(Load({good.cert, user.key, good.ca}).status().message()), HasSubstr("is not the key of"));
  EXPECT_EQ(Load({good.cert, good.key, site.folder() + "/none"}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Load({good.key, good.key, good.ca}).status().message()), HasSubstr(good.key));
  // As a Kubernetes secret's: the group is the process's own, or it is a stranger's.
  ASSERT_EQ(chmod(good.key.c_str(), 0440), 0);
  EXPECT_TRUE(Load(good).ok());
  if (geteuid() == 0) {
    ASSERT_EQ(chown(good.key.c_str(), 0, 12345), 0);
    EXPECT_THAT(std::string(Load(good).status().message()), HasSubstr("chmod 600"));
    ASSERT_EQ(chown(good.key.c_str(), 0, getegid()), 0);
  }
  ASSERT_EQ(chmod(good.key.c_str(), 0644), 0);
  EXPECT_THAT(std::string(Load(good).status().message()), HasSubstr("chmod 600"));
}

TEST(TlsFiles, ErrorsNeverTellTheKey) {
  Site site;
  const Files files = site.Host("node17");
  const std::string key = Load(files)->key;
  WriteText(files.key, key.substr(0, key.size() / 2));  // half written
  const std::string message(Load(files).status().message());
  EXPECT_THAT(message, HasSubstr(files.key));
  EXPECT_THAT(message, Not(HasSubstr(key.substr(60, 20))));
}

TEST(TlsWatch, TakesWhatIsWholeAndKeepsWhatItHasOtherwise) {
  Site site;
  const Files files = site.Host("node17");
  Watch watch(files);
  Watch::News news = watch.Look();
  ASSERT_TRUE(news.fresh.has_value());
  const std::string first = news.fresh->info.serial;
  EXPECT_FALSE(watch.Look().fresh.has_value()) << "nothing changed";

  const std::string text = news.fresh->cert;
  WriteText(files.cert, text.substr(0, text.size() / 2));
  news = watch.Look();
  EXPECT_FALSE(news.fresh.has_value());
  EXPECT_THAT(std::string(news.problem.message()), HasSubstr(files.cert));
  EXPECT_TRUE(watch.Look().problem.ok()) << "said once";

  site.Host("node17");
  news = watch.Look();
  ASSERT_TRUE(news.fresh.has_value());
  EXPECT_NE(news.fresh->info.serial, first);
  std::filesystem::remove(files.key);
  EXPECT_FALSE(watch.Look().problem.ok());
}

TEST(HostPort, IsReadWithAndWithoutBrackets) {
  EXPECT_EQ(ParseHostPort("node17:9478")->host, "node17");
  EXPECT_EQ(ParseHostPort("[fd00::5]:9478")->host, "fd00::5");
  EXPECT_EQ(ParseHostPort("10.0.0.5:9478")->port, "9478");
  for (const char* wrong : {"", "node17", ":9478", "node17:", "fd00::5:9478", "node17:x", "node17:123456"})
    EXPECT_FALSE(ParseHostPort(wrong).ok()) << wrong;
}

}  // namespace
}  // namespace cw::tls
