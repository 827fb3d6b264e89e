#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the rpm packages from what git has into the folder named, and checks them with rpmlint. On a Debian machine the
# build's dependencies are Debian's, so rpm cannot check them (--nodeps), and the packages fit no other distribution's libraries.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:-build/packages}" && cd "${1:-build/packages}" && pwd)
top=$PWD/build/rpm-source
version=$(sed -n 's/^Version: *//p' packaging/rpm/cwfabric.spec)
rm -rf "$top"
mkdir -p "$top/SOURCES" "$top/tree/cwfabric-$version"
git ls-files -z | tar --null -T - -c | tar -x -C "$top/tree/cwfabric-$version"
tar -C "$top/tree" --sort=name --mtime=@0 --owner=0 --group=0 -cf "$top/SOURCES/cwfabric-$version.tar" "cwfabric-$version"
if ! rpmbuild -bb --nodeps --define "_topdir $top" packaging/rpm/cwfabric.spec >"$top/build.log" 2>&1; then
  tail -60 "$top/build.log"
  exit 1
fi
rpmlint --strict -c packaging/rpm/rpmlint.toml "$top"/RPMS/*/*.rpm packaging/rpm/cwfabric.spec
# Into an empty root, as far as a machine of another distribution can: without dependencies and scripts.
root=$top/root
mkdir -p "$root"
rpm --root "$root" --nodeps --noscripts --nosignature -i "$top"/RPMS/*/*.rpm
rpm --root "$root" --nodeps --nosignature -Va | { ! grep .; }
chroot "$root" /usr/sbin/cwfabric-off --version
rm -f "$out"/*.rpm
mv "$top"/RPMS/*/*.rpm "$out/"
ls -l "$out"/*.rpm
if ls "$out"/*.deb >/dev/null 2>&1; then packaging/same_files.sh "$out"; fi
