// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/findings/settings.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::fleet {
namespace {

constexpr size_t kLeastOfKind = 8;  // of fewer none is the odd one
constexpr double kMost = 0.85;      // so many of them agree
constexpr size_t kMostValues = 64;

struct Setting {
  const char* name;
  std::string (*text)(double);
  double (*of)(const NicFact&);  // 0 = not known
  bool less_alone;               // more than the others have harms nobody
};

std::string Bytes(double value) { return absl::StrFormat("%.0f bytes", value); }
std::string Gigabits(double value) { return absl::StrFormat("%g Gbit/s", value / 1e9); }

constexpr Setting kSettings[] = {
    {"MTU", Bytes, [](const NicFact& nic) { return static_cast<double>(nic.mtu); }, false},
    {"RoCE MTU", Bytes, [](const NicFact& nic) { return static_cast<double>(nic.roce_mtu); }, false},
    {"rate", Gigabits, [](const NicFact& nic) { return nic.rate_bps; }, true},
};

struct Kind {
  size_t nics = 0;
  std::map<double, size_t> have;  // value → how many NICs
};
using Kinds = absl::flat_hash_map<std::string, std::array<Kind, std::size(kSettings)>>;

// Of one rail; where rails are not told, of one name.
std::string KindOf(const NicFact& nic) {
  return nic.rail.empty() ? absl::StrCat("NICs ", nic.name) : absl::StrCat("NICs of rail ", nic.rail);
}

// Each NIC once: it may have several addresses, which stand together.
void EachNic(const HostEvidence& host, absl::FunctionRef<void(const NicFact&)> look) {
  for (size_t i = 0; i < host.nics.size(); ++i) {
    if (i == 0 || host.nics[i].name != host.nics[i - 1].name) look(host.nics[i]);
  }
}

// What nearly all of this kind have; 0: they are too few, alike, or mixed.
double Usual(const Kind& kind) {
  if (kind.nics < kLeastOfKind || kind.have.size() < 2) return 0;
  const auto most = std::max_element(kind.have.begin(), kind.have.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return static_cast<double>(most->second) < kMost * static_cast<double>(kind.nics) ? 0 : most->first;
}

bool IsOdd(const Setting& setting, double value, double usual) {
  return usual > 0 && value > 0 && value != usual && (value < usual || !setting.less_alone);
}

}  // namespace

std::vector<Suspicion> OddSettings(const Picture& picture, const std::vector<bool>& fresh) {
  Kinds kinds;
  for (size_t h = 0; h < picture.hosts.size(); ++h) {
    if (!fresh[h]) continue;
    EachNic(picture.hosts[h], [&](const NicFact& nic) {
      auto& of_kind = kinds[KindOf(nic)];
      for (size_t i = 0; i < std::size(kSettings); ++i) {
        const double value = kSettings[i].of(nic);
        if (!(value > 0) || of_kind[i].have.size() >= kMostValues) continue;
        ++of_kind[i].nics;
        ++of_kind[i].have[value];
      }
    });
  }
  std::map<std::string, Suspicion> odd;  // by scope: one finding of a NIC
  for (size_t h = 0; h < picture.hosts.size(); ++h) {
    if (!fresh[h]) continue;
    EachNic(picture.hosts[h], [&](const NicFact& nic) {
      const auto& of_kind = kinds.at(KindOf(nic));
      for (size_t i = 0; i < std::size(kSettings); ++i) {
        const Setting& setting = kSettings[i];
        const double value = setting.of(nic), usual = Usual(of_kind[i]);
        if (!IsOdd(setting, value, usual)) continue;
        const std::string scope = absl::StrCat("NIC ", nic.name, " of ", picture.hosts[h].name);
        Suspicion& s = odd[scope];
        s.what.cause = Cause::kConfiguration;
        s.what.scope = scope;
        s.what.hosts = {picture.hosts[h].name};
        s.what.evidence.push_back(absl::StrFormat("its %s is %s; %d of %d %s have %s", setting.name,
                                                  setting.text(value), of_kind[i].have.at(usual), of_kind[i].nics,
                                                  KindOf(nic), setting.text(usual)));
      }
    });
  }
  std::vector<Suspicion> all;
  for (auto& [scope, suspicion] : odd) all.push_back(std::move(suspicion));
  return all;
}

}  // namespace cw::fleet
