#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian packages from what git has (or, without git, from the whole tree) into the folder named, and checks
# them with lintian. The same commit gives the same bytes. With --built FOLDER nothing is compiled: the programs and
# libraries are those of that build of the preset "release", so that tests install what the other tests have tested.
#   packaging/deb.sh [--built FOLDER] [OUT]     OUT: build/packages if not given
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = --built ]; then
  CW_BUILT=$(cd "$2" && pwd)
  export CW_BUILT
  export DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-} noautodbgsym" # that build has no debug information
  shift 2
fi
out=$(mkdir -p "${1:-build/packages}" && cd "${1:-build/packages}" && pwd)
work=build/deb-source/cwfabric
rm -rf build/deb-source
mkdir -p "$work"
if git rev-parse --git-dir >/dev/null 2>&1; then git ls-files -z; else find . -path ./build -prune -o -type f -print0; fi |
  tar --null -T - -c | tar -x -C "$work"
cp -r packaging/debian "$work/debian"
cp packaging/systemd/cwfabric-agent.* packaging/systemd/cwfabric-fleet.* "$work/debian/"
cd "$work"
if ! dpkg-buildpackage -b -us -uc ${JOBS:+-j"$JOBS"} >../build.log 2>&1; then
  tail -60 ../build.log
  exit 1
fi
cd ..
lintian --fail-on warning --tag-display-limit 0 ./*.changes
mv ./*.deb ./*.changes ./*.buildinfo "$out/"
ls -l "$out"/*.deb
