#!/bin/sh
# What a virtual device does when it starts; its init (busybox) runs this once and then keeps sshd up.
# /etc/fstab, /etc/hostname and /etc/modules-in-order say what differs between devices.
export PATH=/usr/sbin:/usr/bin
chmod 755 /    # the kernel leaves it open to all, and sshd then trusts no key
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
ln -sfn /proc/self/fd /dev/fd
mount -a || echo "slipway: a file system of /etc/fstab was not mounted"
while read -r module; do busybox insmod "$module" || echo "slipway: $module was not loaded"; done </etc/modules-in-order
hostname -F /etc/hostname
ip link set lo up

card() { for card in /sys/class/net/*; do card=${card##*/}; [ "$card" = lo ] || return 0; done; return 1; }
tries=0
until card || [ "$tries" -ge 200 ]; do sleep 0.1; tries=$((tries + 1)); done
# QEMU's user network hands out this address and no other.
ip addr add 10.0.2.15/24 dev "$card" && ip link set "$card" up || echo "slipway: no network card"
