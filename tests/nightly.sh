#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What takes hours: nightly.sh [STEP...]. Without a step all of them, one after the other. Each step's last result, with its
# date and commit, is a row of docs/nightly.md; a step that was not run keeps its row. Logs: build/nightly/STEP.log.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$PWD/build/nightly
table=docs/nightly.md
mkdir -p "$out"

# STEP|what it is|command. The step `left_out` runs what tests/nightly_only names.
steps() {
  cat <<'END'
left_out|the tests that `make test` leaves out (`tests/nightly_only`), on 6.1|packaging/other_release.sh build/nightly/other && packaging/deb.sh --built build/release build/packages && tests/run.sh nightly
kernel_6.1|every test of the bpf rung inside 6.1|CW_VM_SHARDS=1 ctest --test-dir build/release -R vm.*KernelsTest --no-tests=error --output-on-failure
kernel_6.12|the same inside 6.12|CW_VM_SHARDS=1 CW_VM_KERNELS=6.12 build/release/tests/vm/cw_vm_kernels_test
vm_6.12|the vm rung on 6.12|CW_VM_KERNEL=6.12 tests/run.sh vm
left_out_6.12|what `make test` leaves out, on 6.12|CW_VM_KERNEL=6.12 tests/run.sh nightly
healthy_6.1|an hour of perftest's traffic on soft-RoCE 6.1: what is called dead, what is moved?|CW_HEALTHY_MINUTES=60 build/release/tests/vm/cw_vm_healthy_test --gtest_filter=*Mixed*
healthy_6.12|the same on 6.12|CW_VM_KERNEL=6.12 CW_HEALTHY_MINUTES=60 build/release/tests/vm/cw_vm_healthy_test --gtest_filter=*Mixed*
harmless_6.1|agents start, stop, restart, are switched off and detached under perftest on soft-RoCE 6.1, ten times each: any harm?|CW_HARMLESS_TIMES=10 build/release/tests/vm/cw_vm_harmless_test
harmless_6.12|the same comings and goings on 6.12|CW_VM_KERNEL=6.12 CW_HARMLESS_TIMES=10 build/release/tests/vm/cw_vm_harmless_test
host_matrix|what others do to a host, in each mode, with an agent that ran from the start, was restarted, or was killed before|tests/host_matrix.sh
attacks|fifty attacks on the packages' units with their real limits: does one fill, hang or deceive them?|tests/run.sh attacks
alone|each file compiled alone, with just what it includes|cmake -S . -B build/alone -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCW_FAST=OFF -Wno-dev && ninja -C build/alone
without|built without the parts that are behind an option|cmake --preset release -B build/without -DCW_TESTS=OFF -DCW_PROBE_VERBS=OFF -DCW_PHC=OFF -DCW_NCCL=OFF && ninja -C build/without cw_programs && build/without/userspace/agent/cwagentd --version
asan|the unit rung under sanitizers|tests/run.sh asan
clock_seeds|every scenario of the clock under 200 seeds: does a band miss, is a bound ever wrong?|tests/clock/seeds.sh
fleet_faults|200 faults of each kind on made-up fabrics, and a day without one: is each found, and nothing else?|s=$(git rev-list --count HEAD); build/release/tests/sim/cw_fleet_sim --faults 200 --seed $s --least 0.97 && build/release/tests/sim/cw_fleet_sim --healthy 86400 --seed $s --least 1
flaps|12 flaps of one cable under WRITEs, ten times: one finding each time?|CW_TRUTH_FLAPS=10 build/release/tests/lab/fleet_truth_lab_test --gtest_filter=*ACableThatFlapsUnderWrites*
demo_fleet|`make demo-fleet` twenty times in a row on a machine with other work: its four faults, and nothing else?|tests/demo_fleet_load.sh
healthy_hour|an hour of a healthy lab at load 10, its agents starved in turn: is anything found?|CW_TRUTH_MINUTES=60 build/release/tests/lab/fleet_truth_lab_test --gtest_filter=*AHealthyFabricOnAMachineAtLoadTen
fuzz|an hour of fuzzing: eleven targets, 330 s each|FUZZ_SECONDS=330 tests/run.sh fuzz
lab_again|the lab rung three times: what is unsteady?|ctest --test-dir build/release -L '^lab$' --no-tests=error -j "$(nproc)" --repeat until-fail:3 --output-on-failure
reproducible|the Debian packages built twice, byte for byte|packaging/reproducible.sh build/nightly/deb
rpm|rpm packages, with the same files as the Debian ones|make rpm && packaging/same_files.sh build/packages
image|the container images, each program run in its own|packaging/kubernetes/image.sh build/packages
soak|30 minutes of full links: does anything grow?|make soak
soak_liveness|30 minutes of a loaded, starved lab: what is called dead?|make soak-liveness
bench|every benchmark|make bench
END
}

# The last line that says something, without what would break a table.
headline() {
  grep -vE '^\s*$|^make|^== |^\[[0-9]+/' "$1" | grep -E 'passed|PASSED|failed|same|grew|error|Report|Built|tests' | tail -1 | sed "s|$PWD/||g" | tr '|' '/' | cut -c1-120
}

write_row() { # step what result seconds
  local row="| $1 | $2 | $3 | $(date -u +%F) | $(git rev-parse --short HEAD)$(git diff --quiet HEAD -- . || echo +) | $(($4 / 60)) |"
  grep -vF "| $1 |" "$table" >"$out/table"
  printf '%s\n' "$row" >>"$out/table"
  cp "$out/table" "$table"
}

run_step() { # step what command
  local start=$SECONDS result
  printf '== %s: %s\n' "$1" "$2"
  if bash -c "set -o pipefail; $3" >"$out/$1.log" 2>&1; then result=passed; else result="**failed**" status=1; fi
  result="$result: $(headline "$out/$1.log")"
  printf '%s (%d s)\n' "$result" $((SECONDS - start))
  write_row "$1" "$2" "$result" $((SECONDS - start))
}

# Steps run what is built, and a clone has nothing.
printf '== build\n'
cmake/build.sh release cw_tests cw_clock_sim cw_fleet_sim || exit 1

status=0
wanted=" $* "
while IFS='|' read -r -u 3 step what command; do
  if [ $# -eq 0 ] || [[ $wanted == *" $step "* ]]; then run_step "$step" "$what" "$command"; fi
done 3< <(steps)
exit $status
