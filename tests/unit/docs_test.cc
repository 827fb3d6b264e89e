// SPDX-License-Identifier: Apache-2.0
//
// What the documents say is there is there: every command, option, make target, test, path, link and configuration key;
// and operating.md speaks of every event type, doctor check and hold that the code has.
#include <fnmatch.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "maps/abi.h"
#include "tests/unit/cli_run.h"
#include "tests/unit/docs_help.h"
#include "tests/unit/docs_text.h"

#include "userspace/host/doctor.h"
#include "userspace/model/event_types.h"

namespace cw::docs {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const fs::path kRoot = CW_SOURCE_DIR;

std::string Read(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<fs::path> Documents() {
  std::vector<fs::path> out = {kRoot / "README.md", kRoot / "CONTRIBUTING.md"};
  for (const fs::directory_entry& entry : fs::directory_iterator(kRoot / "docs")) {
    if (entry.path().extension() == ".md") out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> FindAll(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> out;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) out.push_back((*at)[1]);
  return out;
}

bool Matches(const std::string& pattern, const std::string& text) {
  return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

// What there is: the programs' own command lines, the Makefile, the tests, the tree, the configuration's reference.
class Tree {
 public:
  Tree() {
    const std::string makefile = Read(kRoot / "Makefile");
    for (const std::string& targets : FindAll(makefile, "(?:^|\n)([a-z][a-z_%-]*(?: [a-z_%-]+)*):(?!=)")) {
      for (const absl::string_view target : absl::StrSplit(targets, ' ')) targets_.insert(std::string(target));
    }
    for (const std::string& names : FindAll(makefile, "\nBENCHES := ([^\n]*)")) {
      for (const absl::string_view name : absl::StrSplit(names, ' '))
        targets_.insert(absl::StrCat("bench-", std::string(name)));
    }
    targets_.erase("bench-%");
    targets_.erase("deps-%");
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kRoot / "tests")) ReadTests(entry.path());
    ReadConfigKeys();
    for (const fs::directory_entry& entry : fs::directory_iterator(kRoot)) {
      const std::string name = entry.path().filename();
      if (entry.is_directory() && name != "build" && name[0] != '.') folders_.insert(name);
    }
  }

  const Help& HelpOfProgram(const std::string& program, const std::vector<std::string>& verbs) {
    const std::string key = absl::StrCat(program, " ", absl::StrJoin(verbs, " "));
    const auto known = help_.find(key);
    if (known != help_.end()) return known->second;
    std::vector<std::string> arguments = verbs;
    arguments.push_back("--help");
    const cli::RunResult result = cli::RunProgram(programs_.at(program), arguments);
    EXPECT_EQ(result.exit_code, 0) << key << ": " << result.err;
    return help_[key] = ParseHelp(result.out);
  }

  // "" when all is there.
  std::string WrongCommand(const std::vector<std::string>& words) {
    const std::string program = fs::path(words[0]).filename();
    const auto dashes = std::find(words.begin() + 1, words.end(), "--");
    const std::vector<std::string> rest(words.begin() + 1, dashes);
    if (dashes != words.end() && dashes + 1 != words.end()) {
      const std::string inner = WrongCommand({dashes + 1, words.end()});
      if (!inner.empty()) return inner;
    }
    if (programs_.count(program) != 0) {
      return Unknown(
          rest, [&](const std::vector<std::string>& verbs) -> const Help& { return HelpOfProgram(program, verbs); });
    }
    if (program == "make") return WrongMake(rest);
    if (program == "ctest") return WrongCtest(rest);
    if (IsTestName(program)) return WrongTest(program, rest);
    return "";
  }

  // A path of the tree, or one below userspace/ as sentences shorten it; patterns are patterns. Others are not ours.
  std::string WrongPath(const std::string& word) const {
    static const std::regex kPath("[A-Za-z0-9_.*-]+(/[A-Za-z0-9_.*-]*)+");
    static const std::regex kSource("[a-z_]+(/[A-Za-z0-9_.*-]+)+\\.(h|cc|c|proto|md|sh|toml|json)");
    if (!std::regex_match(word, kPath) || absl::StrContains(word, "NAME")) return "";
    const std::string first = word.substr(0, word.find('/'));
    const bool whole = folders_.count(first) != 0;
    const bool part = std::regex_match(word, kSource) && fs::is_directory(kRoot / "userspace" / first);
    if (!whole && !part) return "";
    if (Exists(kRoot, word) || (part && Exists(kRoot / "userspace", word))) return "";
    return absl::StrCat("there is no ", word);
  }

  std::string WrongKey(const std::string& word) const {
    const size_t dot = word.rfind('.');
    static const std::regex kKey("[a-z.]+\\.[a-z_]+");
    if (dot == std::string::npos || !std::regex_match(word, kKey) || absl::EndsWith(word, ".sock")) return "";
    const auto section = keys_.find(word.substr(0, dot));
    if (section == keys_.end() || section->second.count(word.substr(dot + 1)) != 0) return "";
    return absl::StrCat("config.md has no ", word);
  }

 private:
  static bool IsTestName(const std::string& name) {
    return absl::EndsWith(name, "_test") || absl::EndsWith(name, "_tests");
  }

  static bool Exists(const fs::path& base, const std::string& word) {
    const fs::path path = base / word;
    if (!absl::StrContains(word, '*')) return fs::exists(path);
    if (!fs::is_directory(path.parent_path())) return false;
    for (const fs::directory_entry& entry : fs::directory_iterator(path.parent_path())) {
      if (Matches(path.filename(), entry.path().filename())) return true;
    }
    return false;
  }

  void ReadTests(const fs::path& path) {
    if (path.filename() == "CMakeLists.txt") {
      for (std::string name : FindAll(Read(path), "(?:cw_test|add_executable)\\(([A-Za-z0-9_${}-]+)"))
        if (name[0] != '$') test_programs_.push_back(std::regex_replace(name, std::regex("\\$\\{[^}]*\\}"), "*"));
    } else if (path.extension() == ".cc") {
      const std::regex test("TEST(?:_F|_P)?\\((\\w+), (\\w+)\\)");
      const std::string text = Read(path);
      for (std::sregex_iterator at(text.begin(), text.end(), test), end; at != end; ++at)
        tests_.push_back(absl::StrCat((*at)[1].str(), ".", (*at)[2].str()));
    }
  }

  void ReadConfigKeys() {
    std::string section;
    const std::regex heading("### \\[+([a-z.]+)\\]+"), row("\\| `([a-z_]+)` \\|.*");
    for (const absl::string_view view : absl::StrSplit(Read(kRoot / "docs/config.md"), '\n')) {
      const std::string line(view);
      std::smatch found;
      if (std::regex_match(line, found, heading)) section = found[1];
      if (!section.empty() && std::regex_match(line, found, row)) keys_[section].insert(found[1]);
    }
  }

  std::string WrongMake(const std::vector<std::string>& words) const {
    for (const std::string& word : words) {
      const bool other = word[0] == '-' || absl::StrContains(word, '=') || absl::StrContains(word, '|') ||
                         absl::StrContains(word, "NAME") || IsPlaceholder(word);
      if (!other && targets_.count(word) == 0) return absl::StrCat("the Makefile has no target ", word);
    }
    return "";
  }

  std::string WrongCtest(const std::vector<std::string>& words) const {
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i] != "-R") continue;
      const std::regex label("^\\^?(unit|bpf|lab|vm|packaging)\\\\?\\.");
      const std::regex wanted(std::regex_replace(words[i + 1], label, ""));
      const bool any = std::any_of(tests_.begin(), tests_.end(),
                                   [&](const std::string& test) { return std::regex_search(test, wanted); });
      if (!any) return absl::StrCat("no test has a name like ", words[i + 1]);
    }
    return "";
  }

  std::string WrongTest(const std::string& program, const std::vector<std::string>& words) const {
    const bool known = std::any_of(test_programs_.begin(), test_programs_.end(),
                                   [&](const std::string& pattern) { return Matches(pattern, program); });
    if (!known) return absl::StrCat("there is no test program ", program);
    for (const std::string& word : words) {
      static const std::string kFilter = "--gtest_filter=";
      if (!absl::StartsWith(word, kFilter)) continue;
      const std::vector<std::string> patterns = absl::StrSplit(word.substr(kFilter.size()), ':');
      for (const std::string& pattern : patterns) {
        const bool any = std::any_of(tests_.begin(), tests_.end(), [&](const std::string& test) {
          return Matches(pattern, test) || Matches(pattern, absl::StrCat("P/", test, "/0"));
        });
        if (!any && pattern[0] != '-') return absl::StrCat("no test matches ", pattern);
      }
    }
    return "";
  }

  const std::map<std::string, std::string> programs_ = {
      {"cwctl", CWCTL_PATH}, {"cwagentd", CWAGENTD_PATH}, {"cwfabric-off", CWFABRIC_OFF_PATH}, {"cwlab", CWLAB_PATH}};
  std::map<std::string, Help> help_;
  std::set<std::string> targets_, folders_;
  std::vector<std::string> tests_, test_programs_;
  std::map<std::string, std::set<std::string>> keys_;
};

