# shellcheck shell=sh
# $2 owner, $3 yes when the files' digests are known (they were read back), then pairs of SHA-256 and
# mode. Prints SHA256 SHA256-FOUND for each, or SHA256 unable: that file waits then.

. ./lib/digest.sh

cd "$1" || exit 1
owner=$2 checked=$3; shift 3
parts=
for word in "$@"; do
  case $word in 444|555) ;; *) parts="$parts incoming/$word.$owner.part";; esac
done
# shellcheck disable=SC2086 # a list, split at spaces
sync $parts 2>/dev/null || sync
while [ $# -ge 2 ]; do
  part=incoming/$1.$owner.part
  if [ "$checked" = yes ]; then got=$1; else digest "$part" || exit 1; fi
  if [ "$got" = "$1" ]; then
    chmod "$2" "$part" && mv -f "$part" "store/$1" || exit 1
  elif [ "$got" != unable ]; then
    rm -f "$part"
  fi
  echo "$1 $got"
  shift 2
done
sync store 2>/dev/null || sync
