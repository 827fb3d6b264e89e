// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/libbpf_log.h"

#include <bpf/libbpf.h>
#include <spdlog/spdlog.h>

#include <cstdarg>
#include <cstdio>
#include <mutex>

namespace cw::dataplane {

constexpr size_t kMaxText = 64 * 1024;

struct LibbpfLogHook {
  static thread_local LibbpfLog* current;

  static int Print(libbpf_print_level level, const char* format, va_list args) {
    if (level == LIBBPF_DEBUG) return 0;
    va_list again;
    va_copy(again, args);
    const int length = vsnprintf(nullptr, 0, format, again);
    va_end(again);
    if (length <= 0) return 0;
    std::string line(static_cast<size_t>(length) + 1, '\0');
    vsnprintf(line.data(), line.size(), format, args);
    line.pop_back();
    if (current == nullptr) {
      spdlog::debug("{}", line);
    } else if (current->text_.size() + line.size() <= kMaxText) {
      current->text_ += line;
    }
    return length;
  }
};

thread_local LibbpfLog* LibbpfLogHook::current = nullptr;

LibbpfLog::LibbpfLog() : outer_(LibbpfLogHook::current) {
  static std::once_flag once;
  std::call_once(once, [] { libbpf_set_print(&LibbpfLogHook::Print); });
  LibbpfLogHook::current = this;
}

LibbpfLog::~LibbpfLog() { LibbpfLogHook::current = outer_; }

}  // namespace cw::dataplane
