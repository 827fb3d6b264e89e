// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/keys.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::probe {
namespace {

constexpr size_t kMinSecretBytes = 16;
constexpr size_t kMaxFileBytes = 4096;
constexpr char kPurpose[] = "cwfabric probe key, version 1";

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool IsSpace(char c) { return c == '\n' || c == '\r' || c == ' ' || c == '\t'; }

}  // namespace

absl::StatusOr<GroupSecret> GroupSecret::FromBytes(absl::string_view content) {
  absl::string_view text = content;
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  const bool hex = text.size() >= 2 * kMinSecretBytes && text.size() % 2 == 0 &&
                   std::all_of(text.begin(), text.end(), [](char c) { return HexValue(c) >= 0; });
  if (!hex) {
    if (content.size() < kMinSecretBytes) {
      return absl::InvalidArgumentError(
          "a group secret has at least 32 hex digits or 16 raw bytes; make one with: "
          "openssl rand -hex 32");
    }
    return GroupSecret(std::vector<uint8_t>(content.begin(), content.end()));
  }
  std::vector<uint8_t> bytes(text.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(HexValue(text[2 * i]) << 4 | HexValue(text[2 * i + 1]));
  }
  return GroupSecret(std::move(bytes));
}

absl::StatusOr<GroupSecret> GroupSecret::FromFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::NotFoundError(absl::StrCat(path, ": ", strerror(errno)));
  auto close_fd = absl::MakeCleanup([fd] { close(fd); });
  struct stat st;
  if (fstat(fd, &st) != 0) return absl::InternalError(absl::StrCat(path, ": ", strerror(errno)));
  if (S_ISREG(st.st_mode) && (st.st_mode & (S_IROTH | S_IWOTH)) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": others may read or write this secret; run: chmod 0600 ", path));
  }
  std::array<char, kMaxFileBytes + 1> buffer;
  auto wipe = absl::MakeCleanup([&buffer] { OPENSSL_cleanse(buffer.data(), buffer.size()); });
  size_t size = 0;
  while (size < buffer.size()) {
    const ssize_t n = read(fd, buffer.data() + size, buffer.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::InternalError(absl::StrCat(path, ": ", strerror(errno)));
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  if (size > kMaxFileBytes) return absl::InvalidArgumentError(absl::StrCat(path, ": longer than 4096 bytes"));
  absl::StatusOr<GroupSecret> secret = FromBytes({buffer.data(), size});
  if (!secret.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", secret.status().message()));
  return secret;
}

GroupSecret::GroupSecret(GroupSecret&& other) noexcept : bytes_(std::move(other.bytes_)) { other.bytes_.clear(); }

GroupSecret& GroupSecret::operator=(GroupSecret&& other) noexcept {
  if (this != &other) {
    Wipe();
    bytes_ = std::move(other.bytes_);
    other.bytes_.clear();
  }
  return *this;
}

GroupSecret::~GroupSecret() { Wipe(); }

void GroupSecret::Wipe() {
  if (!bytes_.empty()) OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

MacKey GroupSecret::Derive(const Addr& from, const Addr& to, uint8_t key_id) const {
  std::array<uint8_t, sizeof(kPurpose) + 1 + 32> info;
  auto out = std::copy(std::begin(kPurpose), std::end(kPurpose), info.begin());  // with its NUL: a clear end
  *out++ = key_id;
  out = std::copy(from.bytes.begin(), from.bytes.end(), out);
  std::copy(to.bytes.begin(), to.bytes.end(), out);
  std::array<uint8_t, EVP_MAX_MD_SIZE> digest;
  unsigned int digest_len = 0;
  HMAC(EVP_sha256(), bytes_.data(), static_cast<int>(bytes_.size()), info.data(), info.size(), digest.data(),
       &digest_len);
  MacKey key;
  std::memcpy(key.k, digest.data(), sizeof(key.k));
  OPENSSL_cleanse(digest.data(), digest.size());
  return key;
}

bool GroupSecret::operator==(const GroupSecret& other) const {
  return bytes_.size() == other.bytes_.size() && CRYPTO_memcmp(bytes_.data(), other.bytes_.data(), bytes_.size()) == 0;
}

absl::Status KeyRing::Set(uint8_t key_id, GroupSecret secret) {
  if (key_id > 1) return absl::InvalidArgumentError("key ids are 0 and 1");
  if (empty()) send_id_ = key_id;
  secrets_[key_id].clear();
  secrets_[key_id].push_back(std::move(secret));
  return absl::OkStatus();
}

absl::Status KeyRing::SendWith(uint8_t key_id) {
  if (key_id > 1 || secrets_[key_id].empty()) return absl::FailedPreconditionError("no secret with this key id");
  send_id_ = key_id;
  return absl::OkStatus();
}

absl::Status KeyRing::Drop(uint8_t key_id) {
  if (key_id > 1) return absl::InvalidArgumentError("key ids are 0 and 1");
  if (key_id == send_id_) return absl::FailedPreconditionError("this key is sent with: choose the other one first");
  secrets_[key_id].clear();
  return absl::OkStatus();
}

cw_pair_keys KeyRing::Derive(const Addr& local, const Addr& remote) const {
  cw_pair_keys keys{};
  for (uint8_t id = 0; id < 2; ++id) {
    if (secrets_[id].empty()) continue;
    const MacKey tx = secrets_[id][0].Derive(local, remote, id);
    const MacKey rx = secrets_[id][0].Derive(remote, local, id);
    std::memcpy(keys.tx[id], tx.k, sizeof(tx.k));
    std::memcpy(keys.rx[id], rx.k, sizeof(rx.k));
    keys.valid |= 1u << id;
  }
  keys.tx_id = send_id_;
  return keys;
}

absl::Status CheckChange(const KeyRing& from, const KeyRing& to) {
  if (from.empty()) return absl::OkStatus();
  const int id = from.send_id(), other = 1 - id;
  if (!to.has(from.send_id())) {
    return absl::FailedPreconditionError(
        absl::StrFormat("this host sends with key id %d, which would no longer be accepted; first set keys.send_key_id "
                        "= %d on every host of the group",
                        id, other));
  }
  if (!(from.secrets_[from.send_id()] == to.secrets_[from.send_id()])) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the secret of key id %d, with which this host sends, is another one now; put it back, give the "
        "new secret as that of key id %d, and set keys.send_key_id = %d when every host has it",
        id, other, other));
  }
  return absl::OkStatus();
}

void WipeKeys(cw_pair_keys* keys) { OPENSSL_cleanse(keys, sizeof(*keys)); }

}  // namespace cw::probe
