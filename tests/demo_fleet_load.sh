#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `make demo-fleet`, so many times in a row (demo_fleet_load.sh [TIMES]; 20) on a machine with other work: a busy loop for
# each processor. Its exit status says whether each fault had its one finding and nothing else was found.
set -u
cd "$(dirname "$0")/.."
times=${1:-20} passed=0 failed=0
loads=()
end() { [ ${#loads[@]} -eq 0 ] || kill "${loads[@]}" 2>/dev/null; }
trap end EXIT
for _ in $(seq "$(nproc)"); do
  timeout 7200 sh -c 'while :; do :; done' &
  loads+=($!)
done
export PATH="$PWD/build/release/userspace/fleet/main:$PWD/build/release/cli:$PATH"
for run in $(seq "$times"); do
  if build/release/userspace/lab/cwlab demo-fleet --out build/demo >build/demo_fleet_load.log 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "failed: run $run"
    tail -40 build/demo_fleet_load.log
  fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
