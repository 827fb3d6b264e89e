// SPDX-License-Identifier: Apache-2.0
#include "userspace/tls/revocation.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/tls/openssl.h"

namespace cw::tls {
namespace {

constexpr size_t kLongestSerial = 40;  // RFC 5280, 4.1.2.2: 20 bytes

std::vector<Certificate> Certificates(absl::string_view pem) {
  const Bio in = Reading(pem);
  std::vector<Certificate> out;
  while (X509* next = PEM_read_bio_X509(in.get(), nullptr, NoPassPhrase, nullptr)) out.emplace_back(next);
  ERR_clear_error();
  return out;
}

// None that cannot be read is passed over: it may be the one that counts.
absl::StatusOr<std::vector<RevocationList>> Lists(absl::string_view pem) {
  const Bio in = Reading(pem);
  std::vector<RevocationList> out;
  while (X509_CRL* next = PEM_read_bio_X509_CRL(in.get(), nullptr, NoPassPhrase, nullptr)) out.emplace_back(next);
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string reason = LastError();
  if (!at_end) return absl::FailedPreconditionError(absl::StrCat("a list of revoked certificates: ", reason));
  if (out.empty()) return absl::FailedPreconditionError("there is no list of revoked certificates in PEM form");
  return out;
}

bool IsSignedBy(X509_CRL* list, const std::vector<Certificate>& authorities) {
  for (const Certificate& each : authorities) {
    if (X509_NAME_cmp(X509_CRL_get_issuer(list), X509_get_subject_name(each.get())) != 0) continue;
    const bool good = X509_CRL_verify(list, X509_get0_pubkey(each.get())) == 1;
    ERR_clear_error();
    if (good) return true;
  }
  return false;
}

bool AddTo(X509_CRL* list, const std::string& serial, const ASN1_TIME* now) {
  BIGNUM* number = nullptr;
  const bool read = BN_hex2bn(&number, serial.c_str()) == static_cast<int>(serial.size());
  ASN1_INTEGER* as_integer = read ? BN_to_ASN1_INTEGER(number, nullptr) : nullptr;
  BN_free(number);
  X509_REVOKED* entry = X509_REVOKED_new();
  const bool added = entry != nullptr && as_integer != nullptr &&
                     X509_REVOKED_set_serialNumber(entry, as_integer) == 1 &&
                     X509_REVOKED_set_revocationDate(entry, const_cast<ASN1_TIME*>(now)) == 1 &&
                     X509_CRL_add0_revoked(list, entry) == 1;
  ASN1_INTEGER_free(as_integer);
  if (!added) X509_REVOKED_free(entry);
  return added;
}

// With one entry more, where one is given.
absl::StatusOr<std::string> SignList(const Issued& authority, RevocationList list,
                                     const std::optional<std::string>& serial, absl::Time now) {
  const std::vector<Certificate> issuer = Certificates(authority.certificate);
  const Key key = ReadKey(authority.key);
  if (issuer.empty() || key == nullptr)
    return absl::FailedPreconditionError("the authority's certificate or key cannot be read");
  ASN1_TIME* at = ASN1_TIME_set(nullptr, absl::ToTimeT(now));
  const bool filled = list != nullptr && at != nullptr && X509_CRL_set_version(list.get(), X509_CRL_VERSION_2) == 1 &&
                      X509_CRL_set_issuer_name(list.get(), X509_get_subject_name(issuer.front().get())) == 1 &&
                      X509_CRL_set1_lastUpdate(list.get(), at) == 1 &&
                      X509_CRL_set1_nextUpdate(list.get(), X509_get0_notAfter(issuer.front().get())) == 1 &&
                      (!serial || AddTo(list.get(), *serial, at));
  ASN1_TIME_free(at);
  const Bio out(BIO_new(BIO_s_mem()));
  if (!filled || X509_CRL_sort(list.get()) != 1 || X509_CRL_sign(list.get(), key.get(), EVP_sha256()) == 0 ||
      PEM_write_bio_X509_CRL(out.get(), list.get()) != 1)
    return absl::InternalError(absl::StrCat("OpenSSL could not make the list: ", LastError()));
  return Written(out.get());
}

}  // namespace

absl::StatusOr<Revoked> ReadRevocations(absl::string_view lists, absl::string_view authorities) {
  const absl::StatusOr<std::vector<RevocationList>> read = Lists(lists);
  if (!read.ok()) return read.status();
  const std::vector<Certificate> trusted = Certificates(authorities);
  Revoked out;
  for (const RevocationList& list : *read) {
    const std::string issuer = NameText(X509_CRL_get_issuer(list.get()));
    if (!IsSignedBy(list.get(), trusted)) {
      return absl::FailedPreconditionError(
          absl::StrFormat("the list of revoked certificates of %s is signed by none of the authorities", issuer));
    }
    STACK_OF(X509_REVOKED)* entries = X509_CRL_get_REVOKED(list.get());
    for (int i = 0; i < sk_X509_REVOKED_num(entries); ++i)
      out.insert({issuer, SerialText(X509_REVOKED_get0_serialNumber(sk_X509_REVOKED_value(entries, i)))});
  }
  return out;
}

absl::StatusOr<std::string> SerialOf(const Issued& authority, absl::string_view certificate) {
  const std::vector<Certificate> issuer = Certificates(authority.certificate), subject = Certificates(certificate);
  if (issuer.empty()) return absl::FailedPreconditionError("the authority's certificate cannot be read");
  if (subject.empty()) return absl::InvalidArgumentError("there is no certificate in PEM form");
  const bool ours = X509_verify(subject.front().get(), X509_get0_pubkey(issuer.front().get())) == 1;
  ERR_clear_error();
  if (ours) return SerialText(X509_get0_serialNumber(subject.front().get()));
  return absl::InvalidArgumentError(
      absl::StrFormat("%s was not signed by this authority", NameText(X509_get_subject_name(subject.front().get()))));
}

absl::StatusOr<std::string> EmptyList(const Issued& authority, absl::Time now) {
  return SignList(authority, RevocationList(X509_CRL_new()), std::nullopt, now);
}

absl::StatusOr<std::string> Revoke(const Issued& authority, absl::string_view list, const std::string& serial,
                                   absl::Time now) {
  const absl::StatusOr<Revoked> before = ReadRevocations(list, authority.certificate);
  if (!before.ok()) return before.status();
  const bool plain = !serial.empty() && serial.size() <= kLongestSerial &&
                     std::all_of(serial.begin(), serial.end(), [](char c) { return absl::ascii_isxdigit(c); });
  if (!plain) return absl::InvalidArgumentError(absl::StrFormat("\"%s\" is no serial number in hexadecimal", serial));
  for (const auto& [issuer, known] : *before) {
    if (known == absl::AsciiStrToLower(serial))
      return absl::InvalidArgumentError(absl::StrFormat("the serial number %s is revoked already", serial));
  }
  absl::StatusOr<std::vector<RevocationList>> lists = Lists(list);
  return SignList(authority, std::move(lists->front()), serial, now);
}

absl::Status Revocations::Load() {
  const std::lock_guard lock(mutex_);
  return LoadLocked();
}

// Stamps are taken before the files are read, and only of what was good: see Watch::Look.
absl::Status Revocations::LoadLocked() {
  if (files_.crl.empty()) return absl::OkStatus();
  const Stamps stamps = {StampOf(files_.crl), StampOf(files_.ca)};
  if (taken_ == stamps) return absl::OkStatus();
  absl::StatusOr<std::string> list = ReadFile(files_.crl, /*secret=*/false),
                              authorities = ReadFile(files_.ca, /*secret=*/false);
  if (!list.ok()) return list.status();
  if (!authorities.ok()) return authorities.status();
  absl::StatusOr<Revoked> read = ReadRevocations(*list, *authorities);
  if (!read.ok()) return absl::Status(read.status().code(), absl::StrCat(files_.crl, ": ", read.status().message()));
  revoked_ = *std::move(read);
  taken_ = stamps;
  told_.clear();
  return absl::OkStatus();
}

Revocations::Answer Revocations::Look(absl::string_view pem) {
  const std::lock_guard lock(mutex_);
  Answer answer{.problem = LoadLocked()};
  if (told_ == answer.problem.message()) answer.problem = absl::OkStatus();
  if (!answer.problem.ok()) told_ = std::string(answer.problem.message());
  if (revoked_.empty()) return answer;
  const absl::StatusOr<std::vector<CertificateInfo>> infos = ReadCertificates(pem);
  answer.revoked = infos.ok() && revoked_.contains({infos->front().issuer, infos->front().serial});
  return answer;
}

bool Revocations::any() {
  const std::lock_guard lock(mutex_);
  LoadLocked().IgnoreError();  // Look says it
  return !revoked_.empty();
}

bool Revocations::Contains(const std::string& issuer, const std::string& serial) {
  const std::lock_guard lock(mutex_);
  return revoked_.contains({issuer, serial});
}

}  // namespace cw::tls