// Each as "file:line: what is wrong".
std::vector<std::string> Faults(Tree& tree, const std::string& name, const std::string& markdown) {
  std::vector<std::string> out;
  const auto tell = [&](int line, const std::string& code, const std::string& wrong) {
    if (!wrong.empty()) out.push_back(absl::StrCat(name, ":", line, ": `", code, "`: ", wrong));
  };
  for (const Snippet& snippet : CodeOf(markdown)) {
    for (const std::vector<std::string>& words : CommandsOf(snippet.text)) {
      tell(snippet.line, snippet.text, tree.WrongCommand(words));
      if (snippet.block && words.size() < 2) continue;
      for (const std::string& word : words) tell(snippet.line, snippet.text, tree.WrongPath(word));
    }
    if (!snippet.block) tell(snippet.line, snippet.text, tree.WrongKey(snippet.text));
  }
  for (const Link& link : LinksOf(markdown)) {
    const std::string target = link.target.substr(0, link.target.find('#'));
    if (target.empty() || absl::StrContains(target, "://")) continue;
    const fs::path path = (kRoot / name).parent_path() / target;
    tell(link.line, link.target, fs::exists(path) ? "" : "leads nowhere");
  }
  return out;
}

TEST(Docs, EveryCommandPathAndLinkIsThere) {
  Tree tree;
  size_t commands = 0;
  for (const fs::path& path : Documents()) {
    const std::string text = Read(path);
    EXPECT_FALSE(text.empty()) << path;
    EXPECT_THAT(Faults(tree, fs::relative(path, kRoot), text), IsEmpty());
    for (const Snippet& snippet : CodeOf(text)) commands += CommandsOf(snippet.text).size();
  }
  EXPECT_GT(commands, 100u) << "the reader of documents reads none";
}

