#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Packages of a release that does not exist: this tree, with other records in its maps (tests/bpf/other_layout.cmake) and
# the version 0.99. For the test of upgrades between releases:  packaging/other_release.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:?usage: other_release.sh FOLDER}" && cd "$1" && pwd)
work=$out/work # always the same: paths are among the compiler's flags, and ccache goes by them
rm -rf "$work"
trap 'rm -rf "$work"' EXIT
export GIT_CEILING_DIRECTORIES=$work # the copy is no repository
mkdir -p "$work/tree"
git ls-files -z | tar --null -T - -c | tar -x -C "$work/tree"
cd "$work/tree"
cmake -D CW_ABI=maps/abi.h -D CW_OTHER_ABI=maps/abi.h -P tests/bpf/other_layout.cmake
sed -i '1s/([^)]*)/(0.99.0)/' packaging/debian/changelog
sed -i -E 's/^(project\(cwfabric VERSION) [0-9.]+/\1 0.99.0/' CMakeLists.txt
packaging/deb.sh "$out"
