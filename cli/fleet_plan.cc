// SPDX-License-Identifier: Apache-2.0
//
// cwctl fleet topology --plan: the fabric as it is, in the form of fabric_file, so that from now on each cable that is
// moved is told. docs/fleet.md.
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_format.h"
#include "cli/fleet.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

// Asks the system's resolver, until it does not answer: each further question would wait for as long.
class Names {
 public:
  explicit Names(bool ask) : ask_(ask) {}
  // "" = none.
  std::string Of(const std::string& address) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_flags = AI_NUMERICHOST;
    if (!ask_ || getaddrinfo(address.c_str(), nullptr, &hints, &found) != 0) return "";
    char name[NI_MAXHOST];
    const int error = getnameinfo(found->ai_addr, found->ai_addrlen, name, sizeof name, nullptr, 0, NI_NAMEREQD);
    freeaddrinfo(found);
    if (error == EAI_AGAIN) ask_ = false;
    return error == 0 ? name : "";
  }

 private:
  bool ask_;
};

// A name of the file: no white space, at most 64 bytes.
bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= 64 &&
         std::none_of(name.begin(), name.end(), [](unsigned char c) { return c <= ' ' || c == 0x7f; });
}

// A basic string of TOML.
std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (byte < ' ' || byte == 0x7f) {
      absl::StrAppendFormat(&out, "\\u%04x", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// As it was named, by its addresses' first name, or as the service calls it: an address.
std::string NameOf(const v1::FleetSwitch& s, Names& names, std::set<std::string>& taken) {
  for (const std::string& address : s.addresses()) {
    if (s.named()) break;
    std::string name = names.Of(address);
    if (IsName(name) && taken.insert(name).second) return name;
  }
  return s.name();
}

}  // namespace

void ShowFleetPlan(const v1::FleetTopologyReply& reply, bool dns) {
  Names names(dns);
  std::set<std::string> taken;
  for (const v1::FleetSwitch& s : reply.switches()) taken.insert(s.name());
  std::map<std::string, std::string> name_of;
  std::cout << "# The fabric as traces show it. See that it is as it was meant, then name it in fabric_file.\n";
  for (const v1::FleetSwitch& s : reply.switches()) {
    const std::string name = name_of[s.name()] = NameOf(s, names, taken);
    std::cout << "[[switch]]\nname = " << Quoted(name) << '\n';
    if (!s.rack().empty()) std::cout << "rack = " << Quoted(s.rack()) << '\n';
    if (!s.rail().empty()) std::cout << "rail = " << Quoted(s.rail()) << '\n';
    std::cout << "addresses = [";
    const char* comma = "";
    for (const std::string& address : s.addresses()) {
      std::cout << comma << Quoted(address);
      comma = ", ";
    }
    std::cout << "]\n";
  }
  std::set<std::string> ends;
  for (const v1::FleetLink& link : reply.links()) {
    const auto from = name_of.find(link.from());
    // A NIC's own way up: its leaf is told by the way down.
    if (from == name_of.end() || !ends.insert(link.port()).second) continue;
    if (name_of.contains(link.to())) {
      std::cout << "[[cable]]\nfrom = " << Quoted(from->second) << "\nto = " << Quoted(link.port()) << '\n';
    } else {
      std::cout << "[[nic]]\naddress = " << Quoted(link.port()) << "\nleaf = " << Quoted(from->second) << '\n';
    }
  }
}

}  // namespace cw::cli
