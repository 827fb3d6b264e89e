#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fails, naming them, where files of the tree are not as `make format` leaves them.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
command -v clang-format >/dev/null || { echo "clang-format is missing: packaging/deps/install.sh format"; exit 1; }
files() { git ls-files -z '*.c' '*.h' '*.cc' 2>/dev/null || find bpf cli maps nccl sync tests userspace -name '*.c' -print0 -o -name '*.h' -print0 -o -name '*.cc' -print0; }
wrong=$(files | xargs -0 -P "$(nproc)" -n 100 clang-format --dry-run --Werror 2>&1 | grep -oE '^[^ :]+:[0-9]+' | sort -u -t: -k1,1 || true)
if [ -n "$wrong" ]; then printf '%s\nnot as make format leaves them\n' "$wrong"; exit 1; fi
