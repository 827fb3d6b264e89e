// SPDX-License-Identifier: Apache-2.0
#include "userspace/tls/certificate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/tls/openssl.h"

namespace cw::tls {
namespace {

constexpr size_t kLongestFile = 1 << 20;

std::string CommonName(const X509_NAME* name) {
  char text[256] = {};
  X509_NAME_get_text_by_NID(const_cast<X509_NAME*>(name), NID_commonName, text, sizeof(text));
  return text;
}

absl::Time TimeOf(const ASN1_TIME* time) {
  tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTimeT(timegm(&parts));
}

std::string TextOf(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)), static_cast<size_t>(ASN1_STRING_length(text))};
}

std::string AddressOf(const ASN1_OCTET_STRING* bytes) {
  char text[INET6_ADDRSTRLEN] = {};
  const int family = ASN1_STRING_length(bytes) == 4 ? AF_INET : AF_INET6;
  const bool whole = ASN1_STRING_length(bytes) == 4 || ASN1_STRING_length(bytes) == 16;
  return whole && inet_ntop(family, ASN1_STRING_get0_data(bytes), text, sizeof(text)) != nullptr ? text : "";
}

void ReadNames(const X509* certificate, CertificateInfo& out) {
  auto* names = static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  if (names == nullptr) return;
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type == GEN_URI) out.uris.push_back(TextOf(name->d.uniformResourceIdentifier));
    if (name->type == GEN_DNS) out.dns_names.push_back(TextOf(name->d.dNSName));
    if (name->type == GEN_IPADD) out.addresses.push_back(AddressOf(name->d.iPAddress));
  }
  GENERAL_NAMES_free(names);
}

CertificateInfo InfoOf(X509* certificate) {
  CertificateInfo out;
  out.subject = NameText(X509_get_subject_name(certificate));
  out.common_name = CommonName(X509_get_subject_name(certificate));
  out.issuer = NameText(X509_get_issuer_name(certificate));
  out.serial = SerialText(X509_get0_serialNumber(certificate));
  out.not_before = TimeOf(X509_get0_notBefore(certificate));
  out.not_after = TimeOf(X509_get0_notAfter(certificate));
  out.is_authority = X509_check_ca(certificate) == 1;
  ReadNames(certificate, out);
  return out;
}

absl::StatusOr<std::vector<Certificate>> Parse(absl::string_view pem) {
  const Bio in = Reading(pem);
  std::vector<Certificate> out;
  while (X509* next = PEM_read_bio_X509(in.get(), nullptr, NoPassPhrase, nullptr)) out.emplace_back(next);
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string reason = LastError();
  if (out.empty() || !at_end)
    return absl::InvalidArgumentError(out.empty() && at_end ? "there is no certificate in PEM form" : reason);
  return out;
}

void Wipe(std::string& text) {
  OPENSSL_cleanse(text.data(), text.size());
  text.clear();
}

absl::Status CheckPair(const Files& files, const Material& material, const X509* certificate) {
  const Key key = ReadKey(material.key);
  if (key == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s is no private key in PEM form without a pass phrase: %s", files.key, LastError()));
  }
  if (X509_check_private_key(certificate, key.get()) == 1) return absl::OkStatus();
  ERR_clear_error();
  return absl::FailedPreconditionError(
      absl::StrFormat("%s is not the key of the certificate %s", files.key, files.cert));
}

}  // namespace

// As a key of a Kubernetes secret is 0440 of the pod's group.
static bool IsOwnGroup(gid_t group) {
  if (group == getegid()) return true;
  std::vector<gid_t> groups(static_cast<size_t>(std::max(getgroups(0, nullptr), 0)));
  const int count = getgroups(static_cast<int>(groups.size()), groups.data());
  return std::find(groups.begin(), groups.begin() + std::max(count, 0), group) != groups.begin() + std::max(count, 0);
}