TEST(Docs, WhatIsNotThereIsFound) {
  Tree tree;
  const std::vector<std::string> faults =
      Faults(tree, "docs/sample.md",
             "See `cwctl stauts`, `cwctl events --last 3 --typ path` and [it](nowhere.md).\n"
             "`steering.move_gap`, `steering.no_such_key`, `userspace/control/nothing.h`, `bpf/*.nothing`\n"
             "```sh\n"
             "BENCH_CASE=pause make bench-failover && make bench-nothing\n"
             "cwctl completion tcsh\n"
             "cwlab exec h0 -- cwctl qps --no-such\n"
             "```\n"
             "    $ cwagentd --no-such FILE\n"
             "`ctest -R NoSuchTestAnywhere`, `agent_test --gtest_filter=*NoSuchTestAnywhere*`, `no_such_test`\n");
  std::vector<std::string> wrong;
  for (const std::string& fault : faults) wrong.push_back(fault.substr(fault.rfind("`: ") + 3));
  EXPECT_THAT(wrong, ElementsAre(HasSubstr("no verb stauts"), HasSubstr("'events' has no option --typ"),
                                 HasSubstr("no steering.no_such_key"), HasSubstr("no userspace/control/nothing.h"),
                                 HasSubstr("no bpf/*.nothing"), HasSubstr("no target bench-nothing"),
                                 HasSubstr("bash, fish, zsh, not tcsh"), HasSubstr("has no option --no-such"),
                                 HasSubstr("has no option --no-such"), HasSubstr("no test has a name like"),
                                 HasSubstr("no test matches"), HasSubstr("no test program no_such_test"),
                                 HasSubstr("leads nowhere")))
      << absl::StrJoin(faults, "\n");
}

TEST(Docs, CommandsAreReadAsAShellDoes) {
  using Words = std::vector<std::string>;
  EXPECT_THAT(CommandsOf("$ A=1 B='x y' cwctl qps --json | head -3   # comment"),
              ElementsAre(Words{"cwctl", "qps", "--json"}, Words{"head", "-3"}));
  EXPECT_THAT(CommandsOf("cwctl steer set FLOW --path N | --native [--force]"),
              ElementsAre(Words{"cwctl", "steer", "set", "FLOW", "--path", "N", "--native", "--force"}));
  EXPECT_THAT(CommandsOf("cwctl jobs [--job JOB]      what it shows; and more"),
              ElementsAre(Words{"cwctl", "jobs", "--job", "JOB"}));
  EXPECT_THAT(CommandsOf("a && b; c 'd;e' > f"), ElementsAre(Words{"a"}, Words{"b"}, Words{"c", "d;e"}, Words{"f"}));
}

