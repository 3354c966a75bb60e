# shellcheck shell=sh
# $2 owner, then pairs of SHA-256 and size. Makes the longest part of each file this owner's own, and prints
# SHA256 BYTES SHA256-OF-THESE-BYTES where there is one.

. ./lib/digest.sh
. ./lib/stat.sh

cd "$1" || exit 1
owner=$2; shift 2
while [ $# -ge 2 ]; do
  mine=incoming/$1.$owner.part best=0
  for part in "incoming/$1".*.part; do
    [ -f "$part" ] && [ ! -h "$part" ] || continue
    size=$(stat -c %s "$part")
    if [ "$size" -gt "$best" ] && [ "$size" -le "$2" ]; then
      best=$size
      [ "$part" = "$mine" ] || mv -f "$part" "$mine" || exit 1
    elif [ "$part" != "$mine" ]; then
      rm -f "$part"
    fi
  done
  if [ "$best" -gt 0 ]; then
    digest "$mine" || exit 1
    echo "$1 $best $got"
  fi
  shift 2
done
