#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# image.sh PACKAGES [ARCHIVE]: the agent's container image as an OCI archive (build/packages/cwfabric-agent.oci.tar if not
# given), without a daemon and without an image registry: buildah, and a base that debootstrap makes from Debian's packages.
set -euo pipefail
cd "$(dirname "$0")/../.."
packages=$(cd "${1:?usage: image.sh PACKAGES [ARCHIVE]}" && pwd)
archive=${2:-$packages/cwfabric-agent.oci.tar}
command -v buildah >/dev/null && command -v debootstrap >/dev/null ||
  apt-get install -y --no-install-recommends buildah debootstrap >/dev/null
ls "$packages"/cwfabric-agent_*.deb "$packages"/cwctl_*.deb >/dev/null # make deb
mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources 2>/dev/null || true; } | grep -E '^(URIs:|deb )' | grep -oE 'https?://[^ ]+' | head -1)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
debootstrap --variant=minbase bookworm "$work/root" "$mirror" >"$work/log" 2>&1 || { tail -5 "$work/log"; exit 1; }
cp "$packages"/cwfabric-agent_*.deb "$packages"/cwctl_*.deb "$packages"/libcw*.deb "$work/root/tmp/" 2>/dev/null || true
chroot "$work/root" sh -c 'DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends /tmp/cwfabric-agent_*.deb /tmp/cwctl_*.deb' >"$work/log" 2>&1 ||
  { tail -20 "$work/log"; exit 1; }
rm -rf "$work/root/tmp"/* "$work/root/var/cache/apt/archives"/*.deb "$work/root/var/lib/apt/lists"/*

export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
container=$(buildah from scratch)
trap 'buildah rm "$container" >/dev/null 2>&1; rm -rf "$work"' EXIT
buildah add -q "$container" "$work/root" / >/dev/null
buildah config --entrypoint '["/usr/sbin/cwagentd", "--config", "/etc/cwfabric/cwagentd.toml"]' "$container"
rm -f "$archive"
buildah commit -q "$container" "oci-archive:$archive" >/dev/null
chroot "$work/root" /usr/sbin/cwagentd --version
echo "Built $archive ($(du -h "$archive" | cut -f1))"
