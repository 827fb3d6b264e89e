#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mkoverlay.sh OUT HOST_FILE=GUEST_PATH...: a second initrd archive with files of ours and the libraries that they load.
set -Eeuo pipefail
trap 'echo "$0: line $LINENO failed" >&2' ERR
here=$(dirname "$(readlink -f "$0")")
. "$here/closure.sh"

out=${1:?usage: mkoverlay.sh OUT HOST_FILE=GUEST_PATH...}
shift
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
for pair in "$@"; do
  put "${pair%%=*}" "${pair#*=}" "$root"
done
pack "$root" "$out"
