// SPDX-License-Identifier: Apache-2.0
// Any bytes as a configuration: refused with a message, or taken; and what was taken is the same after it was written
// and read once more.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"
#include "userspace/config/config.h"
#include "userspace/config/listen.h"
#include "userspace/model/cpu_list.h"

namespace {

void Require(bool holds) {
  if (!holds) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<cw::config::Config> config = cw::config::ParseConfig(text, "fuzz.toml");
  if (!config.ok()) {
    Require(!config.status().message().empty());
  } else {
    const std::string written = cw::config::ToToml(*config);
    const absl::StatusOr<cw::config::Config> again = cw::config::ParseConfig(written, "written.toml");
    Require(again.ok() && cw::config::ToToml(*again) == written);
  }
  if (size > 128) return 0;
  const std::string word(text);
  (void)cw::config::ParseListen(word);
  (void)cw::ParseCpuList(word);
  return 0;
}
