#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# No test waits by sleeping. Names the sleeps in tests of the lab, of units and of machines that may last a second or
# more: those of that length, and those whose length is a variable; fails if there is one. Instead: Eventually and Hold
# (tests/lab/eventually.h), and what tests/lab/evidence.h waits for.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"

# Shorter ones pace a loop: literals below a second.
found=$(find lab unit vm -name '*.cc' -o -name '*.c' -o -name '*.h' | LC_ALL=C sort | xargs perl -ne '
  next if $ARGV eq "lab/eventually.h";
  s{//.*}{};
  while (/\b(?:SleepFor|sleep_for|sleep_until|nanosleep|usleep|sleep)\s*\(\s*(.*)/g) {
    my $rest = $1;
    next if $rest =~ /^(?:absl::Milliseconds|std::chrono::milliseconds)\(\d{1,3}\)/;
    next if $rest =~ /^(?:absl::Microseconds|std::chrono::microseconds)\([\d\x27]{1,7}\)/ && ($rest =~ /\(([\d\x27]+)\)/)[0] =~ s/\x27//gr < 1_000_000;
    next if $& =~ /^usleep/ && $rest =~ /^([\d\x27]+)\)/ && $1 =~ s/\x27//gr < 1_000_000;
    print "tests/$ARGV:$.: $_";
  }
  close ARGV if eof')
[ -z "$found" ] && exit 0
printf '%s\n' "$found"
echo "These tests sleep for a second or more, or for a variable time. Let them wait for what they need instead."
exit 1
