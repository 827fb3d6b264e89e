// SPDX-License-Identifier: Apache-2.0
//
// What the shells and man(1) make of the programs' own command lines.
#include "userspace/commandline/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/unit/cli_run.h"
#include "userspace/commandline/printable_stream.h"

namespace cw::commandline {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Folder : public ::testing::Test {
 protected:
  Folder() {
    char name[] = "/tmp/cw-commandline-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() override { std::filesystem::remove_all(path_); }

  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(path_ + "/" + name) << text;
    return path_ + "/" + name;
  }
  static std::string Out(const std::string& program, const std::vector<std::string>& arguments) {
    const cli::RunResult result = cli::RunProgram(program, arguments);
    EXPECT_EQ(result.exit_code, 0) << program << " " << absl::StrJoin(arguments, " ") << ": " << result.err;
    EXPECT_EQ(result.err, "") << program;
    return result.out;
  }
  // What bash offers for the last of these words.
  std::string Offered(const std::vector<std::string>& words) {
    const std::string script = Write("cwctl.bash", Out(CWCTL_PATH, {"completion", "bash"}));
    std::string quoted;
    for (const std::string& word : words) absl::StrAppend(&quoted, " '", word, "'");
    return Out("/bin/bash",
               {"-c", absl::StrCat("compopt() { :; }; source ", script, "; COMP_WORDS=(", quoted,
                                   "); COMP_CWORD=", words.size() - 1, "; _cwctl; echo \" ${COMPREPLY[*]} \"")});
  }

