# shellcheck shell=sh
# $2 folder, $3 its temporary name, $4 and $5 whether these are the first and the last of its files,
# then triples of SHA-256, path in the folder and mode. Leaves a manifest as sha256sum -c reads it. After the last it
# prints the look of each file that is the store's own, not a copy of it.
#
# What is there already is completed file by file, never taken away: another deploy may be running it. Should one make
# the folder at the same moment, mv puts ours inside, from where it is removed.
#
# Hard links, not symbolic ones: the loader resolves $ORIGIN through a symbolic link to the store, where no
# lib folder is.

. ./lib/look.sh

cd "$1" || exit 1
umask 077
final=$2 part=$3 first=$4 last=$5; shift 5
link_all() {
  while [ $# -ge 3 ]; do
    case $2 in */*) mkdir -p "$part/${2%/*}" || return 1;; esac
    [ "$3" = 444 ] || chmod "$3" "store/$1"
    ln "store/$1" "$part/$2" 2>/dev/null || cp -p "store/$1" "$part/$2" || return 1
    echo "$1  $2" >>"$part/SHA256SUMS" || return 1
    shift 3
  done
}
same() { [ "$part/$1" -ef "$final/$1" ]; }
merge_all() {
  while IFS= read -r line; do
    name=${line#*  }
    case $name in */*) mkdir -p "$final/${name%/*}" || return 1;; esac
    same "$name" || mv -f "$part/$name" "$final/$name" || same "$name" || return 1
  done <"$part/SHA256SUMS"
  mv -f "$part/SHA256SUMS" "$final/SHA256SUMS"
}
if [ "$first" = yes ]; then
  mkdir -p "${final%/*}" && rm -rf "$part" && mkdir "$part" || exit 1
fi
code=0
if ! link_all "$@"; then code=1
elif [ "$last" != yes ]; then exit 0
elif [ -d "$final" ]; then merge_all || code=1
else mv "$part" "$final" || code=1; fi
rm -rf "${part:?}" "${final:?}/${part##*/}"
[ "$code" = 0 ] || exit "$code"
set --
while IFS= read -r line; do
  name=$final/${line#*  }
  [ ! "$name" -ef "store/${line%% *}" ] || set -- "$@" "$name"
done <"$final/SHA256SUMS"
[ $# -eq 0 ] || look "$@"
