// SPDX-License-Identifier: Apache-2.0
//
// Values as bytes, little-endian, for files that several releases read. One function serves both ways: it names its
// fields in order to an archive, which either appends them or takes them. Taking never reads beyond its bytes: from the
// first value that does not fit or is out of range on, nothing is taken any more, and ok() is false.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/string_view.h"
#include "userspace/model/addr.h"

namespace cw {

static_assert(std::endian::native == std::endian::little);

class ByteWriter {
 public:
  static constexpr bool kTakes = false;

  template <typename T>
  void Number(const T& value) {
    static_assert(std::is_arithmetic_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  template <typename T>
  void Within(const T& value, T, T) {
    Number(value);
  }
  void Bool(const bool& value) { Number(static_cast<uint8_t>(value)); }
  void Text(const std::string& text) {
    Number(static_cast<uint32_t>(text.size()));
    bytes_ += text;
  }
  void Address(const Addr& addr) { bytes_.append(reinterpret_cast<const char*>(addr.bytes.data()), addr.bytes.size()); }
  // How many entries follow, each of at least so many bytes.
  uint32_t Count(size_t count, size_t) {
    Number(static_cast<uint32_t>(count));
    return static_cast<uint32_t>(count);
  }

  const std::string& bytes() const { return bytes_; }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  static constexpr bool kTakes = true;

  explicit ByteReader(absl::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  void Number(T& value) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    if (!Has(sizeof(value))) return;
    std::memcpy(&value, bytes_.data() + at_, sizeof(value));
    at_ += sizeof(value);
  }
  template <typename T>
  void Within(T& value, T least, T most) {
    Number(value);
    if (value >= least && value <= most) return;  // NaN is not
    value = least;
    ok_ = false;
  }
  void Bool(bool& value) {
    uint8_t byte = 0;
    Within(byte, uint8_t{0}, uint8_t{1});
    value = byte != 0;
  }
  void Text(std::string& text) {
    uint32_t size = 0;
    Number(size);
    if (!Has(size)) return;
    text.assign(bytes_.data() + at_, size);
    at_ += size;
  }
  void Address(Addr& addr) {
    if (!Has(addr.bytes.size())) return;
    std::memcpy(addr.bytes.data(), bytes_.data() + at_, addr.bytes.size());
    at_ += addr.bytes.size();
  }
  uint32_t Count(size_t, size_t least_each) {
    uint32_t count = 0;
    Number(count);
    if (ok_ && count > (bytes_.size() - at_) / least_each) ok_ = false;
    return ok_ ? count : 0;
  }

  void Fail() { ok_ = false; }  // what was taken makes no sense
  bool ok() const { return ok_; }
  bool done() const { return ok_ && at_ == bytes_.size(); }
  size_t at() const { return at_; }  // bytes taken

 private:
  bool Has(size_t size) {
    if (ok_ && size <= bytes_.size() - at_) return true;
    ok_ = false;
    return false;
  }

  absl::string_view bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace cw
