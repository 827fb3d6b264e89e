#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mkinitramfs.sh OUTDIR [KERNEL]
#
# Writes OUTDIR/vmlinuz and OUTDIR/initrd.cpio: a distribution kernel and a root file system in memory with soft-RoCE,
# rdma-core, perftest, iproute2 and bpftool. KERNEL is a series of Debian 12 and its archives (6.1, the default, or 6.12:
# the newest package is taken) or a package's full name. Nothing is installed: the package is unpacked beside OUTDIR.
# Exit code 3: the kernel package cannot be had. A second call with nothing changed does nothing.
set -Eeuo pipefail
trap 'echo "$0: line $LINENO failed" >&2' ERR
here=$(dirname "$(readlink -f "$0")")
. "$here/closure.sh"

outdir=${1:?usage: mkinitramfs.sh OUTDIR [KERNEL]}
archives=/var/cache/apt/archives
modules="crc32_generic virtio_pci virtio_net virtio_console rdma_rxe ib_uverbs rdma_ucm cls_bpf cls_matchall cls_u32
  cls_flower act_gact sch_ingress sch_fq sch_netem sch_tbf bridge veth bonding"
programs="/bin/ip /sbin/tc /usr/bin/rdma /usr/sbin/bpftool /usr/bin/ib_write_bw /usr/bin/ib_read_bw /usr/bin/ib_send_bw
  /usr/bin/ib_atomic_bw /usr/bin/ib_write_lat /usr/bin/ib_send_lat /bin/ss /usr/bin/ibv_devinfo"

# The newest package of a series that apt knows or has kept.
newest_package() {
  {
    apt-cache pkgnames "linux-image-$1." 2>/dev/null || true
    { ls "$archives" "$outdir/cache" 2>/dev/null || true; } | sed -n 's/^\(linux-image-[^_]*\)_.*/\1/p'
  } | { grep -xE "linux-image-${1//./\\.}\.[0-9]+(-[0-9]+|\+deb12)-amd64" || true; } | sort -Vu | tail -n 1
}

# The package's file: from this cache, from apt's, or downloaded.
fetch_package() {
  local cache=$outdir/cache deb
  mkdir -p "$cache"
  deb=$(ls "$cache/${package}"_*.deb "$archives/${package}"_*.deb 2>/dev/null | tail -n 1 || true)
  if [ -z "$deb" ] && (cd "$cache" && apt-get download -q "$package" >&2); then
    deb=$(ls "$cache/${package}"_*.deb | tail -n 1)
  fi
  echo "$deb"
}

# Everything but the large drivers that no virtual machine of this rig can have.
unpack_kernel() {
  dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" --exclude='*/drivers/gpu' --exclude='*/drivers/media' --exclude='*/sound' \
    --exclude='*/drivers/usb' --exclude='*/drivers/net/wireless' ./boot ./lib
}

# Copies the modules and all that they need, in the order of loading (built-in ones drop out by themselves).
put_modules() {
  local tree=$1 root=$2 kver=$3 module file name
  depmod -b "$tree" "$kver"
  mkdir -p "$root/lib/modules"
  for module in $modules; do
    modprobe -d "$tree" -S "$kver" --show-depends "$module" || echo "module $module is missing" >&2
  done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' | while read -r file; do
    name=$(basename "$file")
    case $file in
      *.xz) xz -dc "$file" >"$root/lib/modules/${name%.xz}" ;;
      *) cp "$file" "$root/lib/modules/" ;;
    esac
    echo "/lib/modules/${name%.xz}"
  done >"$root/etc/modules.order"
  grep -q rdma_rxe "$root/etc/modules.order"
}

put_userspace() {
  local root=$1 program lib applet
  mkdir -p "$root"/{bin,sbin,proc,sys,dev,run,tmp,root,etc/libibverbs.d,usr/bin,usr/sbin}
  put /bin/busybox /bin/busybox "$root"
  # busybox's own ip and tc know nothing of BPF, and its shell prefers its applets to any PATH: so dash is the shell.
  put /bin/dash /bin/sh "$root"
  for applet in $(busybox --list | grep -vxE 'busybox|ip|tc|sh|ash|init|linuxrc'); do
    ln -s /bin/busybox "$root/bin/$applet"
  done
  for program in $programs; do
    if [ -e "$program" ]; then put "$program" "/usr/bin/$(basename "$program")" "$root"; fi
  done
  for program in ip tc; do ln -s "/usr/bin/$program" "$root/sbin/$program"; done
  lib=$(dirname "$(find /usr/lib -name 'librxe-rdmav*.so' -print -quit)")
  put "$(echo "$lib"/librxe-rdmav*.so)" "$(echo "$lib"/librxe-rdmav*.so)" "$root"
  cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"
  ldconfig -r "$root" 2>/dev/null || true
  printf 'root:x:0:0:root:/root:/bin/sh\n' >"$root/etc/passwd"
  printf 'root:x:0:\n' >"$root/etc/group"
  printf '127.0.0.1 localhost\n' >"$root/etc/hosts"
  install -m 755 "$here/init.sh" "$root/init"
  install -m 755 "$here/commands.sh" "$root/sbin/cw_commands"
}

mkdir -p "$outdir"
exec 9>"$outdir/lock"
flock 9
kernel=${2:-6.1}
case $kernel in
  linux-image-*) package=$kernel ;;
  *) package=$(newest_package "$kernel") ;;
esac
if [ -z "$package" ]; then
  echo "no linux-image-$kernel package is known to apt: run apt-get update" >&2
  exit 3
fi
stamp=$(cat "$here/mkinitramfs.sh" "$here/closure.sh" "$here/init.sh" "$here/commands.sh" | sha256sum | cut -c 1-16)\ $package\ $(
  dpkg-query -W -f '${Package}=${Version} ' busybox-static perftest ibverbs-providers iproute2 bpftool libc6)
if [ "$(cat "$outdir/stamp" 2>/dev/null)" = "$stamp" ]; then exit 0; fi

deb=$(fetch_package)
if [ -z "$deb" ]; then
  echo "$package is neither in $archives nor can it be downloaded" >&2
  exit 3
fi
work=$(mktemp -d -p "$outdir")
trap 'rm -rf "$work"' EXIT
mkdir "$work/kernel" "$work/root"
unpack_kernel "$deb" "$work/kernel"
kver=$(ls "$work/kernel/lib/modules")
put_userspace "$work/root"
put_modules "$work/kernel" "$work/root" "$kver"
pack "$work/root" "$outdir/initrd.cpio"
cp "$work/kernel/boot/vmlinuz-$kver" "$outdir/vmlinuz"
echo "$kver" >"$outdir/kver"
echo "$stamp" >"$outdir/stamp"
