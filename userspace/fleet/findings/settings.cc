// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/findings/settings.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::fleet {
namespace {

constexpr size_t kLeastOfKind = 8;  // of fewer none is the odd one
constexpr double kMost = 0.85;      // so many of them agree
constexpr size_t kMostValues = 64;
constexpr size_t kMostOdd = 100, kMostNamed = 16;

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

// Of each host one NIC of a kind: none decides alone what is usual.
Kinds CountKinds(const Picture& picture, const std::vector<bool>& fresh) {
  Kinds kinds;
  for (size_t h = 0; h < picture.hosts.size(); ++h) {
    if (!fresh[h]) continue;
    absl::flat_hash_set<std::string> told;
    EachNic(picture.hosts[h], [&](const NicFact& nic) {
      const std::string name = KindOf(nic);
      if (!told.insert(name).second) return;
      auto& of_kind = kinds[name];
      for (size_t i = 0; i < std::size(kSettings); ++i) {
        const double value = kSettings[i].of(nic);
        if (!(value > 0)) continue;
        ++of_kind[i].nics;
        if (of_kind[i].have.size() < kMostValues || of_kind[i].have.contains(value)) ++of_kind[i].have[value];
      }
    });
  }
  return kinds;
}

struct Odd {
  std::string host;
  std::vector<std::string> evidence;
};

// One by one as long as they are few; of more it is the kind that was set up in two ways.
std::vector<Suspicion> SuspicionsOf(const std::map<std::string, Odd>& odd, const std::map<std::string, size_t>& many) {
  std::vector<Suspicion> all;
  const auto add = [&](std::string scope, std::vector<std::string> hosts, std::vector<std::string> evidence) {
    Suspicion s{.what = {.cause = Cause::kConfiguration, .scope = std::move(scope)}};
    s.what.hosts = std::move(hosts);
    s.what.evidence = std::move(evidence);
    all.push_back(std::move(s));
  };
  size_t nics = 0;
  for (const auto& [what, count] : many) nics += count;
  if (nics < kMostOdd) {
    for (const auto& [scope, one] : odd) add(scope, {one.host}, one.evidence);
    return all;
  }
  for (const auto& [what, count] : many) {
    if (all.size() == kMostOdd) break;
    std::vector<std::string> some;
    for (const auto& [scope, one] : odd) {
      if (some.size() < kMostNamed) some.push_back(one.host);
    }
    add(what, std::move(some), {"one in seven of them at most; see cwctl status --host of those that are named"});
  }
  return all;
}

}  // namespace

std::vector<Suspicion> OddSettings(const Picture& picture, const std::vector<bool>& fresh) {
  const Kinds kinds = CountKinds(picture, fresh);
  std::map<std::string, Odd> odd;      // by scope: one finding of a NIC
  std::map<std::string, size_t> many;  // kind and setting → NICs
  for (size_t h = 0; h < picture.hosts.size(); ++h) {
    if (!fresh[h]) continue;
    EachNic(picture.hosts[h], [&](const NicFact& nic) {
      const auto of_kind = kinds.find(KindOf(nic));
      for (size_t i = 0; i < std::size(kSettings) && of_kind != kinds.end(); ++i) {
        const Setting& setting = kSettings[i];
        const double value = setting.of(nic), usual = Usual(of_kind->second[i]);
        if (!IsOdd(setting, value, usual)) continue;
        const std::string text = absl::StrFormat("its %s is %s; nearly all %s have %s", setting.name,
                                                 setting.text(value), KindOf(nic), setting.text(usual));
        ++many[absl::StrFormat("%s with another %s", KindOf(nic), setting.name)];
        if (odd.size() >= kMostOdd) continue;
        Odd& one = odd[absl::StrCat("NIC ", nic.name, " of ", picture.hosts[h].name)];
        one.host = picture.hosts[h].name;
        one.evidence.push_back(text);
      }
    });
  }
  return SuspicionsOf(odd, many);
}

}  // namespace cw::fleet
