#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fails, naming them, where files of the tree are not as `make format` leaves them.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
command -v clang-format >/dev/null || { echo "clang-format is missing: packaging/deps/install.sh format"; exit 1; }

list=$(mktemp)
trap 'rm -f "$list" "$list.said"' EXIT
# A copy without its history has no index.
git -c safe.directory="$PWD" ls-files -z '*.c' '*.h' '*.cc' >"$list" 2>/dev/null || true
if [ ! -s "$list" ]; then find . -path ./build -prune -o \( -name '*.c' -o -name '*.h' -o -name '*.cc' \) -print0 >"$list"; fi
[ -s "$list" ] || { echo "no source is found below $PWD"; exit 1; }

if xargs -0 -P "$(nproc)" -n 100 clang-format --dry-run --Werror <"$list" >"$list.said" 2>&1; then exit 0; fi
grep -oE '^[^ :]+:[0-9]+' "$list.said" | sort -u -t: -k1,1 || head -20 "$list.said"
echo "not as make format leaves them"
exit 1
