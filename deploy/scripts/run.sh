# shellcheck shell=sh
# Runs a program between two looks at the device, all in one round trip. $1 is where sysfs is, $2 where to note what is
# changed, $3 a governor, $4 a mask of cores (hex), $5 a word that nobody else prints, $6 bytes of files that may come
# back at once, $7 the folder that is in use, for garbage collection; then come the program's words.
#
# Prints the device's state before and after, what could be set, when the program began and ended by the device's own
# uptime (s), and of result.json and the outputs those that are small: "SIZE NAME" each, "@@data", the bytes.
. ./lib/state.sh
. ./lib/governor.sh
. ./lib/take.sh

sys=$1 note=$2 governor=$3 mask=$4 marker=$5 most=$6 used=$7; shift 7
[ -z "$used" ] || touch -c "$used" 2>/dev/null &
state before
if [ -n "$governor" ]; then
  # The supervisor's timer and its lifeline may both send TERM: the second one comes in the middle of `unpin` and would
  # end it there. So every signal sets everything back anew.
  trap unpin EXIT
  trap 'unpin; exit 143' TERM
  trap 'unpin; exit 129' HUP
  for f in "$sys"/devices/system/cpu/cpufreq/policy*/scaling_governor; do
    [ -e "$f" ] && read -r old <"$f" && echo "$old $f"
  done >"$note" 2>/dev/null
  set=
  while read -r old f; do
    put "$governor" "$f"
    { read -r now <"$f"; } 2>/dev/null
    [ "$now" = "$governor" ] && set=yes || refused=yes
  done <"$note"
  if [ -z "$set" ]; then echo "note governor not set"; elif [ -n "$refused" ]; then echo "note governor set on some"
  else echo "note governor set"; fi
fi
if [ -n "$mask" ]; then
  if command -v taskset >/dev/null 2>&1; then echo "note affinity set"; else echo "note affinity not set"; mask=; fi
fi
clock; begun=$now
case $mask in '') "$@"; code=$?;; *) taskset "$mask" "$@"; code=$?;; esac
clock
state after
echo "ran $begun $now"
echo "@@files $marker"
take "$most"
wait
exit "$code"
