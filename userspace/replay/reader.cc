// SPDX-License-Identifier: Apache-2.0
#include "userspace/replay/reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "userspace/model/regular_file.h"

namespace cw::replay {
namespace {

// Takes up to `size` bytes, in pieces: a damaged length must not ask for memory that the file cannot fill.
std::string Take(std::istream& in, size_t size) {
  constexpr size_t kPiece = 1 << 20;
  std::string bytes;
  while (bytes.size() < size && in) {
    const size_t before = bytes.size(), piece = std::min(kPiece, size - before);
    bytes.resize(before + piece);
    in.read(bytes.data() + before, static_cast<std::streamsize>(piece));
    bytes.resize(before + static_cast<size_t>(in.gcount()));
  }
  return bytes;
}

uint32_t WordAt(const std::string& bytes, size_t at) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof(word));
  return word;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> Reader::Open(const std::string& file) {
  if (absl::Status good = CheckRegularFile(file); absl::IsInvalidArgument(good)) return good;
  auto in = std::make_unique<std::ifstream>(file, std::ios::binary);
  if (!*in) return absl::ErrnoToStatus(errno == 0 ? EIO : errno, absl::StrCat("cannot open ", file));
  return Read(std::move(in), file);
}

absl::StatusOr<std::unique_ptr<Reader>> Reader::Read(std::unique_ptr<std::istream> in, const std::string& name) {
  std::unique_ptr<Reader> reader(new Reader(std::move(in), name));
  if (absl::Status status = reader->ReadHead(); !status.ok()) return status;
  return reader;
}

std::string Reader::At(uint64_t offset) const { return absl::StrCat(name_, ": offset ", offset, ": "); }

absl::Status Reader::ReadHead() {
  const std::string start = Take(*in_, kFileHead);
  const size_t magic = sizeof(kMagic) - 1;
  if (start.size() < magic || std::memcmp(start.data(), kMagic, magic) != 0)
    return absl::InvalidArgumentError(At(0) + "not a file of observations (log.observations_file of cwagentd)");
  if (start.size() < kFileHead) return absl::InvalidArgumentError(At(start.size()) + "the file ends within its head");
  const uint32_t version = WordAt(start, magic);
  if (version > kVersion) {
    return absl::UnimplementedError(
        absl::StrCat(At(magic), "version ", version, ", this release reads up to ", kVersion, "; use a newer cwctl"));
  }
  if (version == 0) return absl::InvalidArgumentError(At(magic) + "version 0 does not exist");
  if (version < kVersion) {
    return absl::UnimplementedError(absl::StrCat(At(magic), "version ", version,
                                                 " is of an earlier release, whose rule remembered less than version ",
                                                 kVersion, "; use the cwctl of the release that recorded it"));
  }
  offset_ = kFileHead;
  absl::StatusOr<std::optional<RawRecord>> record = NextRecord();
  if (!record.ok()) return absl::InvalidArgumentError(record.status().message());
  if (!record->has_value() || (*record)->kind != kHead)
    return absl::InvalidArgumentError(At(kFileHead) + "the first record is not the head");
  absl::StatusOr<Head> head = DecodeHead((*record)->payload);
  if (!head.ok()) return absl::InvalidArgumentError(absl::StrCat(At(kFileHead), "the head: ", head.status().message()));
  head_ = *std::move(head);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Reader::RawRecord>> Reader::NextRecord() {
  const std::string start = Take(*in_, kRecordHead);
  if (start.empty()) return std::nullopt;
  if (start.size() < kRecordHead) {
    return absl::DataLossError(absl::StrCat(At(offset_), "the file ends ", start.size(), " bytes into a record's ",
                                            kRecordHead, " bytes of head"));
  }
  RawRecord record{.kind = WordAt(start, 0), .payload = {}};
  const uint32_t size = WordAt(start, 4);
  if (size > kMostRecordBytes)
    return absl::DataLossError(absl::StrCat(At(offset_), "a record of ", size, " bytes: the file is damaged here"));
  record.payload = Take(*in_, size);
  if (record.payload.size() < size) {
    return absl::DataLossError(
        absl::StrCat(At(offset_), "the file ends ", record.payload.size(), " bytes into a record of ", size));
  }
  if (RecordCrc(record.kind, record.payload) != WordAt(start, 8))
    return absl::DataLossError(At(offset_) + "the record's check sum is wrong: the file is damaged here");
  offset_ += kRecordHead + size;
  return record;
}

absl::StatusOr<std::optional<Window>> Reader::Next() {
  const uint64_t at = offset_;
  absl::StatusOr<std::optional<RawRecord>> record = NextRecord();
  if (!record.ok()) {
    in_->setstate(std::ios::eofbit | std::ios::failbit);
    return record.status();
  }
  if (!record->has_value()) return std::nullopt;
  if ((*record)->kind == kHead) return absl::DataLossError(At(at) + "a second head");
  if ((*record)->kind != kWindow) {
    return absl::UnimplementedError(absl::StrCat(At(at), "a record of kind ", (*record)->kind,
                                                 ", which this release does not know; use a newer cwctl"));
  }
  absl::StatusOr<Window> window = DecodeWindow((*record)->payload);
  if (!window.ok()) return absl::DataLossError(absl::StrCat(At(at), "a window: ", window.status().message()));
  return *std::move(window);
}

}  // namespace cw::replay
