// SPDX-License-Identifier: Apache-2.0
//
// cwfabric-off: see Usage. Statically linked.
#include <cstdio>
#include <cstring>
#include <string>

#include "userspace/off/detach.h"

namespace {

constexpr char kUsage[] =
    "Usage: cwfabric-off [OPTIONS]\n"
    "\n"
    "Takes cwfabric out of the kernel, without an agent and without any library: every flow goes back to its native\n"
    "port, programs are detached, pins are removed. clsact stays, because\n"
    "removing it may drop packets. What is somebody else's is left alone. What is not there is no error.\n"
    "\n"
    "Options:\n"
    "  -h,--help        Print this and end\n"
    "  --version        Print the version and end\n"
    "  --dry-run        Say what would be done, and do nothing\n"
    "  --force          Even while the agent runs: it goes on without its programs, in mode off; they come\n"
    "                   back with another mode, such as by cwctl mode observe\n"
    "  --instance NAME  This instance only; all, where it is not given\n"
    "  --json           One JSON object: dry_run, done, left\n"
    "\n"
    "Who did it is kept in /var/lib/cwfabric/INSTANCE/acts.jsonl, where an agent was.\n"
    "A service that is started again attaches again: systemctl disable --now cwfabric-agent.\n"
    "Exit status: 0 nothing of cwfabric is left, 1 something is (it is named), 2 usage.\n";

constexpr char kManual[] =
    ".TH CWFABRIC-OFF 8 \"\" \"cwfabric " CW_VERSION
    "\" \"cwfabric\"\n"
    ".SH NAME\ncwfabric-off \\- takes cwfabric out of the kernel, without an agent\n"
    ".SH SYNOPSIS\n.B cwfabric-off\n[\\-\\-dry\\-run] [\\-\\-force] [\\-\\-instance NAME] [\\-\\-json]\n"
    ".SH DESCRIPTION\n"
    "Every flow goes back to its native port, programs are detached, pins are removed. clsact stays, because\n"
    "removing it may drop packets. What is somebody else's is left alone, and what is not there is no error.\n"
    "Needs no library and no agent. Interfaces of another network namespace are left, with their pins, and named.\n"
    "Who did it is kept in /var/lib/cwfabric/INSTANCE/acts.jsonl, where an agent was.\n"
    "A service that is started again attaches again: systemctl disable \\-\\-now cwfabric\\-agent.\n"
    ".SH OPTIONS\n"
    ".TP\n\\-\\-dry\\-run\nSay what would be done, and do nothing.\n"
    ".TP\n\\-\\-force\nEven while the agent runs: it goes on without its programs, in mode off. They come\n"
    "back with another mode, such as by cwctl mode observe.\n"
    ".TP\n\\-\\-instance NAME\nThis instance only; all, where it is not given.\n"
    ".TP\n\\-\\-json\nOne JSON object: dry_run, done, left.\n"
    ".SH EXIT STATUS\n0 nothing of cwfabric is left, 1 something is, and is named, 2 usage.\n"
    ".SH SEE ALSO\n.BR cwagentd (8),\n.BR cwctl (1)\n";

int Wrong(const std::string& what) {
  fprintf(stderr, "cwfabric-off: %s\n%s", what.c_str(), kUsage);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  cw::off::Options options;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "-h" || word == "--help") return fputs(kUsage, stdout) < 0;
    if (word == "--version") return puts(CW_VERSION) < 0;
    if (word == "--manual") return fputs(kManual, stdout) < 0;
    if (word == "--dry-run") {
      options.dry = true;
    } else if (word == "--force") {
      options.force = true;
    } else if (word == "--json") {
      json = true;
    } else if (word == "--instance" && i + 1 < argc && cw::off::IsInstanceName(argv[i + 1])) {
      options.instance = argv[++i];
    } else if (word == "--instance") {
      return Wrong("--instance NAME: 1 to 32 letters, digits, '-' and '_'");
    } else {
      return Wrong("unknown argument " + word);
    }
  }
  const cw::off::Report report = cw::off::Detach(options);
  fputs((json ? Json(report) : Text(report)).c_str(), stdout);
  return report.left.empty() ? 0 : 1;
}
