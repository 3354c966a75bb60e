# shellcheck shell=sh
# The device's own clock (s).
# shellcheck disable=SC2034 # the script that includes this reads it

clock() { now=; { read -r now rest </proc/uptime; } 2>/dev/null; }
