# shellcheck shell=sh
# The store's files: what is there, uploads, bundles and programs, the links to them, and what goes. $1 of each
# command is the store's root.

# Prints a file's size, and what changes whenever its bytes do: inode, and the times of its last change to bytes and
# to itself, to the nanosecond where the file system has them. coreutils, BusyBox and toybox print the same.
look() { TZ=UTC0 stat -c 'size %s %i:%y:%z; %n' "$@"; }

# Sets got to the SHA-256 of a file by whatever the device has (Android 7 has nothing), else to unable.
digest() {
  if command -v sha256sum >/dev/null 2>&1; then got=$(sha256sum <"$1") || return 1
  elif command -v openssl >/dev/null 2>&1; then got=$(openssl dgst -sha256 <"$1") || return 1
  elif command -v shasum >/dev/null 2>&1; then got=$(shasum -a 256 <"$1") || return 1
  elif toybox sha256sum </dev/null >/dev/null 2>&1; then got=$(toybox sha256sum <"$1") || return 1
  elif busybox sha256sum </dev/null >/dev/null 2>&1; then got=$(busybox sha256sum <"$1") || return 1
  else got=unable; fi
  case $got in *'= '*) got=${got##*= };; *) got=${got%% *};; esac
}

# Make the link $1 point to $2 by a rename. Where mv has no -T there is a moment without the link,
# which the next deploy mends.
point() {
  rm -f "$1.part"
  ln -s "$2" "$1.part" || return 1
  mv -fT "$1.part" "$1" 2>/dev/null || { rm -f "$1" && mv -f "$1.part" "$1"; }
}

# Prints the working folder of a process; nothing without it.
cwd_of() { readlink "/proc/$1/cwd" 2>/dev/null; }

# Arguments: paths below incoming, runs, bundles, programs, store, weights or lock. A run whose process group still lives loses
# it first; that it is the run's is told by its working folder, since after a restart the number may be anybody's.
discard() {
  for name in "$@"; do
    shift
    case $name in
      incoming/?*|runs/?*|bundles/?*|programs/?*|store/?*|weights/?*|lock/?*) ;; *) continue;;
    esac
    case $name in *..*) continue;; esac
    case ${name#store/} in "$name") ;; *[!0-9a-f]*) continue;; esac
    case ${name#lock/} in "$name") ;; *[!0-9]*) continue;; esac
    child=
    { read -r child <"$name/.pid"; } 2>/dev/null
    case $child in
      ''|*[!0-9]*) ;;
      *) [ "$(cwd_of "$child")" != "$(pwd -P)/$name" ] || kill -KILL "-$child" 2>/dev/null;;
    esac
    set -- "$@" "$name"
  done
  [ $# -eq 0 ] || rm -rf "$@"
}

# Arguments: paths; one that ends with a slash stands for all in that folder. Prints the look of each that exists,
# what is unfinished or may be left over, and the bundle of each current link.
survey() {
  for name in "$@"; do
    shift
    case $name in */) set -- "$@" "$name"*;; *) set -- "$@" "$name";; esac
  done
  [ $# -eq 0 ] || look "$@" 2>/dev/null
  for left in incoming/*.part runs/* runs/.*.part bundles/.*.part programs/.*.part weights/*.tmp; do
    [ ! -e "$left" ] || echo "leftover $left"
  done
  for link in current/*; do
    [ -L "$link" ] || continue
    there=
    for bundle in bundles/*; do [ ! "$link" -ef "$bundle" ] || { there=../$bundle; break; }; done
    echo "$link ${there:-$(readlink "$link")}"
  done
}

# Paths for `survey`. Prints what it prints, and the whole size in KiB.
command_survey() {
  cd "$1" 2>/dev/null || exit 0
  shift
  survey "$@"
  echo "usage $(du -sk . 2>/dev/null)"
  exit 0
}

# Paths for `discard`.
command_discard() {
  cd "$1" 2>/dev/null || exit 0
  shift
  discard "$@"
  exit 0
}

# $2 owner, then pairs of SHA-256 and size. Makes the longest part of each file this owner's own, and prints
# SHA256 BYTES SHA256-OF-THESE-BYTES where there is one.
command_resume() {
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
}

# $2 owner, $3 yes when the files' digests are known (they were read back), then pairs of SHA-256 and
# mode. Prints SHA256 SHA256-FOUND for each, or SHA256 unable: that file waits then.
command_commit() {
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
}

# Arguments: paths. Prints the look of each file as it was before its digest was computed, and digest SHA256 PATH;
# unable where the device has nothing to do that with.
command_verify() {
  cd "$1" || exit 1
  shift
  look "$@" 2>/dev/null
  for file in "$@"; do
    [ -f "$file" ] && [ ! -h "$file" ] || continue
    digest "$file" || exit 1
    echo "digest $got $file"
  done
}

# $2 folder, $3 its temporary name, $4 and $5 whether these are the first and the last of its files,
# then triples of SHA-256, path in the folder and mode. Leaves a manifest as sha256sum -c reads it. After the last it
# prints the look of each file that is the store's own, not a copy of it.
#
# Hard links, not symbolic ones: the loader resolves $ORIGIN through a symbolic link to the store, where no
# lib folder is.
command_arrange() {
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
  if [ "$first" = yes ]; then
    mkdir -p "${final%/*}" && rm -rf "$part" && mkdir "$part" || exit 1
  fi
  link_all "$@" || { rm -rf "$part"; exit 1; }
  [ "$last" = yes ] || exit 0
  rm -rf "$final" && mv "$part" "$final" || exit 1
  set --
  while IFS= read -r line; do
    name=$final/${line#*  }
    [ ! "$name" -ef "store/${line%% *}" ] || set -- "$@" "$name"
  done <"$final/SHA256SUMS"
  [ $# -eq 0 ] || look "$@"
}

# $2 target and engine, $3 the bundle's digest.
command_flip() {
  cd "$1" && mkdir -p current previous || exit 1
  now=$(readlink "current/$2")
  [ "$now" != "../bundles/$3" ] || exit 0
  touch -c "bundles/$3" "bundles/${now##*/}" 2>/dev/null
  [ -z "$now" ] || point "previous/$2" "$now" || exit 1
  point "current/$2" "../bundles/$3"
}

# What garbage collection and verification decide upon: the device's clock (s), links, files with size, age and links,
# and of SHA256 PATH for each file of a bundle or a program.
command_listing() {
  cd "$1" 2>/dev/null || exit 0
  echo "now $(date +%s)"
  for link in current/* previous/*; do
    [ ! -L "$link" ] || echo "link $link $(readlink "$link")"
  done
  stat -c 'file %s %Y %h %n' store/* incoming/* weights/* 2>/dev/null
  stat -c 'folder 0 %Y 0 %n' runs/* bundles/* programs/* 2>/dev/null
  for sums in bundles/*/SHA256SUMS programs/*/SHA256SUMS; do
    [ -f "$sums" ] || continue
    while IFS= read -r line; do echo "of ${line%% *} ${sums%/*}/${line#*  }"; done <"$sums"
  done
  exit 0
}
