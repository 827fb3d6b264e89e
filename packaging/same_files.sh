#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# same_files.sh FOLDER: do the rpm packages there hold what the Debian packages there hold? By what a file is for: where a
# distribution puts libraries, units and completions is its own business, and so are licences.
set -euo pipefail
cd "${1:?usage: same_files.sh FOLDER}"

# Lines "PACKAGE PATH" to the same in one spelling.
roles() {
  sed -E -e 's#^libcwclock1 #libcwclock #; s#^libcwclock-dev #libcwclock-devel #' \
    -e 's# \.?/(usr/)?lib/(systemd|sysusers\.d|tmpfiles\.d)/# /usr/lib/\2/#; s# \./# /#' \
    -e 's# /usr/(lib64|lib/[a-z0-9_]+-linux-gnu)/# LIB/#' \
    -e 's#/zsh/(vendor-completions|site-functions)/#/zsh/#' |
    grep -vE ' /usr/share/(doc|licenses|lintian)/| /usr/lib/\.build-id|/$' | sort
}
of_debs() {
  for deb in *.deb; do
    case $deb in *-dbgsym_*) continue ;; esac
    dpkg-deb -c "$deb" | awk -v p="$(dpkg-deb -f "$deb" Package)" '$1 !~ /^d/ { print p, $6 }'
  done
}
of_rpms() {
  for rpm in *.rpm; do
    rpm -qp --nosignature --qf '[%{FILEMODES:perms} %{=NAME} %{FILENAMES}\n]' "$rpm" |
      awk '$1 !~ /^d/ { print $2, $3 }'
  done
}
diff -u --label debs --label rpms <(of_debs | roles) <(of_rpms | roles) && echo "rpm and Debian packages hold the same files"
