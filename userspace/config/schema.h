// SPDX-License-Identifier: Apache-2.0
//
// The schema of the configuration as a walk over a Config: a visitor sees every key with its value, range and
// description, in the order of the file. Reading, printing and the reference are visitors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/config/config.h"

namespace cw::config {

struct IntegerRange {
  int64_t min, max;
};
struct RealRange {
  double min, max;
};
struct DurationRange {
  absl::Duration min, max;
};
enum class TextRule {
  kFree,
  kInstance,     // [a-z0-9-], 1–32 characters
  kDevice,       // network device, 1–15 characters
  kName,         // no white space, 1–64 characters
  kAddress,      // IPv4 or IPv6, unicast
  kAutoAddress,  // "auto" or such an address
  kPath,         // absolute, or empty
  kAutoPath,     // "auto", absolute, or empty
  kListen,       // "auto" or what ParseListen takes
  kTcp,          // an address and a port, as ParseListen takes them
  kServer,       // a name or an address, and a port
  kAutoServer,   // the same, or "auto"
  kGroup,        // a unix group's name, or empty
  kCpus,         // processors, as ParseCpuList takes them
};

// Each value method takes the present value and returns the new one (the same, unless the visitor reads).
class Visitor {
 public:
  virtual ~Visitor() = default;

  virtual std::string Text(absl::string_view key, std::string value, TextRule rule, absl::string_view doc) = 0;
  virtual std::vector<std::string> Texts(absl::string_view key, std::vector<std::string> value, TextRule rule,
                                         absl::string_view doc) = 0;
  virtual bool Flag(absl::string_view key, bool value, absl::string_view doc) = 0;
  virtual int64_t Integer(absl::string_view key, int64_t value, IntegerRange range, absl::string_view doc) = 0;
  // `word` stands for "no number".
  virtual std::optional<int64_t> IntegerOr(absl::string_view key, std::optional<int64_t> value, absl::string_view word,
                                           IntegerRange range, absl::string_view doc) = 0;
  virtual double Real(absl::string_view key, double value, RealRange range, absl::string_view doc) = 0;
  virtual absl::Duration Duration(absl::string_view key, absl::Duration value, DurationRange range,
                                  absl::string_view doc) = 0;
  // One of `words`, by index.
  virtual size_t Choice(absl::string_view key, size_t value, const std::vector<std::string>& words,
                        absl::string_view doc) = 0;

  // Tables may nest; a nested one comes after the keys of the one around it, as in TOML.
  virtual void BeginTable(absl::string_view key, absl::string_view doc) = 0;
  virtual void EndTable() = 0;
  // [[key]]: returns the number of elements to walk; each is walked between BeginElement and EndElement.
  virtual size_t BeginArray(absl::string_view key, size_t size, absl::string_view doc) = 0;
  virtual std::string BeginElement(size_t index) = 0;  // returns "file:line" where known
  virtual void EndElement() = 0;
  virtual void EndArray() = 0;
};

void Walk(Visitor& visitor, Config& config);
// The [[peer]] tables alone: what peers_file and the files of peers_dir hold.
void WalkPeers(Visitor& visitor, std::vector<PeerConfig>& peers);

const std::vector<std::string>& ModeWords();
const std::vector<std::string>& AllowWords();
const std::vector<std::string>& LogLevelWords();
const std::vector<std::string>& LogFormatWords();
const std::vector<std::string>& AttachWords();
const std::vector<std::string>& RxStampsWords();
const std::vector<std::string>& TransportWords();
const std::vector<std::string>& NicTransportWords();
const std::vector<std::string>& VerbsWaitWords();
const std::vector<std::string>& AnchorWords();

// "" when the text obeys the rule, otherwise what is wanted.
std::string Violation(TextRule rule, const std::string& text);

}  // namespace cw::config
