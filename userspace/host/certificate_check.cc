// SPDX-License-Identifier: Apache-2.0
#include "userspace/host/certificate_check.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace cw::host {
namespace {

using CertificateResult = Check::Result;

constexpr char kName[] = "certificates";
constexpr absl::Duration kSoon = absl::Hours(24 * 14);
constexpr uint32_t kOthersUse = 0077, kOthersWrite = 0022;

std::string Day(absl::Time time) { return absl::FormatTime("%Y-%m-%d", time, absl::UTCTimeZone()); }

Check JudgeFile(const CertificateFile& file, uint32_t agent_uid) {
  const bool strange = file.owner != agent_uid && file.owner != 0;
  if (file.secret && ((file.mode & kOthersUse) != 0 || strange)) {
    return {
        kName, CertificateResult::kFail,
        absl::StrFormat("the key %s has mode %04o and owner %d", file.path, file.mode, file.owner),
        absl::StrFormat("chmod 600 %s, and make the agent's user its owner; if others could read it, issue a new one",
                        file.path)};
  }
  if ((file.mode & kOthersWrite) != 0 || strange) {
    return {kName, CertificateResult::kWarn,
            absl::StrFormat("others may change %s: mode %04o, owner %d", file.path, file.mode, file.owner),
            absl::StrFormat("chmod go-w %s; chown root %s", file.path, file.path)};
  }
  return {kName, CertificateResult::kOk, "", ""};
}

}  // namespace

Check CheckCertificates(const CertificateFacts& facts, absl::Time now) {
  if (!facts.problem.empty())
    return {kName, CertificateResult::kFail, facts.problem,
            "nobody can connect over TCP; cwctl certs host makes a new one"};
  Check worst = {kName, CertificateResult::kOk, "", ""};
  for (const CertificateFile& file : facts.files) {
    const Check judged = JudgeFile(file, facts.agent_uid);
    if (judged.result == CertificateResult::kFail) return judged;
    if (judged.result == CertificateResult::kWarn) worst = judged;
  }
  const absl::Time first = std::min(facts.host_until, facts.authority_until);
  const char* whose = facts.host_until <= facts.authority_until ? "the host's certificate" : "the authority";
  const char* todo = facts.host_until <= facts.authority_until
                         ? "cwctl certs host makes a new one; the agent takes it up with the next connection"
                         : "cwctl certs ca makes a new one; then new certificates for hosts and users";
  if (first <= now) {
    return {kName, CertificateResult::kFail, absl::StrFormat("%s was over on %s", whose, Day(first)), todo};
  }
  if (first - now < kSoon) {
    return {kName, CertificateResult::kWarn, absl::StrFormat("%s is over on %s", whose, Day(first)), todo};
  }
  if (worst.result != CertificateResult::kOk) return worst;
  return {
      kName, CertificateResult::kOk,
      absl::StrFormat("the host's until %s, the authority until %s", Day(facts.host_until), Day(facts.authority_until)),
      ""};
}

}  // namespace cw::host
