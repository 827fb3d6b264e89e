#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds and runs the rungs of the test ladder named as arguments (unit bpf lab vm nightly packaging attacks asan fuzz) and ends with
# "N passed, N failed, N skipped". More skips than tests/allowed_skips fail the run.
# Tests of the lab and of virtual machines share two cores with everything they make. Those that failed run once more, one by
# one; the ones that pass then are named as unsteady at the end, and more of them than tests/allowed_unsteady fail the run.
# The lab waits for timers three quarters of its time: where it is among the rungs, those that measure no time (unit, fuzz,
# packaging) run behind it, on processors that nothing else wants.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)
passed=0 failed=0 skipped=0
unsteady=()
out=build/test
mkdir -p "$out"

build() { cmake/build.sh "$@"; } # preset targets...

# Lines "TEST STATUS" of ctest's own list.
statuses() { sed -nE 's/.*<testcase name="([^" ]+)[^"]*".* status="([a-z]+)".*/\1 \2/p' "$1"; } # junit

# Counts a rung by the tests in each program: programs that are one ctest test have written down their own.
count() { # preset; statuses on standard input
  local name status xml tests fails skips
  while read -r name status; do
    xml=build/$1/gtest/$name.xml
    if [ -s "$xml" ]; then
      tests=$(grep -c '<testcase .*status="run"' "$xml") skips=$(grep -c '<testcase .*result="skipped"' "$xml")
      fails=$(grep -oE '<testsuites tests="[0-9]+" failures="[0-9]+"' "$xml" | grep -oE '[0-9]+"$' | tr -d '"')
      fails=${fails:-0}
      if [ "$status" = fail ] && [ "$fails" = 0 ]; then fails=1 tests=$((tests + 1)); fi # it ended badly after its tests
    else
      tests=1 fails=0 skips=0
      case $status in fail) fails=1 ;; notrun | disabled) skips=1 ;; esac
    fi
    passed=$((passed + tests - fails - skips)) failed=$((failed + fails)) skipped=$((skipped + skips))
  done
}

ladder() { # preset label
  local junit="$PWD/$out/$1-$2.xml" again="$PWD/$out/$1-$2-again.xml" rc limit
  mkdir -p "build/$1/gtest"
  rm -f "$junit" "$again" "build/$1/gtest/$2."*.xml
  # What may run side by side is said where the test is made (cw_test).
  # A kernel that hangs keeps tests for ever, and ctest waits for them: a rung of `make test` that takes half an hour has
  # failed.
  [ "$2" = nightly ] && limit=10800 || limit=1800
  timeout -k 30 $limit ctest --test-dir "build/$1" -L "^$2\$" -j "$jobs" --output-on-failure --no-tests=error --output-junit "$junit" >"$out/$1-$2.log" 2>&1
  rc=$?
  if [ ! -s "$junit" ]; then
    cat "$out/$1-$2.log"; failed=$((failed + 1)); return
  fi
  if [ $rc -ne 0 ]; then cat "$out/$1-$2.log"; else tail -4 "$out/$1-$2.log"; fi
  if [ $rc -ne 0 ]; then case $2 in lab | vm | nightly | packaging) again "$1" "$2" "$junit" "$again" ;; esac fi
  # What passed when it ran again counts as passed.
  count "$1" < <({ [ ! -s "$again" ] || statuses "$again" | sed 's/^/again /'; statuses "$junit"; } |
    awk '$1 == "again" { if ($3 == "run") ok[$2]; next } { if ($2 == "fail" && $1 in ok) $2 = "run"; print }')
  # Each skipped test with its reason.
  { sed -n '/status="notrun"/,/<\/testcase>/p' "$junit"; grep -h -A1 'result="skipped"' "build/$1/gtest/$2."*.xml 2>/dev/null; } |
    grep -E '<testcase|Skipped|skip' | sed 's/^/  skipped: /' | head -40 || true
}

again() { # preset label junit again: the failed tests once more
  local fails names
  fails=$(statuses "$3" | grep -c ' fail$')
  if [ "$fails" -gt "$(cat tests/allowed_unsteady)" ]; then return; fi
  echo "-- once more, alone:"
  names=$(statuses "$3" | sed -n 's/ fail$//p' | sed 's/[.+]/\\&/g' | paste -sd '|')
  timeout -k 30 900 ctest --test-dir "build/$1" -R "^($names)\$" -j 1 --output-on-failure --output-junit "$4" >"$out/$1-$2-again.log" 2>&1
  cat "$out/$1-$2-again.log"
  mapfile -t -O ${#unsteady[@]} unsteady < <(statuses "$4" | sed -n 's/ run$//p')
}

run() { # rung
  local start=$SECONDS
  echo "== $1"
  case "$1" in
    packaging | attacks) if build release cw_tests && packages; then ladder release "$1"; else failed=$((failed + 1)); fi ;;
    unit) if build release cw_unit_tests; then ladder release unit; else failed=$((failed + 1)); fi ;;
    bpf | lab | vm | nightly) if build release cw_tests; then ladder release "$1"; else failed=$((failed + 1)); fi ;;
    asan) if build asan cw_unit_tests; then ladder asan unit; else failed=$((failed + 1)); fi ;;
    fuzz) fuzz || failed=$((failed + 1)) ;;
    *) echo "tests/run.sh: unknown rung '$1'; one of unit bpf lab vm nightly packaging asan fuzz" >&2; exit 2 ;;
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
  build clang cw_fuzzers || return 1
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

# What takes the network rather than the processors goes on while the first rung compiles.
prefetch() {
  tests/vm/mkinitramfs.sh build/vm/6.1 6.1
  case " $* " in *" packaging "*) tests/vm/mkdebian.sh --base build/release/vm-logs/debian.cpio ;; esac
}
case " $* " in *" vm "* | *" packaging "*) mkdir -p build/vm; prefetch "$@" >"$out/prefetch.log" 2>&1 & ;; esac

# The rungs that measure no time, in a session of their own: the scheduler weighs sessions before it weighs processes.
start_behind() {
  [ ${#behind[@]} -gt 0 ] || return 0
  setsid bash -c '{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec chrt --idle 0 tests/run.sh "$@"' _ "${behind[@]}" >"$out/behind.log" 2>&1 &
  behind_pid=$!
  trap 'kill -- "-$behind_pid"' EXIT
}

end_behind() { # adds what they counted
  [ ${#behind[@]} -gt 0 ] || return 0
  if [ -z "$behind_pid" ]; then echo "not run: ${behind[*]}"; failed=$((failed + 1)); return; fi
  wait "$behind_pid"
  trap - EXIT
  sed '$d' "$out/behind.log"
  local sum='^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$'
  if [[ $(tail -1 "$out/behind.log") =~ $sum ]]; then
    passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2])) skipped=$((skipped + BASH_REMATCH[3]))
  else
    tail -1 "$out/behind.log"
    failed=$((failed + 1))
  fi
}

behind=() behind_pid=
case " $* " in *" lab "*) for rung in "$@"; do case $rung in unit | fuzz | packaging) behind+=("$rung") ;; esac done ;; esac
for rung in "$@"; do
  case " ${behind[*]} " in *" $rung "*) continue ;; esac
  # Everything is compiled before something runs behind something else.
  if [ "$rung" = lab ]; then build release cw_tests && start_behind; fi
  run "$rung"
  if [ "$rung" = lab ]; then end_behind; fi
done

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
