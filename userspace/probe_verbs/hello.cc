// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe_verbs/hello.h"

#include <algorithm>
#include <cstring>

#include "maps/siphash.h"
#include "userspace/probe/packet_bytes.h"

namespace cw::probe_verbs {
namespace {

constexpr uint32_t kMagic = 0x43575651;  // "CWVQ"
constexpr uint8_t kVersion = 1;
constexpr size_t kType = 5, kKeyId = 6, kNonce = 8, kQpn = 16, kFrom = 20, kTo = 36, kMac = 56;  // 52–55: 0
static_assert(kMac + 8 == kHelloLen && kMac % 8 == 0);

using probe::GetBe32;

uint64_t Mac(const uint64_t* key, const uint8_t* bytes) {
  __u64 k[2] = {key[0], key[1]};
  __u64 words[kMac / 8];
  std::memcpy(words, bytes, sizeof(words));
  return cw_siphash24(k, words, kMac / 8);
}

uint64_t Mac(const __u64 (&key)[2], const uint8_t* bytes) {
  const uint64_t k[2] = {key[0], key[1]};
  return Mac(k, bytes);
}

}  // namespace

HelloBytes EncodeHello(const Hello& hello, const cw_pair_keys& keys) {
  HelloBytes b{};
  const uint32_t id = keys.tx_id & 1;
  probe::PutBe32(b.data(), kMagic);
  b[4] = kVersion;
  b[kType] = static_cast<uint8_t>(hello.type);
  b[kKeyId] = static_cast<uint8_t>(id);
  probe::PutBe32(b.data() + kNonce, static_cast<uint32_t>(hello.nonce >> 32));
  probe::PutBe32(b.data() + kNonce + 4, static_cast<uint32_t>(hello.nonce));
  probe::PutBe32(b.data() + kQpn, hello.qpn);
  std::copy(hello.from.bytes.begin(), hello.from.bytes.end(), b.begin() + kFrom);
  std::copy(hello.to.bytes.begin(), hello.to.bytes.end(), b.begin() + kTo);
  const uint64_t mac = Mac(keys.tx[id], b.data());
  std::memcpy(b.data() + kMac, &mac, sizeof(mac));
  return b;
}

std::optional<Hello> PeekHello(absl::Span<const uint8_t> bytes) {
  if (bytes.size() != kHelloLen || GetBe32(bytes.data()) != kMagic || bytes[4] != kVersion) return std::nullopt;
  if (bytes[kType] != 1 && bytes[kType] != 2) return std::nullopt;
  Hello h;
  h.type = static_cast<Hello::Type>(bytes[kType]);
  h.nonce = uint64_t{GetBe32(bytes.data() + kNonce)} << 32 | GetBe32(bytes.data() + kNonce + 4);
  h.qpn = GetBe32(bytes.data() + kQpn);
  if (h.qpn >> 24 != 0) return std::nullopt;
  h.from = Addr::FromBytes(bytes.data() + kFrom);
  h.to = Addr::FromBytes(bytes.data() + kTo);
  return h;
}

std::optional<Hello> DecodeHello(absl::Span<const uint8_t> bytes, const cw_pair_keys& keys) {
  std::optional<Hello> hello = PeekHello(bytes);
  if (!hello) return std::nullopt;
  const uint8_t id = bytes[kKeyId];
  if (id > 1 || (keys.valid >> id & 1) == 0) return std::nullopt;
  uint64_t mac;
  std::memcpy(&mac, bytes.data() + kMac, sizeof(mac));
  return mac == Mac(keys.rx[id], bytes.data()) ? hello : std::nullopt;
}

}  // namespace cw::probe_verbs
