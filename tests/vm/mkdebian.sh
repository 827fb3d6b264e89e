#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mkdebian.sh OUT PACKAGE.deb...
# mkdebian.sh --base OUT
#
# Writes OUT, an archive for a virtual machine with a fresh Debian 12 under /debian: systemd, what the packages depend on,
# and the packages themselves in /packages, not installed. Kept until the packages' dependencies change. --base makes just
# what does not depend on packages, for the call that follows. Exit code 3: Debian cannot be had.
set -Eeuo pipefail
trap 'echo "$0: line $LINENO failed" >&2' ERR
here=$(dirname "$(readlink -f "$0")")
. "$here/closure.sh"

base_only=
if [ "${1:-}" = --base ]; then base_only=yes; shift; fi
out=${1:?usage: mkdebian.sh [--base] OUT PACKAGE.deb...}
shift
mkdir -p "$(dirname "$out")"
exec 9>"$out.lock"
flock 9
mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources 2>/dev/null || true; } | grep -E '^(URIs:|deb )' | grep -oE 'https?://[^ ]+' | head -1)

# Names alone, without ours: versions and alternatives are for dpkg to judge when it installs.
dependencies() {
  for package in "$@"; do dpkg-deb -f "$package" Pre-Depends Depends | sed -E 's/^(Pre-)?Depends: //'; done |
    tr ',' '\n' | sed -E 's/^ *([^ |]+).*/\1/' | grep -vE '^(cwctl|cwlab|cwfabric-agent|libcw.*|)$' | sort -u | paste -sd' '
}

base=$out.base
fail() {
  tail -5 "$base/log" >&2
  exit 3
}
if [ ! -e "$base/minimal" ]; then
  rm -rf "$base"
  mkdir -p "$base"
  debootstrap --variant=minbase --include=systemd-sysv,dbus,procps bookworm "$base/debian" "$mirror" >"$base/log" 2>&1 || fail
  touch "$base/minimal"
fi
[ -z "$base_only" ] || exit 0
names=$(dependencies "$@")
if [ "$(cat "$base/names" 2>/dev/null)" != "$names" ]; then
  # apt knows what debootstrap does not: names that several packages may stand for.
  # shellcheck disable=SC2086  # a list of names
  { cp -L /etc/resolv.conf "$base/debian/etc/" && chroot "$base/debian" apt-get update &&
    chroot "$base/debian" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $names; } >"$base/log" 2>&1 || fail
  rm -rf "$base"/debian/var/cache/apt/archives/*.deb "$base"/debian/var/lib/apt/lists/* "$base"/debian/usr/share/{doc,locale,man,i18n}/*
  echo "$names" >"$base/names"
fi
root=$base/debian
rm -rf "$root/packages"
mkdir -p "$root/packages"
cp "$@" "$root/packages/"
cat >"$root/etc/systemd/system/cw-commands.service" <<'END'
[Service]
ExecStart=/sbin/cw_commands
KillMode=process
[Install]
WantedBy=multi-user.target
END
ln -sf ../cw-commands.service "$root/etc/systemd/system/multi-user.target.wants/cw-commands.service"
mkdir -p "$base/tree"
rm -rf "$base/tree/debian"
mv "$root" "$base/tree/debian"
pack "$base/tree" "$out"
mv "$base/tree/debian" "$root"
