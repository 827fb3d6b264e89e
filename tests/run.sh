#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds and runs the rungs of the test ladder named as arguments (unit bpf lab vm packaging asan fuzz) and ends with
# "N passed, N failed, N skipped". More skips than tests/allowed_skips fail the run.
# Tests of the lab and of virtual machines share two cores with everything they make. Those that failed run once more, one by
# one; the ones that pass then are named as unsteady at the end, and more of them than tests/allowed_unsteady fail the run.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)
passed=0 failed=0 skipped=0
unsteady=()
out=build/test
mkdir -p "$out"

build() { # preset
  cmake --preset "$1" -Wno-dev >"$out/configure-$1.log" 2>&1 || { cat "$out/configure-$1.log"; return 1; }
  shift
  cmake --build --preset "$@" -j "$jobs" >"$out/build.log" 2>&1 || { tail -60 "$out/build.log"; return 1; }
}

# An attribute of the file's first element, the whole run: one attribute a line.
attribute() { grep -oE "^[[:space:]]+$2=\"[0-9]+\"" "$1" | head -1 | grep -oE '[0-9]+'; }

count() { # junit file
  local tests fails skips
  tests=$(attribute "$1" tests) fails=$(attribute "$1" failures) skips=$(attribute "$1" skipped)
  passed=$((passed + tests - fails - skips)) failed=$((failed + fails)) skipped=$((skipped + skips))
}

ladder() { # preset label
  local junit="$PWD/$out/$1-$2.xml"
  rm -f "$junit"
  # Unit tests run side by side; the others are RUN_SERIAL, so that they do not disturb each other.
  # A kernel that hangs keeps tests for ever, and ctest waits for them: a rung that takes half an hour has failed.
  timeout -k 30 1800 ctest --test-dir "build/$1" -L "^$2\$" -j "$jobs" --output-on-failure --no-tests=error --output-junit "$junit" >"$out/$1-$2.log" 2>&1
  local rc=$?
  if [ ! -s "$junit" ]; then
    cat "$out/$1-$2.log"; failed=$((failed + 1)); return
  fi
  count "$junit"
  if [ $rc -ne 0 ]; then cat "$out/$1-$2.log"; else tail -4 "$out/$1-$2.log"; fi
  if [ $rc -ne 0 ] && { [ "$2" = lab ] || [ "$2" = vm ]; }; then again "$1" "$2" "$junit"; fi
  # Each skipped test with its reason.
  sed -n '/status="notrun"/,/<\/testcase>/p' "$junit" | grep -E '<testcase|Skipped|skip' | sed 's/^/  skipped: /' | head -40 || true
}

again() { # preset label junit: the failed tests once more
  local fails names
  fails=$(attribute "$3" failures)
  if [ "$fails" -gt "$(cat tests/allowed_unsteady)" ]; then return; fi
  echo "-- once more, alone:"
  timeout -k 30 900 ctest --test-dir "build/$1" --rerun-failed -j 1 --output-on-failure --output-junit "$PWD/$out/$1-$2-again.xml" >"$out/$1-$2-again.log" 2>&1
  cat "$out/$1-$2-again.log"
  mapfile -t names < <(sed -nE 's/.*Test +#[0-9]+: (.*[^ .]) \.+ +Passed .*/\1/p' "$out/$1-$2-again.log")
  unsteady+=("${names[@]}")
  passed=$((passed + ${#names[@]})) failed=$((failed - ${#names[@]}))
}

run() { # rung
  local start=$SECONDS
  echo "== $1"
  case "$1" in
    packaging) if build release release && packages; then ladder release packaging; else failed=$((failed + 1)); fi ;;
    unit | bpf | lab | vm) if build release release; then ladder release "$1"; else failed=$((failed + 1)); fi ;;
    asan) if build asan asan --target cw_unit_tests; then ladder asan unit; else failed=$((failed + 1)); fi ;;
    fuzz) fuzz || failed=$((failed + 1)) ;;
    *) echo "tests/run.sh: unknown rung '$1'; one of unit bpf lab vm packaging asan fuzz" >&2; exit 2 ;;
  esac
  echo "== $1: $((SECONDS - start)) s"
}

packages() { # what the rung installs: the programs that the other rungs run
  packaging/deb.sh --built build/release build/packages >"$out/deb.log" 2>&1 || { tail -40 "$out/deb.log"; return 1; }
}

fuzz_one() { # program
  local name seeds
  name=$(basename "$1")
  mkdir -p "$out/corpus-$name"
  seeds=tests/fuzz/corpus/$name
  [ -d "$seeds" ] || seeds=
  # shellcheck disable=SC2086  # no argument where there are no seeds
  "$1" -max_total_time="${FUZZ_SECONDS:-10}" -print_final_stats=1 "$out/corpus-$name" $seeds >"$out/$name.log" 2>&1
  echo $? >"$out/$name.rc"
}

fuzz() { # every fuzz target for ten seconds, as many at once as there are processors; FUZZ_SECONDS for longer
  build clang clang --target cw_fuzzers || return 1
  local target name
  local -a names=()
  for target in build/clang/tests/fuzz/fuzz_*; do
    [ -x "$target" ] && [ -f "$target" ] || continue
    name=$(basename "$target")
    rm -f "$out/$name.rc"
    names+=("$name")
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    fuzz_one "$target" &
  done
  wait
  for name in "${names[@]}"; do
    if [ "$(cat "$out/$name.rc" 2>/dev/null)" = 0 ]; then
      passed=$((passed + 1)); grep -E 'stat::number_of_executed_units' "$out/$name.log"
    else
      failed=$((failed + 1)); tail -40 "$out/$name.log"
    fi
  done
  [ ${#names[@]} -gt 0 ] || { echo "no fuzz target was built"; return 1; }
}

for rung in "$@"; do run "$rung"; done

allowed=$(cat tests/allowed_skips)
if [ "$skipped" -gt "$allowed" ]; then
  echo "$skipped tests were skipped, $allowed are allowed (tests/allowed_skips)"
  failed=$((failed + 1))
fi
if [ ${#unsteady[@]} -gt 0 ]; then printf 'unsteady, passed only when run again: %s\n' "${unsteady[@]}"; fi
if [ ${#unsteady[@]} -gt "$(cat tests/allowed_unsteady)" ]; then
  echo "more tests than $(cat tests/allowed_unsteady) were unsteady (tests/allowed_unsteady)"
  failed=$((failed + 1))
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
