// SPDX-License-Identifier: Apache-2.0
// cw_bench_table [--markdown] FILE...: the results of several benchmarks as one table, or as those of
// docs/benchmarks.md: results of the same name, as from a benchmark that was run in parts, become one.
#include <stdio.h>
#include <string.h>

#include <map>
#include <string>

#include "tests/bench/markdown.h"
#include "userspace/lab/bench_result.h"

int main(int argc, char** argv) {
  const bool markdown = argc > 1 && strcmp(argv[1], "--markdown") == 0;
  const int first = markdown ? 2 : 1;
  if (argc <= first) {
    fprintf(stderr, "usage: cw_bench_table [--markdown] RESULT.json...\n");
    return 2;
  }
  int rc = 0;
  std::map<std::string, cw::bench::Report> by_name;
  for (int i = first; i < argc; ++i) {
    const auto report = cw::bench::Report::Read(argv[i]);
    if (!report.ok()) {
      fprintf(stderr, "%s\n", std::string(report.status().message()).c_str());
      rc = 1;
    } else if (markdown) {
      cw::bench::Report& all = by_name.try_emplace(report->name(), report->name()).first->second;
      for (const cw::bench::Row& row : report->rows()) all.Add(row);
    } else {
      printf("%s\n", report->Table().c_str());
    }
  }
  for (const auto& [name, report] : by_name) printf("%s\n", cw::bench::Markdown(report).c_str());
  return rc;
}
