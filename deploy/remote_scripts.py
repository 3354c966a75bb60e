"""The shell scripts that run on a device. ``$1`` is always the store's root; POSIX sh, no bashisms.

File names come as arguments, never inside the script's text. What a script prints is read by `deploy.store`.
"""

SURVEY = """\
cd "$1" 2>/dev/null || exit 0
shift
[ $# -eq 0 ] || stat -c '%s %n' "$@" 2>/dev/null
for left in incoming/*.part runs/* runs/.*.part bundles/.*.part; do
  [ ! -e "$left" ] || echo "leftover $left"
done
exit 0
"""
"""``$2…``: paths. Prints ``SIZE PATH`` for each that exists, then what is unfinished or may be left over."""

PREPARE = """\
umask 077
mkdir -p "$1" && cd "$1" && umask 022 && mkdir -p incoming store bundles runs
"""

COMMIT = """\
cd "$1" || exit 1
owner=$2; shift 2
parts=
for word in "$@"; do
  case $word in 444|555) ;; *) parts="$parts incoming/$word.$owner.part";; esac
done
sync $parts 2>/dev/null || sync
while [ $# -ge 2 ]; do
  part=incoming/$1.$owner.part
  got=$(sha256sum <"$part") || exit 1
  got=${got%% *}
  if [ "$got" = "$1" ]; then
    chmod "$2" "$part" && mv -f "$part" "store/$1" || exit 1
  else
    rm -f "$part"
  fi
  echo "$1 $got"
  shift 2
done
"""
"""``$2`` owner, then pairs of SHA-256 and mode. Prints ``SHA256 SHA256-FOUND`` for each."""

ARRANGE = """\
cd "$1" || exit 1
final=$2 part=$3; shift 3
link_all() {
  while [ $# -ge 3 ]; do
    case $2 in */*) mkdir -p "$part/${2%/*}" || return 1;; esac
    [ "$3" = 444 ] || chmod "$3" "store/$1"
    ln "store/$1" "$part/$2" 2>/dev/null || cp -p "store/$1" "$part/$2" || return 1
    shift 3
  done
}
same() { [ "$part/$1" -ef "$final/$1" ]; }
merge_all() {
  while [ $# -ge 3 ]; do
    case $2 in */*) mkdir -p "$final/${2%/*}" || return 1;; esac
    same "$2" || mv -f "$part/$2" "$final/$2" || same "$2" || return 1
    shift 3
  done
}
mkdir -p "${final%/*}" && rm -rf "$part" && mkdir "$part" || exit 1
code=0
if ! link_all "$@"; then code=1
elif [ -d "$final" ]; then merge_all "$@" || code=1
else mv "$part" "$final" || code=1; fi
rm -rf "$part" "$final/${part##*/}"
exit "$code"
"""
"""``$2`` folder, ``$3`` its temporary name, then triples of SHA-256, path in the folder and mode.

What is there already is completed file by file, never taken away: another deploy may be running it. Should one make
the folder at the same moment, ``mv`` puts ours inside, from where it is removed.

Hard links, not symbolic ones: the loader resolves ``$ORIGIN`` through a symbolic link to the store, where no
``lib`` folder is.
"""

DISCARD = """\
cd "$1" 2>/dev/null || exit 0
shift
for name in "$@"; do
  case $name in incoming/?*|runs/?*|bundles/?*) ;; *) continue;; esac
  case $name in *..*) continue;; esac
  child=$(cat "$name/.pid" 2>/dev/null)
  case $child in
    ''|*[!0-9]*) ;;
    *) [ "$(readlink "/proc/$child/cwd")" != "$(pwd -P)/$name" ] || kill -KILL "-$child" 2>/dev/null;;
  esac
  rm -rf "$name"
done
exit 0
"""
"""``$2…``: paths below incoming, runs or bundles. A run whose process group still lives loses it first;
that it is the run's is told by its working folder, since after a restart the number may be anybody's."""

KEEP = """\
cd "$1/runs" && mv "$2" "kept-$2"
"""
