"""The shell scripts that run on a device. ``$1`` is always the store's root; POSIX sh, no bashisms.

File names come as arguments, never inside the script's text. What a script prints is read by `deploy.store.store` and
`deploy.store.lock`. dash, busybox, mksh with toybox, and bash all run them.

`LOCK` and `PREPARE` see that the root is ours (`deploy.scripts.root_scripts`); the rest runs after one of these, in a
folder that nobody else can have changed in between.
"""

from deploy.scripts.root_scripts import ROOT

_LOOK = "TZ=UTC0 stat -c 'size %s %i:%y:%z; %n'"
"""Size, and what changes whenever a file's bytes do: inode, and the times of its last change to bytes and to itself,
to the nanosecond where the file system has them. coreutils, BusyBox and toybox print the same."""


def compact(script: str) -> str:
    """``script`` without indentation and comments: dropbear takes no long commands, slow devices read every byte."""
    lines = (line.strip() for line in script.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))


_SURVEY = """\
survey() {
  for name in "$@"; do
    shift
    case $name in */) set -- "$@" "$name"*;; *) set -- "$@" "$name";; esac
  done
  [ $# -eq 0 ] || LOOK "$@" 2>/dev/null
  for left in incoming/*.part runs/* runs/.*.part bundles/.*.part programs/.*.part; do
    [ ! -e "$left" ] || echo "leftover $left"
  done
  for link in current/*; do
    [ -L "$link" ] || continue
    there=
    for bundle in bundles/*; do [ ! "$link" -ef "$bundle" ] || { there=../$bundle; break; }; done
    echo "$link ${there:-$(readlink "$link")}"
  done
  [ ! -e governor ] || echo "pinned governor"
}
""".replace("LOOK", _LOOK)
"""Arguments: paths; one that ends with a slash stands for all in that folder. Prints the look of each that exists,
what is unfinished or may be left over, and the bundle of each ``current`` link."""

_DISCARD = """\
discard() {
  for name in "$@"; do
    shift
    case $name in
      incoming/?*|runs/?*|bundles/?*|programs/?*|store/?*|lock/?*) ;; *) continue;;
    esac
    case $name in *..*) continue;; esac
    case ${name#store/} in "$name") ;; *[!0-9a-f]*) continue;; esac
    case ${name#lock/} in "$name") ;; *[!0-9]*) continue;; esac
    child=
    { read -r child <"$name/.pid"; } 2>/dev/null
    case $child in
      ''|*[!0-9]*) ;;
      *) [ ! -d "/proc/$child" ] || [ "$(readlink "/proc/$child/cwd")" != "$(pwd -P)/$name" ] ||
        kill -KILL "-$child" 2>/dev/null;;
    esac
    set -- "$@" "$name"
  done
  [ $# -eq 0 ] || rm -rf "$@"
}
"""
"""Arguments: paths below incoming, runs, bundles, programs, store or lock. A run whose process group still lives loses
it first; that it is the run's is told by its working folder, since after a restart the number may be anybody's."""

SURVEY = (
    _SURVEY
    + """\
cd "$1" 2>/dev/null || exit 0
shift
survey "$@"
echo "usage $(du -sk . 2>/dev/null)"
exit 0
"""
)

DISCARD = (
    _DISCARD
    + """\
cd "$1" 2>/dev/null || exit 0
shift
discard "$@"
exit 0
"""
)