  std::string path_;
};

TEST(PrintableStreamTest, LetsTheProgramsOwnColoursThroughAndNothingElse) {
  std::ostringstream out;
  {
    PrintableStream fence(out);
    out << "\033[31mdead\033[0m\tx\n\033[2J\033[8m\x07\u202e" << 'y' << std::flush;
  }
  EXPECT_EQ(out.str(), "\033[31mdead\033[0m\tx\n?[2J?[8m??y");
  std::ostringstream json;
  {
    PrintableStream fence(json);
    fence.SetJson();
    json << "{\"a\": \"\u202e\u0085\"}\n";
  }
  EXPECT_EQ(json.str(), "{\"a\": \"\\u202e\\u0085\"}\n");
}

TEST(Describe, ReadsVerbsOptionsAndChoices) {
  CLI::App app("A program", "prog");
  bool json = false;
  std::string mode, what;
  std::vector<std::string> rules;
  app.add_flag("--json", json, "As JSON");
  CLI::App* set = app.add_subcommand("set", "Set it");
  set->add_option("mode", mode, "What")->required()->check(CLI::IsMember({"a", "b"}));
  set->add_option("--rule,-r", rules, "A rule");
  set->add_option_group("target", "Where to")->add_option("--to", what, "There");
  app.add_subcommand("secret", "Hidden")->group("");
  const Command program = Describe(app);
  ASSERT_EQ(program.commands.size(), 1u) << "hidden verbs are not told";
  const Command& verb = program.commands[0];
  EXPECT_EQ(verb.name, "set");
  ASSERT_EQ(verb.positionals.size(), 1u);
  EXPECT_THAT(verb.positionals[0].choices, ElementsAre("a", "b"));
  EXPECT_TRUE(verb.positionals[0].required);
  ASSERT_EQ(verb.options.size(), 3u) << "help, rule, and that of the group";
  EXPECT_THAT(verb.options[1].names, ElementsAre("-r", "--rule"));
  EXPECT_TRUE(verb.options[1].repeats);
  EXPECT_THAT(verb.options[2].names, ElementsAre("--to"));
  EXPECT_EQ(program.options[1].value, "") << "a flag takes no value";
}

TEST(Advice, NamesTheVerbThatWasMeant) {
  CLI::App app("A program", "prog");
  std::string socket, what;
  app.add_option("--socket", socket, "Where");
  app.add_subcommand("status", "It")->add_option("what", what, "That");
  CLI::App* clock = app.add_subcommand("clock", "Time");
  clock->add_subcommand("mesh", "Links");
  clock->add_subcommand("bound", "Error");
  const Command program = Describe(app);
  EXPECT_EQ(VerbAdvice(program, {"--socket", "x", "sttaus"}),
            "there is no verb \"sttaus\"; did you mean status? Known: status, clock");
  EXPECT_EQ(VerbAdvice(program, {"--socket=x", "frobnicate"}), "there is no verb \"frobnicate\"; known: status, clock");
  EXPECT_EQ(VerbAdvice(program, {"clock"}), "prog clock needs a verb: mesh, bound");
  EXPECT_EQ(VerbAdvice(program, {}), "prog needs a verb: status, clock");
  EXPECT_EQ(VerbAdvice(program, {"status", "anything"}), "") << "an argument is no verb";
  EXPECT_EQ(VerbAdvice(program, {"--sokcet", "x", "status"}), "") << "the option is what is wrong";
  EXPECT_EQ(Nearest("ecents", {"events", "owd"}), "events");
  EXPECT_EQ(Nearest("od", {"events", "owd"}), "owd");
}

TEST(Manual, TextIsNeverTakenForARequest) {
  EXPECT_EQ(RoffText(".SH x"), "\\&.SH x");
  EXPECT_EQ(RoffText("a\n'b"), "a\n\\&'b");
  EXPECT_EQ(RoffText("--x \\n"), "\\-\\-x \\en");
}

TEST_F(Folder, BashOffersVerbsOptionsAndValues) {
  EXPECT_THAT(Offered({"cwctl", "st"}), AllOf(HasSubstr(" status "), HasSubstr(" steer "), Not(HasSubstr("mode"))));
  EXPECT_THAT(Offered({"cwctl", "--json", "mode", ""}), HasSubstr(" observe protect optimize off "));
  EXPECT_THAT(Offered({"cwctl", "--instance", "mode", "steer", ""}), HasSubstr(" lock "))
      << "the value of an option is no verb";
  EXPECT_THAT(Offered({"cwctl", "steer", "lock", "--h"}), HasSubstr(" --hard "));
  EXPECT_THAT(Offered({"cwctl", "qps", "--js"}), HasSubstr(" --json ")) << "the program's options stand behind verbs";
  EXPECT_THAT(Offered({"cwctl", "completion", "f"}), HasSubstr(" fish "));
  EXPECT_THAT(Offered({"cwctl", "man"}), Not(HasSubstr("manual")));
}

TEST_F(Folder, ZshAndFishReadTheirs) {
  const std::string zsh = Write("_cwctl", Out(CWCTL_PATH, {"completion", "zsh"}));
  EXPECT_EQ(Out("/bin/zsh", {"-f", "-n", zsh}), "");
  // Loading it defines the function and ties it to the program.
  EXPECT_THAT(Out("/bin/zsh", {"-f", "-c",
                               absl::StrCat("autoload -U compinit; compinit -u -D -d ", path_, "/dump; source ", zsh,
                                            "; print $_comps[cwctl]")}),
              HasSubstr("_cwctl"));
  const std::string fish = Write("cwctl.fish", Out(CWCTL_PATH, {"completion", "fish"}));
  const auto offered = [&](const std::string& line) {
    return cli::RunProgram(
               "/usr/bin/fish",
               {"--private", "--no-config", "-c", absl::StrCat("source ", fish, "; complete -C '", line, "'")},
               {{"HOME", path_}})
        .out;
  };
  EXPECT_THAT(offered("cwctl st"), AllOf(HasSubstr("status"), HasSubstr("steer"), Not(HasSubstr("mode\t"))));
  EXPECT_THAT(offered("cwctl mode "), HasSubstr("optimize"));
  EXPECT_THAT(offered("cwctl steer lock --"), HasSubstr("--hard"));
}

TEST_F(Folder, ManualPagesPassGroffsWarnings) {
  const std::vector<std::string> pages = {Write("cwctl.1", Out(CWCTL_PATH, {"manual"})),
                                          Write("cwagentd.8", Out(CWAGENTD_PATH, {"--manual"})),
                                          Write("cwagentd.toml.5", Out(CWAGENTD_PATH, {"--config-manual"}))};
  for (const std::string& page : pages) {
    const cli::RunResult result =
        cli::RunProgram("/usr/bin/groff", {"-man", "-ww", "-Tutf8", "-P-cbou", "-Kutf8", page});
    EXPECT_EQ(result.exit_code, 0) << page;
    EXPECT_EQ(result.err, "") << page;
    EXPECT_NE(result.out.find("NAME\n"), std::string::npos) << page;
  }
}

}  // namespace
}  // namespace cw::commandline
