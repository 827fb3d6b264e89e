#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# First process of a virtual machine: mounts, modules, addresses from the kernel command line, the soft-RoCE device; then
# the command server that the host talks to takes its place. Command line, for N from 0:
#   cw.ethN=ADDRESS/PREFIX,MTU[,GATEWAY]   cw.rxe=DEVICE (the NIC under rxe0; empty for none)   cw.name=HOSTNAME
#   cw.root=FOLDER (a whole system in this archive, whose own init goes on and starts /sbin/cw_commands)
export PATH=/sbin:/usr/sbin:/usr/bin:/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t bpf bpf /sys/fs/bpf
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
ln -s /proc/self/fd /dev/fd

while read -r module; do
  options=
  case $module in */bonding.ko) options=max_bonds=0 ;; esac # no bond0 that nobody asked for
  insmod "$module" $options || echo "cw: $module did not load"
done </etc/modules.order

ip link set lo up
rxe=eth0
root=
for word in $(cat /proc/cmdline); do
  case $word in
    cw.eth*=*)
      nic=${word#cw.}
      nic=${nic%%=*}
      IFS=, read -r address mtu gateway <<END
${word#*=}
END
      ip link set "$nic" mtu "$mtu" up
      ip address add "$address" dev "$nic"
      if [ -n "$gateway" ]; then ip route add default via "$gateway" dev "$nic"; fi
      ;;
    cw.rxe=*) rxe=${word#*=} ;;
    cw.name=*) hostname "${word#*=}" ;;
    cw.root=*) root=${word#*=} ;;
  esac
done
if [ -n "$rxe" ]; then
  rdma link add rxe0 type rxe netdev "$rxe"
  # The kernel tells a link's state a second late: what runs next shall find it up.
  tries=0
  while [ "$(cat "/sys/class/net/$rxe/operstate")" != up ] && [ $tries -lt 50 ]; do
    sleep 0.1
    tries=$((tries + 1))
  done
fi

if [ -n "$root" ]; then
  cp /sbin/cw_vm_guestd /sbin/cw_commands "$root/sbin/"
  # Memory's root cannot be left; what is mounted over it can be everything from here on.
  mount --bind "$root" "$root"
  for folder in proc sys dev; do mount --move "/$folder" "$root/$folder"; done
  cd "$root" || exit 1
  mount --move . /
  exec chroot . /sbin/init
fi
exec /sbin/cw_commands
