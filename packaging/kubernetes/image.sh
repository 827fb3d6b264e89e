#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# image.sh PACKAGES [OUT]: the container images of the agent and of the fleet service as OCI archives in OUT (PACKAGES if
# not given), without a daemon and without an image registry: buildah, and a base that debootstrap makes from Debian's
# packages. Each program is run once in its image.
set -euo pipefail
cd "$(dirname "$0")/../.."
packages=$(cd "${1:?usage: image.sh PACKAGES [OUT]}" && pwd)
out=$(mkdir -p "${2:-$packages}" && cd "${2:-$packages}" && pwd)
command -v buildah >/dev/null && command -v debootstrap >/dev/null ||
  apt-get install -y --no-install-recommends buildah debootstrap >/dev/null
mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources 2>/dev/null || true; } | grep -E '^(URIs:|deb )' | grep -oE 'https?://[^ ]+' | head -1)
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot

work=$(mktemp -d)
container=
trap '[ -z "$container" ] || buildah rm "$container" >/dev/null 2>&1; rm -rf "$work"' EXIT
debootstrap --variant=minbase bookworm "$work/base" "$mirror" >"$work/log" 2>&1 || { tail -5 "$work/log"; exit 1; }

image() { # name, program, its configuration, its packages
  local root=$work/$1 archive=$out/$1.oci.tar each
  cp -a "$work/base" "$root"
  for each in "${@:4}"; do cp "$packages/${each}"_*.deb "$root/tmp/"; done # make deb
  chroot "$root" sh -c 'DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends /tmp/*.deb' >"$work/log" 2>&1 ||
    { tail -20 "$work/log"; return 1; }
  rm -rf "$root"/tmp/* "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
  container=$(buildah from scratch)
  buildah add -q "$container" "$root" / >/dev/null
  buildah config --entrypoint "[\"$2\", \"--config\", \"$3\"]" "$container"
  rm -f "$archive"
  buildah commit -q "$container" "oci-archive:$archive" >/dev/null
  chroot "$root" "$2" --version
  buildah rm "$container" >/dev/null
  container=
  echo "Built $1.oci.tar ($(du -h "$archive" | cut -f1))"
}

image cwfabric-agent /usr/sbin/cwagentd /etc/cwfabric/cwagentd.toml cwfabric-agent cwctl
image cwfabric-fleet /usr/sbin/cwfleetd /etc/cwfabric-fleet/cwfleetd.toml cwfabric-fleet cwctl
