// SPDX-License-Identifier: Apache-2.0
//
// cwctl certs: certificates for sites without an authority of their own. No agent is asked.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/session.h"
#include "cli/table.h"
#include "userspace/model/regular_file.h"
#include "userspace/tls/authority.h"
#include "userspace/tls/certificate.h"
#include "userspace/tls/revocation.h"

namespace cw::cli {
namespace {

using nlohmann::ordered_json;

constexpr int kAuthorityDays = 3650, kHostDays = 365, kUserDays = 90;
constexpr int kMostDays = 36500;
constexpr char kAuthority[] = "ca";

struct CertOptions {
  std::string name, role, folder, authority, file, serial, title = "cwfabric";
  std::vector<std::string> others;
  int days = 0;
};

// Never over a file that is there: a key that was overwritten is a host that nobody reaches.
absl::Status WriteNew(const std::string& path, const std::string& text, mode_t mode) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0) {
    return errno == EEXIST ? absl::AlreadyExistsError(absl::StrFormat(
                                 "%s is there already, and is not overwritten; move it away first", path))
                           : absl::PermissionDeniedError(absl::StrFormat("cannot make %s: %s", path, strerror(errno)));
  }
  const bool written = fchmod(fd, mode) == 0 &&
                       write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(fd) == 0;
  const std::string error = strerror(errno);
  if (close(fd) == 0 && written) return absl::OkStatus();
  unlink(path.c_str());
  return absl::DataLossError(absl::StrFormat("cannot write %s: %s", path, error));
}

std::string PathOf(const std::string& folder, const std::string& name, const char* kind) {
  return absl::StrFormat("%s/%s.%s", folder.empty() ? "." : folder, name, kind);
}

