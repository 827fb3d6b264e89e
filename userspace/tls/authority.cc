// SPDX-License-Identifier: Apache-2.0
#include "userspace/tls/authority.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "userspace/tls/certificate.h"
#include "userspace/tls/openssl.h"

namespace cw::tls {
namespace {

constexpr absl::Duration kEarlier = absl::Minutes(5);

absl::Status Failed(const char* what) {
  return absl::InternalError(absl::StrCat("OpenSSL could not ", what, ": ", LastError()));
}

std::string KeyText(EVP_PKEY* key) {
  const Bio out(BIO_new(BIO_s_secmem()));
  if (PEM_write_bio_PKCS8PrivateKey(out.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) return "";
  return Written(out.get());
}

std::string CertificateText(X509* certificate) {
  const Bio out(BIO_new(BIO_s_mem()));
  return PEM_write_bio_X509(out.get(), certificate) == 1 ? Written(out.get()) : "";
}

bool SetSerial(X509* certificate) {
  std::array<unsigned char, 16> bytes{};
  if (RAND_bytes(bytes.data(), bytes.size()) != 1) return false;
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);  // positive, and always of full length
  BIGNUM* number = BN_bin2bn(bytes.data(), bytes.size(), nullptr);
  const bool set = number != nullptr && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr;
  BN_free(number);
  return set;
}

bool SetTimes(X509* certificate, absl::Time from, absl::Time to) {
  return ASN1_TIME_set(X509_getm_notBefore(certificate), absl::ToTimeT(from)) != nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(certificate), absl::ToTimeT(to)) != nullptr;
}

bool SetName(X509* certificate, const std::string& name) {
  return X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(name.data()), static_cast<int>(name.size()),
                                    -1, 0) == 1;
}

bool AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  const bool added = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

using Extensions = std::vector<std::pair<int, std::string>>;

struct Signer {
  X509* certificate;  // the one that is made, when it signs itself
  EVP_PKEY* key;
};

absl::StatusOr<Issued> Make(const std::string& name, absl::Time from, absl::Time to, const Extensions& extensions,
                            const Signer* signer) {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate made(X509_new());
  if (key == nullptr || made == nullptr) return Failed("make a key");
  const Signer self{made.get(), key.get()};
  const Signer& by = signer == nullptr ? self : *signer;
  if (X509_set_version(made.get(), X509_VERSION_3) != 1 || !SetSerial(made.get()) || !SetTimes(made.get(), from, to) ||
      !SetName(made.get(), name) || X509_set_pubkey(made.get(), key.get()) != 1 ||
      X509_set_issuer_name(made.get(), X509_get_subject_name(by.certificate)) != 1)
    return Failed("fill in a certificate");
  for (const auto& [kind, value] : extensions) {
    if (!AddExtension(made.get(), by.certificate, kind, value)) return Failed("add an extension");
  }
  if (X509_sign(made.get(), by.key, EVP_sha256()) == 0) return Failed("sign");
  Issued out;
  out.certificate = CertificateText(made.get());
  out.key = KeyText(key.get());
  out.not_after = to;
  if (out.certificate.empty() || out.key.empty()) return Failed("write a certificate");
  return out;
}

absl::StatusOr<Issued> MakeLeaf(const Issued& authority, const std::string& name, const std::string& alternatives,
                                const char* use, const Life& life) {
  const absl::StatusOr<std::vector<CertificateInfo>> info = ReadCertificates(authority.certificate);
  const Key key = ReadKey(authority.key);
  if (!info.ok() || key == nullptr)
    return absl::FailedPreconditionError("the authority's certificate or key cannot be read");
  if (!info->front().is_authority) return absl::FailedPreconditionError("what shall sign is not an authority");
  const absl::Time end = std::min(life.now + absl::Hours(24) * life.days, info->front().not_after);
  if (end <= life.now) {
    return absl::FailedPreconditionError(
        absl::StrCat("the authority's certificate was valid until ", absl::FormatTime(info->front().not_after)));
  }
  const Certificate issuer(PEM_read_bio_X509(Reading(authority.certificate).get(), nullptr, NoPassPhrase, nullptr));
  const Signer signer{issuer.get(), key.get()};
  return Make(name, life.now - kEarlier, end,
              {{NID_basic_constraints, "critical,CA:FALSE"},
               {NID_key_usage, "critical,digitalSignature"},
               {NID_ext_key_usage, use},
               {NID_subject_alt_name, alternatives},
               {NID_subject_key_identifier, "hash"},
               {NID_authority_key_identifier, "keyid"}},
              &signer);
}

absl::Status CheckName(const std::string& name) {
  if (IsPlainName(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "\"%s\" cannot be a name: 1 to 64 letters, digits, '.', '-' and '_', not beginning with '.' or '-'", name));
}

}  // namespace

Issued::~Issued() { OPENSSL_cleanse(key.data(), key.size()); }

bool IsPlainName(const std::string& name) {
  return !name.empty() && name.size() <= 64 && name[0] != '.' && name[0] != '-' &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_'; });
}

absl::StatusOr<Issued> MakeAuthority(const std::string& name, const Life& life) {
  if (name.empty() || name.size() > 64) return absl::InvalidArgumentError("an authority's name has 1 to 64 bytes");
  return Make(name, life.now - kEarlier, life.now + absl::Hours(24) * life.days,
              {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
               {NID_key_usage, "critical,keyCertSign,cRLSign"},
               {NID_subject_key_identifier, "hash"}},
              nullptr);
}

absl::StatusOr<Issued> MakeHost(const Issued& authority, const std::string& name,
                                const std::vector<std::string>& others, const Life& life) {
  std::vector<std::string> alternatives;
  for (const std::string& each : others) {
    if (!IsAddress(each)) {
      if (absl::Status status = CheckName(each); !status.ok()) return status;
    }
    alternatives.push_back(absl::StrCat(IsAddress(each) ? "IP:" : "DNS:", each));
  }
  if (absl::Status status = CheckName(name); !status.ok()) return status;
  alternatives.insert(alternatives.begin(), absl::StrCat(IsAddress(name) ? "IP:" : "DNS:", name));
  return MakeLeaf(authority, name, absl::StrJoin(alternatives, ","), "serverAuth,clientAuth", life);
}

absl::StatusOr<Issued> MakeUser(const Issued& authority, const std::string& name, const std::string& role,
                                const Life& life) {
  if (absl::Status status = CheckName(name); !status.ok()) return status;
  if (role != "read" && role != "steer" && role != "admin")
    return absl::InvalidArgumentError(absl::StrFormat("\"%s\" is no role; choose read, steer or admin", role));
  return MakeLeaf(authority, name, absl::StrCat("URI:", kRoleUri, role), "clientAuth", life);
}

}  // namespace cw::tls
