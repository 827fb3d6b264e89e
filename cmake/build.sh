#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh PRESET [TARGET...]: configures and compiles. One line says how far it is and how long it still takes; what the
# tools say is printed only where they fail. JOBS: how many at once, the number of processors if not given.
set -uo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
folder=build/$preset
mkdir -p "$folder"
log=$folder/build.log

if ! cmake --preset "$preset" -Wno-dev >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
[ -t 1 ] && terminal=1 || terminal=0
NINJA_STATUS='%f %t %e ' ninja -C "$folder" -j "${JOBS:-$(nproc)}" "$@" 2>&1 | tee "$log" | awk -v terminal=$terminal -v preset="$preset" '
  function clock(s) { return s < 90 ? sprintf("%d s", s) : sprintf("%d min", s / 60 + 0.5) }
  $1 ~ /^[0-9]+$/ && $2 ~ /^[0-9]+$/ && $3 ~ /^[0-9.]+$/ {
    share = int(100 * $1 / $2)
    steps = $2
    took = $3
    if (!terminal && share < shown + 20) next  # a log wants few lines
    shown = share - share % 20
    line = sprintf("compiling %s: %d of %d steps, about %s left", preset, $1, $2, clock($3 / $1 * ($2 - $1)))
    if (terminal) printf "\r%-79s", line; else print line
    fflush()
  }
  END { if (steps > 1) printf "%s%-79s\n", terminal ? "\r" : "", sprintf("compiled %s: %d steps in %s", preset, steps, clock(took)) }'
[ "${PIPESTATUS[0]}" = 0 ] && exit 0
grep -vE '^[0-9]+ [0-9]+ [0-9.]+ (Building|Linking|BPF|proto)' "$log" | grep -v '^ninja: Entering' | tail -60 >&2
exit 1
