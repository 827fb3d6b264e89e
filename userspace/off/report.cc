// SPDX-License-Identifier: Apache-2.0
#include "userspace/off/report.h"

#include <cstdio>

namespace cw::off {
namespace {

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (byte < 0x20) {
      char escape[8];
      snprintf(escape, sizeof(escape), "\\u%04x", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string Object(const Step& step) {
  std::string out = "{\"instance\":" + Quoted(step.instance) + ",\"what\":" + Quoted(step.what) +
                    ",\"object\":" + Quoted(step.object);
  if (step.ifindex != 0) out += ",\"ifindex\":" + std::to_string(step.ifindex);
  return out + ",\"note\":" + Quoted(step.note) + "}";
}

std::string Array(const std::vector<Step>& steps) {
  std::string out = "[";
  for (const Step& step : steps) out += (out.size() > 1 ? "," : "") + Object(step);
  return out + "]";
}

std::string Line(const Step& step) {
  std::string line = step.instance + ": " + step.what;
  if (!step.object.empty()) line += " " + step.object;
  return line + (step.note.empty() ? "" : ": " + step.note) + "\n";
}

}  // namespace

std::string Text(const Report& report) {
  std::string out;
  for (const Step& step : report.done) out += (report.dry ? "would: " : "") + Line(step);
  for (const Step& step : report.left) out += "LEFT " + Line(step);
  if (out.empty()) out = "nothing of cwfabric is in the kernel\n";
  return out;
}

std::string Json(const Report& report) {
  return std::string("{\"dry_run\":") + (report.dry ? "true" : "false") + ",\"done\":" + Array(report.done) +
         ",\"left\":" + Array(report.left) + "}\n";
}

}  // namespace cw::off