LOCK = compact(
    _SURVEY
    + _DISCARD
    + ROOT
    + """\
root=$1 owner=$2 who=$3 stale=$4 make=$5 new=$6; shift 6
claim "$root" "$new" "$make"
there=yes
for each in lock incoming store bundles programs runs current previous; do [ -d "$each" ] || there=no; done
if [ "$there" = no ] && ! said=$(mkdir -p lock incoming store bundles programs runs current previous 2>&1); then
  [ "$make" = yes ] || { echo absent; exit 0; }
  echo "$said" >&2; exit 1
fi
boot= machine= node=
{ read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
{ read -r machine </etc/machine-id; } 2>/dev/null
{ read -r node </proc/sys/kernel/hostname; } 2>/dev/null || node=$(uname -n)
node="$node $machine"
start_of() {
  start=
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  set -- ${line##*) }
  [ "$1" = Z ] || start=${20}
}
start_of 1
space=${start:-$(readlink /proc/self/ns/pid 2>/dev/null)}
latest() {
  last=0
  for each in lock/*; do
    case ${each#lock/} in ''|*[!0-9]*) continue;; esac
    [ "${each#lock/}" -le "$last" ] || last=${each#lock/}
  done
}
gone() {
  near=no
  [ -s "lock/$1/holder" ] || return 1
  { read -r h_node; read -r h_boot; read -r h_space; read -r h_pid h_start; } <"lock/$1/holder"
  [ "$h_node" = "$node" ] || return 1
  [ "$h_boot" = "$boot" ] || return 0
  [ "$h_space" = "$space" ] || return 1
  near=yes
  start_of "$h_pid" || return 0
  [ "$start" != "$h_start" ]
}
busy() { echo "busy $1"; sed -n 5p "lock/${1%%:*}/holder" 2>/dev/null; exit 0; }
latest
if [ "$last" -gt 0 ] && [ ! -e "lock/$last/released" ]; then
  beat=$(cat "lock/$last/beat" 2>/dev/null)
  if ! gone "$last"; then
    [ "$stale" = "$last:$beat" ] || busy "$last:$beat"
    [ "$near" = no ] || kill -KILL "$h_pid" 2>/dev/null
  fi
fi
mine=$((last + 1))
if ! said=$(mkdir "lock/$mine" 2>&1); then
  [ ! -d "lock/$mine" ] || busy "$mine:"
  echo "$said" >&2; exit 1
fi
latest
[ "$last" = "$mine" ] || { rmdir "lock/$mine"; busy "$last:"; }
start_of $$
count=1000000000
{ for each in "$node" "$boot" "$space" "$$ $start" "$who"; do echo "$each"; done; } >"lock/$mine/holder" &&
  echo "$count" >"lock/$mine/beat" || { env echo "$count" >"lock/$mine/beat"; rm -rf "lock/$mine"; exit 1; }
echo "acquired $mine $id"
survey "$@"
echo ready
forgotten() {
  old=
  for each in lock/*; do
    case ${each#lock/} in ''|*[!0-9]*) ;; *) [ "${each#lock/}" -ge "$mine" ] || old="$old $each";; esac
  done
}
while read -r _; do
  latest
  [ "$last" = "$mine" ] || { echo lost; exit 1; }
  count=$((count + 1))
  echo "$count" 1<>"lock/$mine/beat"
  forgotten; discard $old
done
forgotten; discard "runs/$owner" $old
latest
[ "$last" = "$mine" ] || exit 0
while read -r each; do echo "$each"; done <"lock/$mine/holder" 2>/dev/null >"lock/$mine/released" ||
  mv -f "lock/$mine/holder" "lock/$mine/released"
exit 0
"""
)
"""``$2`` owner, ``$3`` who that is in words, ``$4`` a generation and beat that are known to be stale, ``$5`` ``yes`` to
make the root, ``$6`` an id for it then, ``$7…`` paths for the survey. Prints ``absent``, ``refused WHY`` and a path,
``busy GENERATION:BEAT`` and who, or ``acquired GENERATION ID``, the survey and ``ready``; then it stays, as the holder.

The lock is the folder with the highest number below ``lock``; it is free when it holds ``released``. Taking it is
making the next number, which the file system grants to one alone; a number is never used again while a higher one
is there, and the highest is never removed, so that a slow contender cannot undo another's. Old numbers go with
the holder's beats, or when it gives the lock back.

A process's number is told from an equal one of another pid namespace by when that namespace's first process was
started; where that is hidden, by the namespace's own name.

A full disk is told by a program's echo: dash's own calls it an I/O error.

The holder is a process on the device: when that process is gone, or the device was restarted, the lock is free at
once. It beats by order of the other side, a line each, into a file that is overwritten in place (a full disk stops
no beat), and gives the lock back when its input ends, which is what a broken connection does by itself.
"""

PREPARE = (
    ROOT
    + """\
claim "$1" "$2" yes
mkdir -p incoming store bundles programs runs || exit 1
"""
)
"""What taking the lock does too; for a store that is used without it. ``$2`` an id for a new root."""

_DIGEST = """\
digest() {
  if command -v sha256sum >/dev/null 2>&1; then got=$(sha256sum <"$1") || return 1
  elif command -v openssl >/dev/null 2>&1; then got=$(openssl dgst -sha256 <"$1") || return 1
  elif toybox sha256sum </dev/null >/dev/null 2>&1; then got=$(toybox sha256sum <"$1") || return 1
  elif busybox sha256sum </dev/null >/dev/null 2>&1; then got=$(busybox sha256sum <"$1") || return 1
  else got=unable; fi
  case $got in *'= '*) got=${got##*= };; *) got=${got%% *};; esac
}
"""
"""Sets ``got`` to the SHA-256 of a file by whatever the device has (Android 7 has nothing), else to ``unable``."""

COMMIT = (
    _DIGEST
    + """\
cd "$1" || exit 1
owner=$2 checked=$3; shift 3
parts=
for word in "$@"; do
  case $word in 444|555) ;; *) parts="$parts incoming/$word.$owner.part";; esac
done
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
"""
)
"""``$2`` owner, ``$3`` ``yes`` when the files' digests are known (they were read back), then pairs of SHA-256 and
mode. Prints ``SHA256 SHA256-FOUND`` for each, or ``SHA256 unable``: that file waits then."""

