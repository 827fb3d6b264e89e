#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the distribution packages named in packaging/deps/NAME.txt for each NAME given, if any of them is missing.
set -eu
here=$(dirname "$0")
missing=
for name in "$@"; do
  while read -r package; do
    case "$package" in ''|'#'*) continue ;; esac
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
  done < "$here/$name.txt"
done
[ -n "$missing" ] || exit 0
echo "Installing:$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # a list of package names
apt-get install -y --no-install-recommends $missing >/tmp/cwfabric-apt.log 2>&1 && exit 0
apt-get update >/tmp/cwfabric-apt.log 2>&1 || { cat /tmp/cwfabric-apt.log; exit 1; }
# shellcheck disable=SC2086
apt-get install -y --no-install-recommends $missing >/tmp/cwfabric-apt.log 2>&1 || { tail -20 /tmp/cwfabric-apt.log; exit 1; }
