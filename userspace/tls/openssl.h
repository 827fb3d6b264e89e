// SPDX-License-Identifier: Apache-2.0
//
// Owners of OpenSSL's objects, its errors as text, and what several files here do with both. For this room alone.
#pragma once

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace cw::tls {

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};

using Bio = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using RevocationList = std::unique_ptr<X509_CRL, Freer<X509_CRL_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Store = std::unique_ptr<X509_STORE, Freer<X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, Freer<X509_STORE_CTX_free>>;
using Context = std::unique_ptr<SSL_CTX, Freer<SSL_CTX_free>>;
using Connection = std::unique_ptr<SSL, Freer<SSL_free>>;

inline Bio Reading(absl::string_view text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

// What BIO gathered in memory.
inline std::string Written(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return size > 0 ? std::string(data, static_cast<size_t>(size)) : std::string();
}

// The newest reason, and forgets all of them.
inline std::string LastError() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason == nullptr ? "no reason given" : reason;
}

// NotFound or PermissionDenied: it cannot be read, or others may use a secret; FailedPrecondition: over 1 MiB. In
// certificate.cc.
absl::StatusOr<std::string> ReadFile(const std::string& path, bool secret);

// No pass phrase is asked for on a terminal: an encrypted key is an error.
inline int NoPassPhrase(char*, int, int, void*) { return -1; }

inline std::string NameText(const X509_NAME* name) {
  const Bio out(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(out.get(), name, 0, XN_FLAG_RFC2253);
  return Written(out.get());
}

inline std::string SerialText(const ASN1_INTEGER* number) {
  std::string out;
  for (int i = 0; i < number->length; ++i) absl::StrAppendFormat(&out, "%02x", number->data[i]);
  return out;
}

// Of IPv4 or IPv6, without brackets.
inline bool IsAddress(const std::string& text) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, text.c_str(), bytes) == 1 || inet_pton(AF_INET6, text.c_str(), bytes) == 1;
}

inline Key ReadKey(absl::string_view pem) {
  return Key(PEM_read_bio_PrivateKey(Reading(pem).get(), nullptr, NoPassPhrase, nullptr));
}

}  // namespace cw::tls
