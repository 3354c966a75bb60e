# shellcheck shell=sh
# The load, and the memory that programs may take.

load() {
  { read -r load rest </proc/loadavg; } 2>/dev/null && echo "load $load"
  # shellcheck disable=SC2034 # three lines
  for n in 1 2 3; do
    read -r key rest && case $key in MemAvailable:) echo "$key $rest";; esac
  done 2>/dev/null </proc/meminfo
}
