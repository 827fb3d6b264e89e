#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# names.sh BUILD [--write]: does every test that tests/names lists still exist? A test may be added without a word; one that
# goes, or changes its name, has to be taken off the list by --write, so that none is lost unseen.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
build=${1:?usage: names.sh BUILD [--write]}

now=$(while read -r program; do
  "$program" --gtest_list_tests | awk '/^[^ ]/ { suite = $1 } /^  / { print suite $1 }'
done <"$build/tests/programs" | LC_ALL=C sort -u)
if [ "${2:-}" = --write ]; then
  printf '%s\n' "$now" >"$here/names"
  exit 0
fi
lost=$(printf '%s\n' "$now" | LC_ALL=C comm -13 - "$here/names")
[ -z "$lost" ] && exit 0
echo "Tests that tests/names lists and no program has:"
printf '%s\n' "$lost"
exit 1
