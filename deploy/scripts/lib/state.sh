# shellcheck shell=sh
# How the device is doing. $sys is where sysfs is.

. ./lib/load.sh

state() {
  echo "@@$1"
  # shellcheck disable=SC2154 # the script that includes this sets it
  for d in "$sys"/devices/system/cpu/cpu[0-9]*/cpufreq; do
    [ -d "$d" ] || continue
    c=${d%/cpufreq}
    read -r g <"$d/scaling_governor" && read -r f <"$d/scaling_cur_freq" && echo "cpu ${c##*/cpu} $f $g"
  done 2>/dev/null
  for z in "$sys"/class/thermal/thermal_zone*; do
    { read -r type <"$z/type" && read -r degrees <"$z/temp"; } 2>/dev/null && echo "zone $degrees $type"
  done
  for z in "$sys"/class/thermal/cooling_device*; do
    { read -r type <"$z/type" && read -r now <"$z/cur_state"; } 2>/dev/null && echo "cooling $now $type"
  done
  for f in "$sys"/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count; do
    { read -r n <"$f"; } 2>/dev/null && echo "count $n"
  done
  for f in "$sys"/devices/platform/soc/*firmware/get_throttled; do
    { read -r bits <"$f"; } 2>/dev/null && echo "throttled $bits"
  done
  command -v vcgencmd >/dev/null 2>&1 && vcgencmd get_throttled 2>/dev/null
  load
  echo "@@end"
}