// Neither file is left alone: one that was made is taken back when the other cannot be.
absl::Status Store(const std::string& folder, const std::string& name, const tls::Issued& issued) {
  if (!folder.empty() && mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return absl::PermissionDeniedError(absl::StrFormat("cannot make folder %s: %s", folder, strerror(errno)));
  const std::string key = PathOf(folder, name, "key"), certificate = PathOf(folder, name, "crt");
  if (absl::Status status = WriteNew(key, issued.key, 0600); !status.ok()) return status;
  absl::Status status = WriteNew(certificate, issued.certificate, 0644);
  if (!status.ok()) unlink(key.c_str());
  return status;
}

ordered_json ToJson(const tls::CertificateInfo& info) {
  const absl::StatusOr<std::string> role = tls::RoleOf(info.uris);
  const auto time = [](absl::Time at) { return absl::FormatTime(absl::RFC3339_sec, at, absl::UTCTimeZone()); };
  return {{"subject", info.subject},
          {"issuer", info.issuer},
          {"serial", info.serial},
          {"not_before", time(info.not_before)},
          {"not_after", time(info.not_after)},
          {"role", role.ok() ? ordered_json(*role) : ordered_json(nullptr)},
          {"names", info.dns_names},
          {"addresses", info.addresses},
          {"authority", info.is_authority}};
}

std::string Text(const tls::CertificateInfo& info, absl::Time now) {
  const absl::StatusOr<std::string> role = tls::RoleOf(info.uris);
  std::vector<std::string> reached = info.dns_names;
  reached.insert(reached.end(), info.addresses.begin(), info.addresses.end());
  std::string out = absl::StrFormat("%s, signed by %s\n", Printable(info.subject), Printable(info.issuer));
  if (info.is_authority) absl::StrAppend(&out, "  an authority\n");
  if (role.ok()) absl::StrAppend(&out, "  user with the role ", Printable(*role), "\n");
  if (!reached.empty()) absl::StrAppend(&out, "  host reached as ", Printable(absl::StrJoin(reached, ", ")), "\n");
  const std::string when = absl::FormatTime(absl::RFC3339_sec, info.not_after, absl::UTCTimeZone());
  absl::StrAppend(&out, info.not_after < now ? "  expired " : "  valid until ", when, "\n");
  return out;
}

// What was made: its files and what it says.
absl::StatusOr<int> Made(const Session& session, const std::string& folder, const std::string& name,
                         const tls::Issued& issued, const std::string& next) {
  if (absl::Status status = Store(folder, name, issued); !status.ok()) return status;
  const absl::StatusOr<std::vector<tls::CertificateInfo>> info = tls::ReadCertificates(issued.certificate);
  if (!info.ok()) return info.status();
  const std::string certificate = PathOf(folder, name, "crt"), key = PathOf(folder, name, "key");
  if (session.json) {
    ordered_json out = {{"certificate_file", certificate}, {"key_file", key}};
    out["certificate"] = ToJson(info->front());
    std::cout << out.dump(2) << std::endl;
  } else {
    std::cout << Text(info->front(), absl::Now()) << certificate << ", " << key << "\n" << next << std::endl;
  }
  return kOk;
}

absl::StatusOr<tls::Issued> ReadAuthority(const std::string& folder) {
  tls::Issued authority;
  absl::StatusOr<std::string> certificate = ReadRegularFile(PathOf(folder, kAuthority, "crt"));
  if (!certificate.ok())
    return absl::NotFoundError(absl::StrFormat("%s; make an authority first: cwctl certs ca --out %s",
                                               std::string(certificate.status().message()), folder));
  absl::StatusOr<std::string> key = ReadRegularFile(PathOf(folder, kAuthority, "key"));
  if (!key.ok()) return key.status();
  authority.certificate = *std::move(certificate);
  authority.key.swap(*key);
  return authority;
}

absl::StatusOr<tls::Life> LifeOf(int days, int otherwise) {
  if (days == 0) days = otherwise;
  if (days < 1 || days > kMostDays)
    return absl::InvalidArgumentError(absl::StrFormat("--days %d: give 1 to %d", days, kMostDays));
  return tls::Life{.now = absl::Now(), .days = days};
}

absl::StatusOr<int> MakeCa(const Session& session, const CertOptions& options) {
  const absl::StatusOr<tls::Life> life = LifeOf(options.days, kAuthorityDays);
  if (!life.ok()) return life.status();
  const absl::StatusOr<tls::Issued> made = tls::MakeAuthority(options.title, *life);
  if (!made.ok()) return made.status();
  const absl::StatusOr<std::string> list = tls::EmptyList(*made, absl::Now());
  if (!list.ok()) return list.status();
  const absl::StatusOr<int> code =
      Made(session, options.folder, kAuthority, *made,
           "keep ca.key where nobody else gets at it, best not on a host of the fabric; ca.crt goes to all hosts and "
           "users, ca.crl, the list of revoked certificates, to all hosts (api.tls_crl)");
  if (!code.ok()) return code;
  const absl::Status written = WriteNew(PathOf(options.folder, kAuthority, "crl"), *list, 0644);
  return written.ok() ? code : written;
}

absl::StatusOr<int> MakeLeaf(const Session& session, const CertOptions& options, bool host) {
  const absl::StatusOr<tls::Life> life = LifeOf(options.days, host ? kHostDays : kUserDays);
  if (!life.ok()) return life.status();
  const absl::StatusOr<tls::Issued> authority = ReadAuthority(options.authority);
  if (!authority.ok()) return authority.status();
  if (options.name == kAuthority) return absl::InvalidArgumentError("\"ca\" is the authority's own name here");
  const absl::StatusOr<tls::Issued> made = host ? tls::MakeHost(*authority, options.name, options.others, *life)
                                                : tls::MakeUser(*authority, options.name, options.role, *life);
  if (!made.ok()) return made.status();
  const std::string folder = options.folder.empty() ? options.authority : options.folder;
  return Made(
      session, folder, options.name, *made,
      host ? "on the host: api.tls_cert, api.tls_key (chown cwfabric), api.tls_ca, api.listen; see docs/operating.md"
           : "cwctl --server HOST:PORT --cert, --key, and --ca with ca.crt; or CWFABRIC_CERT, _KEY, _CA");
}

// The list's file with its next text beside it, which keeps others from changing it meanwhile, and is then put in its
// place: an agent that reads it has the one or the other.
absl::StatusOr<std::string> Replace(const std::string& path,
                                    const std::function<absl::StatusOr<std::string>(const std::string&)>& change) {
  const std::string fresh = path + ".new";
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "cannot make %s: %s; another cwctl may be at work, or was ended at it", fresh, strerror(errno)));
  }
  const absl::StatusOr<std::string> before = ReadRegularFile(path);
  absl::StatusOr<std::string> text = before.ok() ? change(*before) : before.status();
  const bool written = text.ok() && fchmod(fd, 0644) == 0 &&
                       write(fd, text->data(), text->size()) == static_cast<ssize_t>(text->size()) && fsync(fd) == 0;
  const bool placed = close(fd) == 0 && written && rename(fresh.c_str(), path.c_str()) == 0;
  const std::string error = strerror(errno);
  if (!placed) unlink(fresh.c_str());
  if (!placed && text.ok()) return absl::DataLossError(absl::StrFormat("cannot replace %s: %s", path, error));
  return text;
}

absl::StatusOr<std::string> SerialAsked(const CertOptions& options, const tls::Issued& authority) {
  if (options.file.empty() == options.serial.empty())
    return absl::InvalidArgumentError("say which certificate: its file, or --serial with its number");
  if (!options.serial.empty()) return options.serial;
  const absl::StatusOr<std::string> certificate = ReadRegularFile(options.file);
  return certificate.ok() ? tls::SerialOf(authority, *certificate) : certificate.status();
}

