// SPDX-License-Identifier: Apache-2.0
//
// A snapshot as Prometheus metric families. Names: "cwfabric_", base units (seconds, bytes, ratio), "_total" behind
// counts, a sentence of help each; docs/metrics.md lists them. No label grows with peers, paths or queue pairs: see
// there for how many series a host has. Pure.
// Source: Prometheus' text format 0.0.4 and its conventions for names, by prometheus-cpp's types and serializer.
#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "userspace/metrics/snapshot.h"

namespace cw::metrics {

// By name. Families without a series are left out.
std::vector<prometheus::MetricFamily> Families(const Snapshot& snapshot);

// In the text format, content type text/plain; version=0.0.4.
std::string Exposition(const std::vector<prometheus::MetricFamily>& families);

// Rows "| name | type | labels | meaning |" of families, for docs/metrics.md.
std::string ReferenceMarkdown(const std::vector<prometheus::MetricFamily>& families);

}  // namespace cw::metrics
