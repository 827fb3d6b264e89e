// SPDX-License-Identifier: Apache-2.0
#include "userspace/publish/page_writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>

#include "absl/strings/str_format.h"
#include "libcwclock/cwclock.h"
#include "userspace/publish/kernel_clocks.h"

namespace cw::publish {
namespace {

using Word = uint64_t __attribute__((may_alias));

absl::Status Failed(const std::string& path, const char* what) {
  return absl::ErrnoToStatus(errno, absl::StrFormat("clock page %s: cannot %s", path, what));
}

std::string BootId() {
  char id[40] = "";
  const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  const ssize_t length = read(fd, id, 36);
  close(fd);
  return length == 36 ? id : "";
}

uint64_t TimeNamespace() {
  struct stat status {};
  return stat("/proc/self/ns/time", &status) == 0 ? status.st_ino : 0;
}

// What an earlier agent left, if it is of this boot. Read, not mapped: whoever wrote it may be anybody.
std::optional<cw_clock_line> ReadEarlier(const std::string& path) {
  cw_clock_page page{};
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  const ssize_t length = pread(fd, &page, sizeof(page), 0);
  close(fd);
  if (length != static_cast<ssize_t>(sizeof(page)) || page.magic != CW_CLOCK_PAGE_MAGIC ||
      page.version != CW_CLOCK_PAGE_VERSION || std::memcmp(page.boot_id, BootId().c_str(), 36) != 0) {
    return std::nullopt;
  }
  return page.copy[page.generation & 1];
}

void FillHeader(cw_clock_page* page, clockid_t base_clock) {
  page->magic = CW_CLOCK_PAGE_MAGIC;
  page->version = CW_CLOCK_PAGE_VERSION;
  page->minor = CW_CLOCK_PAGE_MINOR;
  page->size = sizeof(*page);
  page->base_clock = static_cast<uint32_t>(base_clock);
  std::snprintf(page->boot_id, sizeof(page->boot_id), "%s", BootId().c_str());
  page->time_namespace = TimeNamespace();
  std::random_device random;
  page->generation = (uint64_t{random()} << 30) ^ random();
}

}  // namespace

PageWriter::PageWriter(PageOptions options, std::string made_as, cw_clock_page* page)
    : options_(std::move(options)), made_as_(std::move(made_as)), page_(page) {}

absl::StatusOr<std::unique_ptr<PageWriter>> PageWriter::Create(const PageOptions& options) {
  const std::string made_as = absl::StrFormat("%s.new.%d", options.path, getpid());
  unlink(made_as.c_str());  // of a process of this number, in an earlier life
  const int fd = open(made_as.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return Failed(made_as, "be created (does its folder exist?)");
  absl::Status status;
  void* at = MAP_FAILED;
  // Allocated at once: a full tmpfs shall fail here, not when the page is written to.
  if (const int error = posix_fallocate(fd, 0, CW_CLOCK_PAGE_BYTES); error != 0) {
    errno = error;
    status = Failed(made_as, "be allocated");
  } else if (options.group && fchown(fd, static_cast<uid_t>(-1), *options.group) != 0) {
    status = Failed(made_as, "be given to its group");
  } else if (fchmod(fd, options.group ? 0640 : 0644) != 0) {
    status = Failed(made_as, "be made readable");
  } else if (at = mmap(nullptr, CW_CLOCK_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); at == MAP_FAILED) {
    status = Failed(made_as, "be mapped");
  }
  close(fd);
  if (!status.ok()) {
    unlink(made_as.c_str());
    return status;
  }
  auto* page = static_cast<cw_clock_page*>(at);
  FillHeader(page, options.base_clock);
  std::unique_ptr<PageWriter> writer(new PageWriter(options, made_as, page));
  writer->earlier_ = ReadEarlier(options.path);
  if (writer->earlier_) writer->epoch_base_ = writer->earlier_->epoch + 1;  // its timeline may have been another one
  return writer;
}

PageWriter::~PageWriter() {
  if (!in_place_) unlink(made_as_.c_str());
  munmap(page_, CW_CLOCK_PAGE_BYTES);
}

bool PageWriter::EarlierIsGood(int64_t mono_ns) const {
  return earlier_ && mono_ns <= earlier_->void_after_ns &&
         (earlier_->state == CW_CLOCK_SYNCHRONISED || earlier_->state == CW_CLOCK_FREE_RUNNING);
}

absl::Status PageWriter::Write(const cw_clock_line& line) {
  cw_clock_line copy = line;
  copy.epoch += epoch_base_;
  uint64_t words[sizeof(copy) / sizeof(uint64_t)];
  std::memcpy(words, &copy, sizeof(copy));
  const uint64_t next = __atomic_load_n(&page_->generation, __ATOMIC_RELAXED) + 1;
  Word* to = reinterpret_cast<Word*>(&page_->copy[next & 1]);
  for (size_t i = 0; i < std::size(words); ++i) __atomic_store_n(to + i, words[i], __ATOMIC_RELEASE);
  __atomic_store_n(&page_->generation, next, __ATOMIC_RELEASE);
  if (in_place_) return absl::OkStatus();
  const bool usable = line.state == CW_CLOCK_SYNCHRONISED || line.state == CW_CLOCK_FREE_RUNNING;
  // A disruption is news: the earlier line would be wrong.
  if (!usable && line.state != CW_CLOCK_DISRUPTED && EarlierIsGood(line.mono_ns)) return absl::OkStatus();
  return PutInPlace();
}

absl::Status PageWriter::PutInPlace() {
  const int before = open(options_.path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (rename(made_as_.c_str(), options_.path.c_str()) != 0) {
    const absl::Status status = Failed(options_.path, "be put in place");
    if (before >= 0) close(before);
    return status;
  }
  in_place_ = true;
  if (before < 0) return absl::OkStatus();
  cw_clock_page page{};
  const uint64_t retired = 1;
  bool told = true;
  if (pread(before, &page, sizeof(page), 0) == static_cast<ssize_t>(sizeof(page)) &&
      page.magic == CW_CLOCK_PAGE_MAGIC && page.version == CW_CLOCK_PAGE_VERSION) {
    told = pwrite(before, &retired, sizeof(retired), offsetof(cw_clock_page, retired)) == sizeof(retired);
  }
  close(before);
  // Readers that were not told change over when the old line is no longer fresh.
  return told ? absl::OkStatus() : absl::DataLossError("the earlier clock page could not be marked as retired");
}

absl::Status PageWriter::Withdraw() {
  if (!in_place_) return absl::OkStatus();
  if (unlink(options_.path.c_str()) != 0) return Failed(options_.path, "be removed");
  __atomic_store_n(&page_->retired, uint64_t{1}, __ATOMIC_RELEASE);
  in_place_ = false;
  return absl::OkStatus();
}

}  // namespace cw::publish