std::set<std::string> InSources(const std::string& folder, const std::string& pattern) {
  std::set<std::string> out;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kRoot / folder)) {
    if (entry.path().extension() != ".cc") continue;
    for (const std::string& found : FindAll(Read(entry.path()), pattern)) out.insert(found);
  }
  return out;
}

// Those of the list, which has to hold all that the agent tells.
std::set<std::string> EventTypes() {
  std::set<std::string> all;
  for (const absl::string_view type : kEventTypes) all.emplace(type);
  for (const std::string& told : InSources("userspace/agent", "\\btype = \"([a-z_]+)\""))
    EXPECT_EQ(all.count(told), 1u) << "event type " << told << " is not in userspace/model/event_types.h";
  return all;
}

TEST(MapsDocument, SpeaksOfEveryPinnedMap) {
  const std::string document = Read(kRoot / "docs/maps.md");
  const std::vector<std::string> names = FindAll(Read(kRoot / "maps/names.h"), "define CW_MAP_(?!LAB)\\w+ \"(\\w+)\"");
  EXPECT_GT(names.size(), 10u);
  for (const std::string& name : names) EXPECT_THAT(document, HasSubstr(absl::StrCat("\n| ", name, " |")));
  EXPECT_THAT(document, HasSubstr(absl::StrCat("counts layouts (", CW_ABI_VERSION, " now)")));
}

TEST(CwctlDocument, SpeaksOfEveryVerbAndEventType) {
  const std::string document = Read(kRoot / "docs/cwctl.md");
  Tree tree;
  const std::set<std::string> verbs = tree.HelpOfProgram("cwctl", {}).commands;
  EXPECT_GT(verbs.size(), 10u);
  for (const std::string& verb : verbs)
    EXPECT_FALSE(FindAll(document, absl::StrCat("`(", verb, ")[` ]")).empty())
        << "docs/cwctl.md lacks `" << verb << "`";
  const size_t types = document.find("Types: `path`");
  ASSERT_NE(types, std::string::npos);
  const std::string list = document.substr(types, document.find("\n\n", types) - types);
  for (const std::string& type : EventTypes()) EXPECT_THAT(list, HasSubstr(absl::StrCat("`", type, "`")));
}

// What programs and alerts tell people to run stands in sentences, so only verbs are looked at: below one that needs
// another no other word may follow.
std::vector<std::string> VerbFaults(Tree& tree, const std::string& name, const std::string& text) {
  std::vector<std::string> out;
  int number = 0;
  for (const absl::string_view view : absl::StrSplit(text, '\n')) {
    const std::string line(view);
    ++number;
    if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "//")) continue;
    for (const std::string& said : FindAll(line, "cwctl((?: [a-z]+)+)")) {
      const std::vector<std::string> words = absl::StrSplit(said, ' ', absl::SkipWhitespace());
      std::vector<std::string> verbs;
      for (const std::string& word : words) {
        const Help& here = tree.HelpOfProgram("cwctl", verbs);
        if (here.commands.count(word) == 0) {
          if (!verbs.empty() && !here.commands.empty()) out.push_back(absl::StrCat(name, ":", number, ": cwctl", said));
          break;
        }
        verbs.push_back(word);
      }
    }
  }
  return out;
}

TEST(Advice, NamesVerbsThatThereAre) {
  Tree tree;
  size_t files = 0;
  for (const char* folder : {"userspace", "cli", "packaging"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const std::string kind = entry.path().extension();
      if (kind != ".cc" && kind != ".yml" && kind != ".yaml" && kind != ".json") continue;
      ++files;
      EXPECT_THAT(VerbFaults(tree, fs::relative(entry.path(), kRoot), Read(entry.path())), IsEmpty());
    }
  }
  EXPECT_GT(files, 100u);
  EXPECT_THAT(VerbFaults(tree, "sample", "run cwctl steer brake, or cwctl doctor first; see cwctl steer"),
              ElementsAre("sample:1: cwctl steer brake"));
}

// ---- packaging/kubernetes: the same rights and folders as the service's unit ----

std::set<std::string> Split(const std::string& text, char separator) {
  const std::vector<std::string> parts = absl::StrSplit(text, separator, absl::SkipWhitespace());
  std::set<std::string> out;
  for (const std::string& part : parts) out.insert(std::string(absl::StripAsciiWhitespace(part)));
  return out;
}

