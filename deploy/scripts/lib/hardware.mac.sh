# shellcheck shell=sh
# Mounts are printed as /proc/mounts of Linux has them; deploy/devices/probe.py reads what sysctl prints.

. ./lib/load.sh

hardware() {
part mounts; mount | sed -n 's/, /,/g; s/^\(.*\) on \(\/.*\) (\(.*\))$/\1 \2 - \3/p'
part board; sysctl -n hw.model 2>/dev/null
part darwin; sysctl machdep.cpu hw.optional hw.memsize vm.loadavg 2>/dev/null
part memory; load
part cores; getconf _NPROCESSORS_ONLN 2>/dev/null
}
