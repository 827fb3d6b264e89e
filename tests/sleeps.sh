#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sleeps.sh [--write]: no test waits by sleeping. Counts, file by file, the sleeps in tests of the lab, of units and of
# machines that may last a second or more: those of that length, and those whose length is a variable. What there is
# stands in tests/allowed_sleeps, which only gets shorter. Instead: Eventually and Hold (tests/lab/eventually.h), and
# what tests/lab/evidence.h waits for.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"

# Shorter ones pace a loop: literals below a second.
now=$(find lab unit vm -name '*.cc' -o -name '*.c' -o -name '*.h' | LC_ALL=C sort | xargs perl -ne '
  next if $ARGV eq "lab/eventually.h";
  s{//.*}{};
  while (/\b(?:SleepFor|sleep_for|sleep_until|nanosleep|usleep|sleep)\s*\(\s*(.*)/g) {
    my $rest = $1;
    next if $rest =~ /^(?:absl::Milliseconds|std::chrono::milliseconds)\(\d{1,3}\)/;
    next if $rest =~ /^(?:absl::Microseconds|std::chrono::microseconds)\([\d\x27]{1,7}\)/ && ($rest =~ /\(([\d\x27]+)\)/)[0] =~ s/\x27//gr < 1_000_000;
    next if $& =~ /^usleep/ && $rest =~ /^([\d\x27]+)\)/ && $1 =~ s/\x27//gr < 1_000_000;
    $count{$ARGV}++;
  }
  END { print "$_ $count{$_}\n" for sort keys %count }')
if [ "${1:-}" = --write ]; then
  if ! awk 'FNR == NR { most[$1] = $2; next } $2 > most[$1] { print $1 " has more than before"; more = 1 } END { exit more }' \
    allowed_sleeps - <<<"$now"; then
    exit 1
  fi
  printf '%s\n' "$now" >allowed_sleeps
  exit 0
fi
diff=$(LC_ALL=C diff allowed_sleeps - <<<"$now") && exit 0
echo "Sleeps of a second or more in tests: < as tests/allowed_sleeps has it, > as it is."
printf '%s\n' "$diff"
echo "More of them: wait for what the test needs instead. Fewer: tests/sleeps.sh --write."
exit 1
