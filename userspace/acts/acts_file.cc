// SPDX-License-Identifier: Apache-2.0
#include "userspace/acts/acts_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <utility>

#include "maps/folder.h"

namespace cw::acts {
namespace {

constexpr uint32_t kNoLogin = 0xffffffff;  // of a daemon

void AppendEscaped(uint32_t point, std::string& out) {
  char escaped[8];
  snprintf(escaped, sizeof escaped, "\\u%04x", point & 0xffff);
  out += escaped;
}

// The code point at `at`, and its bytes; of bytes that are no UTF-8 one by itself.
std::pair<uint32_t, size_t> PointAt(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[at + i])); };
  const size_t more = byte(0) >= 0xf0 && byte(0) < 0xf5   ? 3
                      : byte(0) >= 0xe0 && byte(0) < 0xf0 ? 2
                      : byte(0) >= 0xc2 && byte(0) < 0xe0 ? 1
                                                          : 0;
  if (more == 0 || at + more >= text.size()) return {byte(0), 1};
  uint32_t point = byte(0) & (0x3f >> more);
  for (size_t i = 1; i <= more; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {byte(0), 1};
    point = point << 6 | (byte(i) & 0x3f);
  }
  return {point, more + 1};
}

void AppendText(const char* name, const std::string& text, std::string& out) {
  out += std::string(out.size() > 1 ? ", \"" : "\"") + name + "\": \"";
  for (size_t i = 0; i < text.size();) {
    const auto [point, bytes] = PointAt(text, i);
    i += bytes;
    if (point > 0xffff) {
      AppendEscaped(0xd800 + ((point - 0x10000) >> 10), out);
      AppendEscaped(0xdc00 + ((point - 0x10000) & 0x3ff), out);
    } else if (point < 0x20 || point > 0x7e) {
      AppendEscaped(point, out);
    } else {
      if (point == '"' || point == '\\') out += '\\';
      out += static_cast<char>(point);
    }
  }
  out += '"';
}

std::string TimeText(int64_t unix_ns) {
  const time_t seconds = unix_ns / 1'000'000'000;
  tm utc{};
  gmtime_r(&seconds, &utc);
  char day[32], text[48];
  strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &utc);
  snprintf(text, sizeof text, "%s.%09dZ", day, static_cast<int>(unix_ns % 1'000'000'000));
  return text;
}

std::string Fault(const char* doing, const std::string& path) {
  return "cannot " + std::string(doing) + " " + path + ": " + strerror(errno);
}

// Whether the file is still the path's: another writer may have moved it away before it was locked.
bool Stands(int file, int folder, const char* name) {
  struct stat open_one {};
  struct stat there {};
  return fstat(file, &open_one) == 0 && fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         open_one.st_ino == there.st_ino && open_one.st_dev == there.st_dev;
}

// Whoever may read the file may lock it, for ever: nobody waits for that.
bool Locked(int file) {
  constexpr int kTries = 20;
  constexpr useconds_t kPauseUs = 5000;
  for (int i = 0; i < kTries; ++i) {
    if (flock(file, LOCK_EX | LOCK_NB) == 0) return true;
    usleep(kPauseUs);
  }
  return false;
}

// In one call, so that a line is there or not.
std::string WriteLine(int file, const std::string& line, off_t size, const std::string& path) {
  const ssize_t written = write(file, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return "";
  const std::string why = written < 0 ? Fault("write to", path) : "the disk of " + path + " is full";
  return written > 0 && ftruncate(file, size) != 0 ? why + ", and half a line stands at its end" : why;
}

}  // namespace

Act ByThisProcess(const std::string& what, const std::string& request) {
  uint32_t uid = getuid();
  std::string via = "uid " + std::to_string(uid);
  uint32_t login = kNoLogin;
  if (std::ifstream("/proc/self/loginuid") >> login && login != kNoLogin && login != uid) {
    via += ", logged in as uid " + std::to_string(login);
    uid = login;
  }
  // No look at the users' database: cwfabric-off is linked statically.
  return {.by = uid == 0 ? "root" : "uid " + std::to_string(uid),
          .role = "",
          .via = via,
          .what = what,
          .request = request,
          .outcome = "allowed",
          .error = ""};
}

ActsFile::ActsFile(const std::string& path, uint64_t most_bytes)
    : folder_(path.substr(0, path.rfind('/'))), name_(path.substr(path.rfind('/') + 1)), most_(most_bytes) {}

std::string LineOf(const Act& act, int64_t unix_ns) {
  std::string line = "{";
  AppendText("time", TimeText(unix_ns), line);
  AppendText("by", act.by, line);
  if (!act.role.empty()) AppendText("role", act.role, line);
  AppendText("via", act.via, line);
  AppendText("call", act.what, line);
  AppendText("request", act.request, line);
  AppendText("outcome", act.outcome, line);
  if (!act.error.empty()) AppendText("error", act.error, line);
  return line + "}";
}

bool ActsFile::HasFolder() const { return maps::OpenFolder(folder_).ok(); }

std::string ActsFile::NoFile() const {
  struct stat there {};
  if (name_.empty() || lstat(path().c_str(), &there) != 0 || S_ISREG(there.st_mode)) return "";
  return path() + " is a link, or no file; move it away";
}

std::string ActsFile::Append(const Act& act, int64_t unix_ns) const {
  if (name_.empty()) return "";
  const std::string line = LineOf(act, unix_ns) + "\n";
  const maps::UniqueFd folder = maps::OpenFolder(folder_);
  if (!folder.ok()) return Fault("open the folder", folder_);
  for (int attempt = 0; attempt < 8; ++attempt) {
    const maps::UniqueFd file = maps::OpenFileIn(folder.get(), name_.c_str(), O_WRONLY | O_APPEND | O_CREAT, 0640);
    struct stat now {};
    if (!file.ok() && (errno == EMLINK || errno == ELOOP)) return path() + " is a link, or no file; move it away";
    if (!file.ok() && (errno == ENXIO || errno == EISDIR)) return NoFile();
    if (!file.ok()) return Fault("open", path());
    if (!Locked(file.get())) return path() + " is held by another program, which should only read it";
    if (!Stands(file.get(), folder.get(), name_.c_str())) continue;
    // What others appended before the lock counts.
    if (fstat(file.get(), &now) != 0) return Fault("look at", path());
    if (now.st_size == 0 || static_cast<uint64_t>(now.st_size) + line.size() <= most_)
      return WriteLine(file.get(), line, now.st_size, path());
    if (renameat(folder.get(), name_.c_str(), folder.get(), (name_ + ".1").c_str()) != 0)
      return Fault("move away the full", path());
  }
  return "others move " + path() + " away all the time";
}

std::string DefaultPath(const std::string& instance) { return "/var/lib/cwfabric/" + instance + "/acts.jsonl"; }

}  // namespace cw::acts
