#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every scenario of the clock under many seeds: seeds.sh [SEEDS [FIRST_SEED]], 200 from 5001 unless said. Those of a
# thousand hosts take a twenty-fifth of them. Fails where a band is missed, or any bound was wrong. Two hours on two
# processors.
set -euo pipefail
cd "$(dirname "$0")/../.."
sim=$PWD/build/release/sync/sim/cw_clock_sim
seeds=${1:-200} first=${2:-5001}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

for file in tests/clock/*.toml; do
  n=$seeds
  if grep -q '^hosts = 1000' "$file"; then n=$(((seeds + 24) / 25)); fi
  printf '%s %s %s\n' "$file" "$n" "$out/$(basename "$file" .toml)"
done | xargs -P "$(nproc)" -L 1 bash -c '"$0" "$2" --seeds "$3" --first-seed "$1" >"$4" || true' "$sim" "$first"

cat "$out"/*
cat "$out"/* | awk -v runs="$(find tests/clock -maxdepth 1 -name '*.toml' | wc -l)" '
  / seeds, .* s\)$/ { ended++; missed += / MISSED | PASSES, / }
  /^    judged: / && !/does not cover/ { samples += $2; wrong += $4 }
  END {
    printf "%d scenarios, %d as expected: %.1f million samples judged, %d beyond their bound: %s\n", runs, ended - missed,
           samples / 1e6, wrong, ended == runs && !missed && !wrong ? "passed" : "failed"
    exit !(ended == runs && !missed && !wrong)
  }'
