#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian packages twice, in folders of different names and depths, time zones and file modes, and compares
# them byte for byte. Takes twice as long as `make deb` (JOBS=N for less), so no rung of the tests runs it:
#   packaging/reproducible.sh [FOLDER]      FOLDER: where the first build's packages go, build/packages if not given
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:-build/packages}" && cd "${1:-build/packages}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GIT_CEILING_DIRECTORIES=$work  # the copies are no repositories, wherever they lie

copy() {
  mkdir -p "$1"
  git ls-files -z | tar --null -T - -c | tar -x -C "$1"
}
copy "$work/a"
copy "$work/another/folder-below"
(cd "$work/a" && umask 022 && TZ=UTC packaging/deb.sh "$work/first")
(cd "$work/another/folder-below" && umask 027 && TZ=Pacific/Kiritimati packaging/deb.sh "$work/second")

different=0
for deb in "$work"/first/*.deb; do
  name=$(basename "$deb")
  cmp -s "$deb" "$work/second/$name" && continue
  different=1
  echo "$name differs:" >&2
  dpkg-deb -R "$deb" "$work/x/first" && dpkg-deb -R "$work/second/$name" "$work/x/second"
  diff -rq "$work/x/first" "$work/x/second" >&2 || true
  rm -rf "$work/x"
done
[ "$(ls "$work/first" | grep -c '\.deb$')" = "$(ls "$work/second" | grep -c '\.deb$')" ] || different=1
cp "$work"/first/*.deb "$out/"
[ $different = 0 ] && sha256sum "$out"/*.deb && echo "both builds are the same, byte for byte"
exit $different
