# shellcheck shell=sh
# The machine's name and boot, and start_of: sets start to when a process was started, empty for one that has ended.
# shellcheck disable=SC2034 # the script that includes this reads them

boot='' machine='' node=''
{ read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
{ read -r machine </etc/machine-id; } 2>/dev/null
{ read -r node </proc/sys/kernel/hostname; } 2>/dev/null || node=$(uname -n)
start_of() {
  start=
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  # shellcheck disable=SC2086 # a field each
  set -- ${line##*) }
  [ "$1" = Z ] || start=${20}
}
