// SPDX-License-Identifier: Apache-2.0
#include "userspace/tls/revocation.h"

#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/tls/openssl.h"

namespace cw::tls {
namespace {

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<Certificate> Certificates(absl::string_view pem) {
  const Bio in = Reading(pem);
  std::vector<Certificate> out;
  while (X509* next = PEM_read_bio_X509(in.get(), nullptr, NoPassPhrase, nullptr)) out.emplace_back(next);
  ERR_clear_error();
  return out;
}

std::vector<RevocationList> Lists(absl::string_view pem) {
  const Bio in = Reading(pem);
  std::vector<RevocationList> out;
  while (X509_CRL* next = PEM_read_bio_X509_CRL(in.get(), nullptr, NoPassPhrase, nullptr)) out.emplace_back(next);
  ERR_clear_error();
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

bool AddTo(X509_CRL* list, const X509* certificate, const ASN1_TIME* now) {
  X509_REVOKED* entry = X509_REVOKED_new();
  auto* serial = const_cast<ASN1_INTEGER*>(X509_get0_serialNumber(certificate));
  if (entry != nullptr && X509_REVOKED_set_serialNumber(entry, serial) == 1 &&
      X509_REVOKED_set_revocationDate(entry, const_cast<ASN1_TIME*>(now)) == 1 &&
      X509_CRL_add0_revoked(list, entry) == 1)
    return true;
  X509_REVOKED_free(entry);
  return false;
}

absl::StatusOr<std::string> Signed(X509_CRL* list, EVP_PKEY* key) {
  const Bio out(BIO_new(BIO_s_mem()));
  if (X509_CRL_sort(list) != 1 || X509_CRL_sign(list, key, EVP_sha256()) == 0 ||
      PEM_write_bio_X509_CRL(out.get(), list) != 1)
    return absl::InternalError(absl::StrCat("OpenSSL could not sign the list: ", LastError()));
  return Written(out.get());
}

}  // namespace

absl::StatusOr<Revoked> ReadRevocations(absl::string_view lists, absl::string_view authorities) {
  const std::vector<RevocationList> read = Lists(lists);
  if (read.empty()) return absl::FailedPreconditionError("there is no list of revoked certificates in PEM form");
  const std::vector<Certificate> trusted = Certificates(authorities);
  Revoked out;
  for (const RevocationList& list : read) {
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

absl::StatusOr<std::string> Revoke(const Issued& authority, absl::string_view list, absl::string_view certificate,
                                   absl::Time now) {
  const std::vector<Certificate> issuer = Certificates(authority.certificate), subject = Certificates(certificate);
  const Key key = ReadKey(authority.key);
  if (issuer.empty() || key == nullptr)
    return absl::FailedPreconditionError("the authority's certificate or key cannot be read");
  if (subject.empty()) return absl::InvalidArgumentError("there is no certificate in PEM form");
  if (X509_verify(subject.front().get(), X509_get0_pubkey(issuer.front().get())) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError(
        absl::StrFormat("%s was not signed by this authority", NameText(X509_get_subject_name(subject.front().get()))));
  }
  RevocationList made(X509_CRL_new());
  if (!list.empty()) {
    const absl::StatusOr<Revoked> before = ReadRevocations(list, authority.certificate);
    if (!before.ok()) return before.status();
    const X509* leaf = subject.front().get();
    if (before->contains({NameText(X509_get_issuer_name(leaf)), SerialText(X509_get0_serialNumber(leaf))}))
      return absl::InvalidArgumentError(
          absl::StrFormat("%s is revoked already", NameText(X509_get_subject_name(leaf))));
    made = std::move(Lists(list).front());
  }
  ASN1_TIME* at = ASN1_TIME_set(nullptr, absl::ToTimeT(now));
  const bool filled = made != nullptr && at != nullptr && X509_CRL_set_version(made.get(), X509_CRL_VERSION_2) == 1 &&
                      X509_CRL_set_issuer_name(made.get(), X509_get_subject_name(issuer.front().get())) == 1 &&
                      X509_CRL_set1_lastUpdate(made.get(), at) == 1 &&
                      X509_CRL_set1_nextUpdate(made.get(), X509_get0_notAfter(issuer.front().get())) == 1 &&
                      AddTo(made.get(), subject.front().get(), at);
  ASN1_TIME_free(at);
  if (!filled) return absl::InternalError(absl::StrCat("OpenSSL could not fill in the list: ", LastError()));
  return Signed(made.get(), key.get());
}

absl::Status Revocations::Load() {
  const std::lock_guard lock(mutex_);
  return LoadLocked();
}

// The stamp is taken before the file is read: what changes meanwhile is a change next time.
absl::Status Revocations::LoadLocked() {
  if (files_.crl.empty()) return absl::OkStatus();
  const FileStamp stamp = StampOf(files_.crl);
  if (taken_ == stamp) return absl::OkStatus();
  taken_ = stamp;
  if (stamp == FileStamp())
    return absl::NotFoundError(absl::StrFormat("cannot read %s; cwctl certs revoke makes such a list", files_.crl));
  absl::StatusOr<Revoked> read = ReadRevocations(TextOf(files_.crl), TextOf(files_.ca));
  if (!read.ok()) return absl::Status(read.status().code(), absl::StrCat(files_.crl, ": ", read.status().message()));
  revoked_ = *std::move(read);
  return absl::OkStatus();
}

Revocations::Answer Revocations::Look(absl::string_view pem) {
  const std::lock_guard lock(mutex_);
  Answer answer{.problem = LoadLocked()};
  if (revoked_.empty()) return answer;
  const absl::StatusOr<std::vector<CertificateInfo>> infos = ReadCertificates(pem);
  answer.revoked = infos.ok() && revoked_.contains({infos->front().issuer, infos->front().serial});
  return answer;
}

}  // namespace cw::tls