absl::StatusOr<int> RevokeOne(const Session& session, const CertOptions& options) {
  const absl::StatusOr<tls::Issued> authority = ReadAuthority(options.authority);
  if (!authority.ok()) return authority.status();
  const absl::StatusOr<std::string> serial = SerialAsked(options, *authority);
  if (!serial.ok()) return serial.status();
  const std::string path = PathOf(options.authority, kAuthority, "crl");
  const absl::StatusOr<std::string> list =
      Replace(path, [&](const std::string& before) { return tls::Revoke(*authority, before, *serial, absl::Now()); });
  if (!list.ok()) return list.status();
  const absl::StatusOr<tls::Revoked> revoked = tls::ReadRevocations(*list, authority->certificate);
  if (!revoked.ok()) return revoked.status();
  if (session.json) {
    ordered_json out = {{"list_file", path}, {"serials", ordered_json::array()}};
    for (const auto& [issuer, each] : *revoked) out["serials"].push_back(each);
    std::cout << out.dump(2) << std::endl;
  } else {
    std::cout << path << ": " << revoked->size()
              << " revoked\nput it on every host, as api.tls_crl names it; agents read it again by themselves"
              << std::endl;
  }
  return kOk;
}

absl::StatusOr<int> ShowFile(const Session& session, const CertOptions& options) {
  const absl::StatusOr<std::string> text = ReadRegularFile(options.file);
  if (!text.ok()) return text.status();
  const absl::StatusOr<std::vector<tls::CertificateInfo>> infos = tls::ReadCertificates(*text);
  if (!infos.ok())
    return absl::InvalidArgumentError(absl::StrFormat("%s: %s", options.file, std::string(infos.status().message())));
  ordered_json out = {{"certificates", ordered_json::array()}};
  for (const tls::CertificateInfo& info : *infos) {
    out["certificates"].push_back(ToJson(info));
    if (!session.json) std::cout << Text(info, absl::Now());
  }
  if (session.json) std::cout << out.dump(2, ' ', false, ordered_json::error_handler_t::replace) << std::endl;
  return kOk;
}

void AddDays(CLI::App& verb, CertOptions& options, int otherwise) {
  verb.add_option("--days", options.days, absl::StrFormat("Life time in days; %d by default", otherwise));
}

void AddSigned(CLI::App& verb, CertOptions& options) {
  verb.add_option("--ca", options.authority, "Folder with ca.crt and ca.key")->type_name("DIR")->required();
  verb.add_option("--out", options.folder, "Folder for NAME.crt and NAME.key; that of the authority by default")
      ->type_name("DIR");
}

}  // namespace

void AddCertsVerbs(CLI::App& app, Session& session) {
  auto options = std::make_shared<CertOptions>();
  CLI::App* certs = app.add_subcommand("certs", "Make certificates for agents that listen on TCP, and for their users");
  certs->require_subcommand(1);
  certs->footer(
      "Keys are made with mode 0600, nothing but the list of revoked certificates is ever overwritten. Sites with an "
      "authority of their own use that "
      "one: a user's role is the alternative name URI:cwfabric://role/ROLE.");
  const auto does = [&session](CLI::App* verb, std::function<absl::StatusOr<int>()> action) {
    verb->callback([&session, action] { session.action = action; });
  };
  CLI::App* ca =
      certs->add_subcommand("ca", "Make an authority: ca.crt, ca.key, and ca.crl, its list of revoked certificates");
  ca->add_option("--out", options->folder, "Folder for them, which is made when it is missing")
      ->type_name("DIR")
      ->required();
  ca->add_option("--name", options->title, "Its name, for people")->capture_default_str();
  AddDays(*ca, *options, kAuthorityDays);
  does(ca, [&session, options] { return MakeCa(session, *options); });

  CLI::App* host = certs->add_subcommand("host", "Make a host's certificate, for its agent");
  host->add_option("name", options->name, "Its name or address, by which clients reach it")
      ->type_name("NAME")
      ->required();
  host->add_option("--also", options->others, "Further names and addresses of it")->type_name("NAME");
  AddSigned(*host, *options);
  AddDays(*host, *options, kHostDays);
  does(host, [&session, options] { return MakeLeaf(session, *options, true); });

  CLI::App* user = certs->add_subcommand("user", "Make a user's certificate, with a role");
  user->add_option("name", options->name, "Who it is; stands in the events of what is done with it")
      ->type_name("NAME")
      ->required();
  user->add_option("--role", options->role, "read, steer or admin")
      ->type_name("ROLE")
      ->required()
      ->check(CLI::IsMember({"read", "steer", "admin"}));
  AddSigned(*user, *options);
  AddDays(*user, *options, kUserDays);
  does(user, [&session, options] { return MakeLeaf(session, *options, false); });

  CLI::App* revoke =
      certs->add_subcommand("revoke", "Put a certificate on the authority's list of revoked ones, ca.crl");
  revoke->add_option("file", options->file, "The certificate, PEM")->type_name("FILE");
  revoke->add_option("--serial", options->serial, "Or its serial number, as events of the type audit tell it")
      ->type_name("HEX");
  revoke->add_option("--ca", options->authority, "Folder with ca.crt, ca.key and ca.crl")->type_name("DIR")->required();
  does(revoke, [&session, options] { return RevokeOne(session, *options); });

  CLI::App* show = certs->add_subcommand("show", "Tell what a certificate's file says");
  show->add_option("file", options->file, "A file in PEM form")->type_name("FILE")->required();
  does(show, [&session, options] { return ShowFile(session, *options); });
}

}  // namespace cw::cli
