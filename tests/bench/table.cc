// SPDX-License-Identifier: Apache-2.0
// cw_bench_table FILE...: the results of several benchmarks as one table.
#include <stdio.h>

#include "userspace/lab/bench_result.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: cw_bench_table RESULT.json...\n");
    return 2;
  }
  int rc = 0;
  for (int i = 1; i < argc; ++i) {
    const auto report = cw::bench::Report::Read(argv[i]);
    if (!report.ok()) {
      fprintf(stderr, "%s\n", std::string(report.status().message()).c_str());
      rc = 1;
      continue;
    }
    printf("%s\n", report->Table().c_str());
  }
  return rc;
}
