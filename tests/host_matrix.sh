#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What others do to a host (programs detached, NICs renamed, addresses moved, a smaller MTU), in each mode, with an agent
# that has run from the start, was restarted, or took over from one that was killed.
set -u
cd "$(dirname "$0")/.."
failed=0 passed=0
for mode in observe protect optimize; do
  for agent in running restarted killed; do
    for test in host_hooks_test host_changes_test mtu_test; do
      if CW_LAB_MODE=$mode CW_LAB_AGENT=$agent build/release/tests/lab/$test >build/host_matrix.log 2>&1; then
        passed=$((passed + 1))
      else
        failed=$((failed + 1))
        echo "failed: $test, mode $mode, agent $agent"
        grep -E "Failure|FAILED|^[a-z].*: " build/host_matrix.log | head -40
      fi
    done
  done
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
