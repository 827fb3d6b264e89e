// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/store/blob_bytes.h"

#include <zlib.h>

namespace cw::fleet {
namespace {

constexpr uint64_t kMostPlainBytes = 64 << 20;  // of one blob; 20,000 paths take a tenth

}  // namespace

bool TakeNumber32(absl::string_view* bytes, uint32_t* value) {
  uint64_t wide = 0;
  if (!TakeVarint(bytes, &wide) || wide > UINT32_MAX) return false;
  *value = static_cast<uint32_t>(wide);
  return true;
}

std::string Deflated(const std::string& plain) {
  std::string blob;
  PutVarint(plain.size(), &blob);
  uLongf size = compressBound(plain.size());
  std::string out(size, 0);
  compress2(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(plain.data()), plain.size(), 1);
  return blob.append(out, 0, size);
}

bool Inflate(absl::string_view blob, std::string* plain) {
  uint64_t size = 0;
  if (!TakeVarint(&blob, &size) || size > kMostPlainBytes) return false;
  plain->assign(size, 0);
  uLongf got = size;
  return uncompress(reinterpret_cast<Bytef*>(plain->data()), &got, reinterpret_cast<const Bytef*>(blob.data()),
                    blob.size()) == Z_OK &&
         got == size;
}

}  // namespace cw::fleet