RESUME = (
    _DIGEST
    + """\
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
"""
)
"""``$2`` owner, then pairs of SHA-256 and size. Makes the longest part of each file this owner's own, and prints
``SHA256 BYTES SHA256-OF-THESE-BYTES`` where there is one."""

ARRANGE = """\
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
rm -rf "$part" "$final/${part##*/}"
[ "$code" = 0 ] || exit "$code"
set --
while IFS= read -r line; do
  name=$final/${line#*  }
  [ ! "$name" -ef "store/${line%% *}" ] || set -- "$@" "$name"
done <"$final/SHA256SUMS"
[ $# -eq 0 ] || LOOK "$@"
""".replace("LOOK", _LOOK)
"""``$2`` folder, ``$3`` its temporary name, ``$4`` and ``$5`` whether these are the first and the last of its files,
then triples of SHA-256, path in the folder and mode. Leaves a manifest as ``sha256sum -c`` reads it. After the last it
prints the look of each file that is the store's own, not a copy of it.

What is there already is completed file by file, never taken away: another deploy may be running it. Should one make
the folder at the same moment, ``mv`` puts ours inside, from where it is removed.

Hard links, not symbolic ones: the loader resolves ``$ORIGIN`` through a symbolic link to the store, where no
``lib`` folder is.
"""

VERIFY = (
    _DIGEST
    + """\
cd "$1" || exit 1
shift
LOOK "$@" 2>/dev/null
for file in "$@"; do
  [ -f "$file" ] && [ ! -h "$file" ] || continue
  digest "$file" || exit 1
  echo "digest $got $file"
done
""".replace("LOOK", _LOOK)
)
"""Arguments: paths. Prints the look of each file as it was before its digest was computed, and ``digest SHA256 PATH``;
``unable`` where the device has nothing to do that with."""

HOLDINGS = """\
cd "$1" || exit 1
for file in store/*; do [ ! -f "$file" ] || echo "of ${file#store/} $file"; done
for sums in bundles/*/SHA256SUMS programs/*/SHA256SUMS; do
  [ -f "$sums" ] || continue
  while IFS= read -r line; do echo "of ${line%% *} ${sums%/*}/${line#*  }"; done <"$sums"
done
exit 0
"""
"""Prints ``of SHA256 PATH`` for each file that should have that digest."""

_POINT = """\
point() {
  rm -f "$1.part"
  ln -s "$2" "$1.part" || return 1
  mv -fT "$1.part" "$1" 2>/dev/null || { rm -f "$1" && mv -f "$1.part" "$1"; }
}
"""
"""Make the link ``$1`` point to ``$2`` by a rename. Where ``mv`` has no ``-T`` there is a moment without the link,
which the next deploy mends."""

FLIP = (
    _POINT
    + """\
cd "$1" && mkdir -p current previous || exit 1
now=$(readlink "current/$2")
[ "$now" != "../bundles/$3" ] || exit 0
touch -c "bundles/$3" "bundles/${now##*/}" 2>/dev/null
[ -z "$now" ] || point "previous/$2" "$now" || exit 1
point "current/$2" "../bundles/$3"
"""
)
"""``$2`` target and engine, ``$3`` the bundle's digest."""

ROLLBACK = (
    _POINT
    + """\
cd "$1" 2>/dev/null || { echo none; exit 0; }
now=$(readlink "current/$2") before=$(readlink "previous/$2")
[ -n "$before" ] && [ "$before" != "$now" ] || { echo none; exit 0; }
if command -v sha256sum >/dev/null 2>&1 && ! said=$(cd "previous/$2/." && sha256sum -c SHA256SUMS 2>&1); then
  echo damaged; echo "$said" | grep -v ': OK$'
  exit 0
fi
point "current/$2" "$before" || exit 1
[ -z "$now" ] || point "previous/$2" "$now" || exit 1
echo "now ${before##*/} ${now##*/}"
"""
)
"""``$2`` target and engine. Prints ``none``, ``damaged`` and what, or ``now DIGEST DIGEST-BEFORE``."""

LISTING = """\
cd "$1" 2>/dev/null || exit 0
echo "now $(date +%s)"
for link in current/* previous/*; do
  [ ! -L "$link" ] || echo "link $link $(readlink "$link")"
done
stat -c 'file %s %Y %h %n' store/* incoming/* 2>/dev/null
stat -c 'folder 0 %Y 0 %n' runs/* bundles/* programs/* 2>/dev/null
for sums in bundles/*/SHA256SUMS programs/*/SHA256SUMS; do
  [ ! -f "$sums" ] || { echo "of ${sums%/*}"; cut -c 1-64 "$sums"; }
done
exit 0
"""
"""What garbage collection decides upon: the device's clock (s), links, files with size, age and links, and which
files of the store each bundle and each program holds."""

KEEP = """\
cd "$1/runs" && mv "$2" "kept-$2" && ln -s "../../$3" "kept-$2/program"
"""
"""``$2`` owner, ``$3`` the program's folder, to which a link is left in the run's."""