absl::StatusOr<std::string> ReadFile(const std::string& path, bool secret) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO hangs nobody
  if (fd < 0) {
    const std::string text = absl::StrFormat("cannot read %s: %s", path, strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(text) : absl::PermissionDeniedError(text);
  }
  const absl::Cleanup close_fd = [fd] { close(fd); };
  struct stat info {};
  if (fstat(fd, &info) != 0) return absl::InternalError(absl::StrFormat("%s: %s", path, strerror(errno)));
  if (!S_ISREG(info.st_mode)) return absl::FailedPreconditionError(absl::StrFormat("%s is no regular file", path));
  const bool by_others = (info.st_mode & (S_IRWXO | S_IWGRP)) != 0;
  if (secret && (by_others || ((info.st_mode & S_IRWXG) != 0 && !IsOwnGroup(info.st_gid))))
    return absl::PermissionDeniedError(absl::StrFormat("others may use the key %s; run: chmod 600 %s", path, path));
  std::string text;
  char buffer[4096];
  ssize_t n = 0;
  while (text.size() <= kLongestFile && (n = read(fd, buffer, sizeof(buffer))) > 0) {
    if (text.capacity() < text.size() + static_cast<size_t>(n)) {  // grown by hand, so that no piece is left behind
      std::string larger;
      larger.reserve(2 * text.size() + sizeof(buffer));
      larger = text;
      OPENSSL_cleanse(text.data(), text.size());
      text.swap(larger);
    }
    text.append(buffer, static_cast<size_t>(n));
  }
  OPENSSL_cleanse(buffer, sizeof(buffer));
  if (n < 0 || text.size() > kLongestFile)
    return absl::FailedPreconditionError(absl::StrFormat("cannot read %s to its end", path));
  return text;
}

absl::StatusOr<std::vector<CertificateInfo>> ReadCertificates(absl::string_view pem) {
  absl::StatusOr<std::vector<Certificate>> certificates = Parse(pem);
  if (!certificates.ok()) return certificates.status();
  std::vector<CertificateInfo> out;
  for (const Certificate& each : *certificates) out.push_back(InfoOf(each.get()));
  return out;
}

absl::StatusOr<std::string> RoleOf(const std::vector<std::string>& uris) {
  std::string role;
  int found = 0;
  for (const std::string& uri : uris) {
    if (!absl::StartsWith(uri, kRoleUri)) continue;
    role = uri.substr(sizeof(kRoleUri) - 1);
    ++found;
  }
  if (found == 1) return role;
  return absl::InvalidArgumentError(
      found == 0 ? absl::StrCat("the certificate names no role; it needs one alternative name URI:", kRoleUri, "ROLE")
                 : "the certificate names several roles; one is wanted");
}

absl::Status Verify(absl::string_view pem, absl::string_view authorities, Use use, absl::Time now) {
  absl::StatusOr<std::vector<Certificate>> chain = Parse(pem), trusted = Parse(authorities);
  if (!chain.ok()) return chain.status();
  if (!trusted.ok()) return trusted.status();
  const Store store(X509_STORE_new());
  for (const Certificate& each : *trusted) X509_STORE_add_cert(store.get(), each.get());
  const StoreContext context(X509_STORE_CTX_new());
  STACK_OF(X509)* between = sk_X509_new_null();
  for (size_t i = 1; i < chain->size(); ++i) sk_X509_push(between, (*chain)[i].get());
  const absl::Cleanup free_between = [between] { sk_X509_free(between); };
  X509_STORE_CTX_init(context.get(), store.get(), chain->front().get(), between);
  X509_VERIFY_PARAM_set_time(X509_STORE_CTX_get0_param(context.get()), absl::ToTimeT(now));
  X509_STORE_CTX_set_purpose(context.get(), use == Use::kServer ? X509_PURPOSE_SSL_SERVER : X509_PURPOSE_SSL_CLIENT);
  const bool good = X509_verify_cert(context.get()) == 1;
  ERR_clear_error();
  if (good) return absl::OkStatus();
  return absl::FailedPreconditionError(X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())));
}

Material::Material(Material&& other) noexcept { *this = std::move(other); }

Material& Material::operator=(Material&& other) noexcept {
  std::swap(cert, other.cert);
  std::swap(key, other.key);
  std::swap(ca, other.ca);
  std::swap(info, other.info);
  return *this;
}

Material::~Material() { Wipe(key); }

absl::StatusOr<Material> Load(const Files& files) {
  Material out;
  for (const auto& [path, text, secret] :
       {std::tuple{&files.cert, &out.cert, false}, {&files.key, &out.key, true}, {&files.ca, &out.ca, false}}) {
    absl::StatusOr<std::string> read = ReadFile(*path, secret);
    if (!read.ok()) return read.status();
    text->swap(*read);
  }
  const absl::StatusOr<std::vector<Certificate>> own = Parse(out.cert);
  if (!own.ok())
    return absl::FailedPreconditionError(absl::StrCat(files.cert, ": ", std::string(own.status().message())));
  if (absl::StatusOr<std::vector<Certificate>> authorities = Parse(out.ca); !authorities.ok())
    return absl::FailedPreconditionError(absl::StrCat(files.ca, ": ", std::string(authorities.status().message())));
  if (absl::Status status = CheckPair(files, out, own->front().get()); !status.ok()) return status;
  out.info = InfoOf(own->front().get());
  return out;
}

}  // namespace cw::tls
