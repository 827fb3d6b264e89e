// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/docs_text.h"

#include <algorithm>
#include <cctype>
#include <regex>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace cw::docs {
namespace {

constexpr char kFence[] = "```";

void AddSpans(const std::string& text, int line, std::vector<Snippet>& out) {
  size_t at = 0;
  while ((at = text.find('`', at)) != std::string::npos) {
    const size_t end = text.find('`', at + 1);
    if (end == std::string::npos) return;
    const std::string span = text.substr(at + 1, end - at - 1);
    if (!span.empty()) out.push_back({line, absl::StrReplaceAll(span, {{"\\|", "|"}}), false});
    at = end + 1;
  }
}

// Punctuation that belongs to the sentence or to the notation.
std::string Bare(std::string word) {
  while (!word.empty() && std::string("[(").find(word.front()) != std::string::npos) word.erase(0, 1);
  while (!word.empty() && std::string("]),").find(word.back()) != std::string::npos) word.pop_back();
  return word;
}

struct Token {
  std::string text;
  bool quoted = false;
};

std::vector<Token> Tokens(const std::string& code) {
  std::vector<Token> out;
  Token word;
  char quote = 0;
  const auto end_word = [&] {
    if (!word.text.empty() || word.quoted) out.push_back(word);
    word = Token();
  };
  for (const char c : code) {
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word.text += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      word.quoted = true;
    } else if (c == ' ' || c == '\t') {
      end_word();
    } else if (c == ';' || c == '|' || c == '&') {
      const bool same = word.text == std::string(1, c);
      if (!same) end_word();
      word.text += c;
      if (c == ';' || same) end_word();
    } else {
      if (word.text == "|" || word.text == "&") end_word();
      word.text += c;
    }
  }
  end_word();
  return out;
}

bool EndsCommand(const std::vector<Token>& tokens, size_t at) {
  const Token& token = tokens[at];
  if (token.quoted) return false;
  if (token.text == "&&" || token.text == "||" || token.text == ";" || token.text == "&") return true;
  if (absl::StartsWith(token.text, ">") || absl::StartsWith(token.text, "2>")) return true;
  if (token.text != "|") return false;
  if (at + 1 == tokens.size()) return true;
  const std::string& next = tokens[at + 1].text;
  return !absl::StartsWith(next, "-") && !absl::StartsWith(next, "[") && !IsPlaceholder(next);
}

bool IsAssignment(const std::string& word) {
  static const std::regex kAssignment("[A-Za-z_][A-Za-z0-9_]*=.*");
  return std::regex_match(word, kAssignment);
}

}  // namespace

bool IsPlaceholder(const std::string& word) {
  if (absl::StrContains(word, "…") || word == "...") return true;
  return !word.empty() && std::isupper(static_cast<unsigned char>(word[0])) != 0;
}

std::vector<Snippet> CodeOf(const std::string& markdown) {
  std::vector<Snippet> out;
  bool fenced = false, goes_on = false;
  int number = 0;
  for (const absl::string_view view : absl::StrSplit(markdown, '\n')) {
    const std::string line(view);
    ++number;
    if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), kFence)) {
      fenced = !fenced;
      continue;
    }
    if (!fenced && !absl::StartsWith(line, "    ")) {
      AddSpans(line, number, out);
      goes_on = false;
      continue;
    }
    std::string text(absl::StripAsciiWhitespace(line));
    const bool more = absl::EndsWith(text, "\\");
    if (more) text.pop_back();
    if (goes_on && !out.empty())
      out.back().text += text;
    else if (!text.empty())
      out.push_back({number, text, true});
    goes_on = more;
  }
  return out;
}

std::vector<Link> LinksOf(const std::string& markdown) {
  static const std::regex kLink("\\]\\(([^)\\s]+)\\)");
  std::vector<Link> out;
  bool fenced = false;
  int number = 0;
  for (const absl::string_view view : absl::StrSplit(markdown, '\n')) {
    const std::string line(view);
    ++number;
    if (absl::StartsWith(line, kFence)) fenced = !fenced;
    if (fenced || absl::StartsWith(line, "    ")) continue;
    for (std::sregex_iterator at(line.begin(), line.end(), kLink), end; at != end; ++at)
      out.push_back({number, (*at)[1]});
  }
  return out;
}

std::vector<std::vector<std::string>> CommandsOf(const std::string& code) {
  std::string text(absl::StripAsciiWhitespace(code));
  for (const char* prompt : {"$ ", "# "}) {
    if (absl::StartsWith(text, prompt)) text.erase(0, 2);
  }
  if (const size_t column = text.find("   "); column != std::string::npos) text.erase(column);
  const std::vector<Token> tokens = Tokens(text);
  std::vector<std::vector<std::string>> out(1);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].quoted && absl::StartsWith(tokens[i].text, "#")) break;
    if (EndsCommand(tokens, i)) {
      out.emplace_back();
      continue;
    }
    if (tokens[i].text == "|") continue;
    const std::string word = tokens[i].quoted ? tokens[i].text : Bare(tokens[i].text);
    if (word.empty() || (out.back().empty() && IsAssignment(word))) continue;
    out.back().push_back(word);
  }
  out.erase(std::remove_if(out.begin(), out.end(), [](const auto& words) { return words.empty(); }), out.end());
  return out;
}

}  // namespace cw::docs
