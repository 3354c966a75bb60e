# shellcheck shell=sh
# What a run left: the files that are small, and the device's own clock.

. ./lib/stat.sh
. ./lib/clock.sh

take() {
  left=$1 chosen='' found=''
  for f in result.json output*.npy; do
    case $f in *[!a-z0-9.]*) ;; *) [ ! -e "$f" ] || found="$found $f";; esac
  done
  # shellcheck disable=SC2046,SC2086 # names without spaces
  [ -z "$found" ] || set -- $(stat -c '%s %n' $found)
  while [ $# -ge 2 ]; do
    if [ "$1" -le "$left" ]; then left=$((left - $1)); chosen="$chosen $2"; echo "$1 $2"; fi
    shift 2
  done
  echo @@data
  # shellcheck disable=SC2086 # names without spaces
  [ -z "$chosen" ] || cat $chosen
}
