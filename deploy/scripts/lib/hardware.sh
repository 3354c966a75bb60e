# shellcheck shell=sh
# Mounts, processor, board, memory and load. The functions are those of probe.sh.

hardware() {
part mounts; lines_of /proc/mounts
part cpuinfo; lines_of /proc/cpuinfo first
part board; unended /proc/device-tree/model || unended /sys/class/dmi/id/product_name
part online; first_line /sys/devices/system/cpu/online ||
  { part cores; getconf _NPROCESSORS_ONLN 2>/dev/null || nproc 2>/dev/null || grep -c ^processor /proc/cpuinfo; }
part memory
# shellcheck disable=SC2034 # three lines
for f in 1 2 3; do read -r line && echo "$line"; done 2>/dev/null </proc/meminfo
part load; first_line /proc/loadavg
}
