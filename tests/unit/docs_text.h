// SPDX-License-Identifier: Apache-2.0
//
// What documents show to people: commands, links, code. Pure; any thread.
#pragma once

#include <string>
#include <vector>

namespace cw::docs {

struct Snippet {
  int line = 0;  // from 1
  std::string text;
  bool block = false;  // a line of a block, fenced or indented by four; otherwise between backticks
};
// Lines of blocks that end in a backslash are joined with the next.
std::vector<Snippet> CodeOf(const std::string& markdown);

struct Link {
  int line = 0;
  std::string target;  // as written: "config.md#keys"
};
std::vector<Link> LinksOf(const std::string& markdown);

// Words of each command in a piece of code, as a shell would part them. Left out are prompts, comments, assignments
// before a command, and what stands in a second column (three blanks apart). "a | --b" and "[--b]" are how usage is
// written, so they are options and no pipe.
std::vector<std::vector<std::string>> CommandsOf(const std::string& code);

// What stands for something of the reader's: FLOW, 30m is none, "…" is.
bool IsPlaceholder(const std::string& word);

}  // namespace cw::docs
