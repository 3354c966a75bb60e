#!/usr/bin/busybox sh
# What a virtual device does when it starts; its init (busybox) runs this once and then keeps its server up.
# /etc/fstab, /etc/hostname and /etc/modules-in-order say what differs between devices. Everything is busybox's own:
# what a device has in its PATH is what it plays.
b() { /usr/bin/busybox "$@"; }
b chmod 755 /    # the kernel leaves it open to all, and sshd then trusts no key
b mount -t proc proc /proc
b mount -t sysfs sysfs /sys
b mount -t devtmpfs devtmpfs /dev
# A board without a clock starts in 1970: what started the machine says on the kernel's command line how late it is.
read -r words </proc/cmdline
for word in $words; do
  case $word in slipway.time=*) [ "$(b date +%Y)" -gt 2000 ] || b date -s "@${word#*=}" >/dev/null;; esac
done
b mkdir -p /dev/pts
b ln -sfn /proc/self/fd /dev/fd
while read -r _ folder _; do b mkdir -p "$folder"; done </etc/fstab
b mount -a || echo "slipway: a file system of /etc/fstab was not mounted"
while read -r module; do b insmod "$module" || echo "slipway: $module was not loaded"; done </etc/modules-in-order
b hostname -F /etc/hostname
b ip link set lo up

card() { for card in /sys/class/net/*; do card=${card##*/}; [ "$card" = lo ] || return 0; done; return 1; }
tries=0
until card || [ "$tries" -ge 600 ]; do b sleep 0.1; tries=$((tries + 1)); done
# QEMU's user network hands out this address and no other.
b ip addr add 10.0.2.15/24 dev "$card" && b ip link set "$card" up || echo "slipway: no network card"