TEST(KubernetesManifest, HasTheUnitsRightsAndFolders) {
  const std::string unit = Read(kRoot / "packaging/systemd/cwfabric-agent.service");
  const std::string manifest = Read(kRoot / "packaging/kubernetes/cwfabric.yaml");
  std::set<std::string> rights;
  for (const std::string& each : Split(FindAll(unit, "\nCapabilityBoundingSet=([^\n]*)").at(0), ' '))
    rights.insert(each.substr(std::string("CAP_").size()));
  EXPECT_EQ(Split(FindAll(manifest, "\n *add: \\[([^\\]]*)\\]").at(0), ','), rights);
  EXPECT_THAT(manifest, HasSubstr("drop: [ALL]"));
  const std::vector<std::string> mounts = FindAll(manifest, "mountPath: (\\S+)");
  const std::map<std::string, std::string> folders = {{"RuntimeDirectory", "/run/"},
                                                      {"StateDirectory", "/var/lib/"},
                                                      {"LogsDirectory", "/var/log/"},
                                                      {"BindPaths", ""}};
  for (const auto& [setting, below] : folders) {
    const std::string first = *Split(FindAll(unit, absl::StrCat("\n", setting, "=([^\n]*)")).at(0), ' ').begin();
    EXPECT_THAT(mounts, Contains(below + first)) << setting;
  }
}

// ---- operating.md ----

// First cells of its tables.
std::set<std::string> Rows() {
  const std::vector<std::string> cells = FindAll(Read(kRoot / "docs/operating.md"), "\n\\| `([^`]+)`[^|]*\\|");
  return {cells.begin(), cells.end()};
}

// Also of those that have not run yet.
TEST(NightlyTable, HasARowForEachStepAndNoOther) {
  std::set<std::string> steps, rows;
  static const std::regex kStep("([a-z0-9_.]+)\\|[^|]*\\|.*"), kRow("\\| ([a-z0-9_.]+) \\|.*");
  std::smatch found;
  const std::string script = Read(kRoot / "tests/nightly.sh"), table = Read(kRoot / "docs/nightly.md");
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(script, '\n')))
    if (std::regex_match(line, found, kStep)) steps.insert(found[1]);
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(table, '\n')))
    if (std::regex_match(line, found, kRow) && found[1] != "step") rows.insert(found[1]);
  EXPECT_THAT(steps, Contains("left_out"));
  EXPECT_EQ(rows, steps);
}

TEST(OperatingGuide, SpeaksOfEveryEventType) {
  const std::set<std::string> rows = Rows();
  const std::set<std::string> types = EventTypes();
  EXPECT_GT(types.size(), 10u);
  for (const std::string& type : types) EXPECT_EQ(rows.count(type), 1u) << "no row for events of type " << type;
}

TEST(OperatingGuide, SpeaksOfEveryHold) {
  const std::set<std::string> rows = Rows();
  const std::set<std::string> holds = InSources("userspace/agent", "AddHold\\(\\s*reply,\\s*\"([a-z_]+)\"");
  EXPECT_GT(holds.size(), 5u);
  for (const std::string& hold : holds) EXPECT_EQ(rows.count(hold), 1u) << "no row for what cwctl why calls " << hold;
}

class OneNic : public host::LiveProbe {
 public:
  absl::StatusOr<std::vector<host::Interface>> Interfaces() override {
    return std::vector<host::Interface>{{.name = "eth0", .state = "up", .mtu = 4500, .on_bus = true}};
  }
  absl::StatusOr<std::vector<host::RdmaPort>> RdmaPorts() override { return std::vector<host::RdmaPort>(); }
  absl::StatusOr<std::vector<host::AttachedProgram>> Programs(const std::string&) override {
    return std::vector<host::AttachedProgram>();
  }
  absl::Status Realtime() override { return absl::OkStatus(); }
  absl::StatusOr<host::ClockDiscipline> Clock() override { return host::ClockDiscipline{}; }
};

TEST(OperatingGuide, SpeaksOfEveryDoctorCheck) {
  const std::set<std::string> rows = Rows();
  OneNic nic;
  const host::Roots nothing{"/nonexistent/proc", "/nonexistent/sys"};
  const std::vector<host::Check> checks = host::RunDoctor(nothing, nic, host::DoctorInput{});
  EXPECT_GT(checks.size(), 10u);
  for (const host::Check& check : checks) {
    const std::string name = std::regex_replace(check.name, std::regex(" eth0$"), " NIC");
    EXPECT_EQ(rows.count(name), 1u) << "no row for the check " << name;
  }
}

}  // namespace
}  // namespace cw::docs
