# shellcheck shell=sh
# Whose the root is, and the lock of the device.

# The machine's name and boot, and start_of: sets start to when a process was started, empty for one that has ended.
whereabouts() {
  boot='' machine='' node=''
  { read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
  { read -r machine </etc/machine-id; } 2>/dev/null
  { read -r node </proc/sys/kernel/hostname; } 2>/dev/null || node=$(uname -n)
}
start_of() {
  start=
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  # shellcheck disable=SC2086 # a field each
  set -- ${line##*) }
  [ "$1" = Z ] || start=${20}
}

# claim ROOT ID MAKE makes the root the working folder when it is ours, or prints absent, or refused WHY
# and a path, and exits. With yes for MAKE it makes what is not there, and marks what is empty with ID. Leaves the
# mark's own in id.
#
# In guard paths that begin with a slash are on the way to the root, as it is named and as it really lies; the rest
# is the root and what is in it. 18 are the bits by which group and others may write, 512 is the sticky bit; a group
# with the number of its owner is taken to be the owner's own, as Android's shell is.
#
# A marker that is empty is one that a power cut or a full disk caught; of the latter dash's own echo says "I/O error",
# the program's says what it is. Two sessions that make a root at the same time both go on.
refused() { echo "refused $1"; echo "$2"; exit 0; }
above() {
  at='' rest=$1
  case $1/ in /data/local/tmp/*) [ ! -d /system/bin ] || { at=/data/local rest=${1#/data/local}; };; esac
  [ -n "$at" ] || names=$names$nl/
  while [ -n "$rest" ]; do
    case ${rest%%/*} in ''|.) ;; *) at=$at/${rest%%/*} names=$names$nl$at;; esac
    case $rest in */*) rest=${rest#*/};; *) rest=;; esac
  done
}
guard() {
  names=$2 top='' whole=$1
  case $PWD in *"$nl"*) refused name "$1";; esac
  above "$1"
  [ "$PWD" = "$1" ] || above "$PWD"
  set -f; IFS=$nl
  # shellcheck disable=SC2086 # a name a line
  looks=$(stat -c '%u %g %f' $names 2>/dev/null) || refused unseen "$1"
  # shellcheck disable=SC2086 # a name a line
  set -- $names
  for seen in $looks; do
    u=${seen%% *} m=${seen##* } g=${seen#* } g=${g%% *} path=$whole/$1
    case $1 in
      /) top=$u path=/;;
      .) [ -O . ] || refused owner "$whole"; me=$u path=$whole;;
      /*) path=$1;;
    esac
    case $1:$m in /*:a*|*:4*|.slipway-root:8*) ;; *:a*) refused link "$path";; *) refused kind "$path";; esac
    case $1:$u in *:"$me"|/*:0|/*:"$top") ;; *) refused owner "$path";; esac
    case $((0x$m & 18)):$u:$g:$1:$((0x$m & 512)) in
      0:*|16:"$me:$me":*|*:/*:512) ;;
      *) case $m in a*) ;; *) refused open "$path";; esac;;
    esac
    shift
  done
  set +f; unset IFS
}
claim() {
  nl='
'
  case $1 in /*) ;; *) refused home '';; esac
  [ ! -h "$1" ] || refused link "$1"
  umask 077
  if [ "$3" = yes ] && [ ! -d "$1" ]; then
    near=$1
    while [ ! -d "$near" ]; do near=${near%/*}; near=${near:-/}; done
    me=$(id -u)
    cd -P "$near" && guard "$near" '' && mkdir -p "$1" || exit 1
  fi
  cd -P "$1" 2>/dev/null || { echo absent; exit 0; }
  inside=.
  for each in .slipway-root lock incoming store bundles programs runs current previous weights; do
    [ ! -e "$each" ] && [ ! -h "$each" ] || inside=$inside$nl$each
  done
  guard "$1" "$inside"
  if [ ! -e .slipway-root ]; then
    for each in * .[!.]* ..?*; do
      [ ! -e "$each" ] && [ ! -h "$each" ] || [ -e .slipway-root ] || refused unmarked "$1/$each"
    done
    [ "$3" = yes ] || { echo absent; exit 0; }
    set -C
    { echo "slipway-root 1 $2" >.slipway-root; } 2>/dev/null || [ -e .slipway-root ] ||
      env echo "slipway-root 1 $2" >.slipway-root || exit 1
    set +C
  fi
  kind='' version='' id=''
  { read -r kind version id <.slipway-root; } 2>/dev/null
  # shellcheck disable=SC2034 # the script that includes this reads id
  case "$kind $version" in
    'slipway-root 1') ;;
    ' ') id=$2; env echo "slipway-root 1 $2" >.slipway-root || exit 1;;
    *) refused marker "$1/.slipway-root";;
  esac
}

# $1 root, $2 owner, $3 who that is in words, $4 a generation and beat that are known to be stale, $5 yes to
# make the root, $6 an id for it then, $7… paths for the survey. Prints absent, refused WHY and a path,
# busy GENERATION:BEAT and who, or acquired GENERATION ID, the survey and ready; then it stays, as the holder.
#
# The lock is the folder with the highest number below lock; it is free when it holds released. Taking it is
# making the next number, which the file system grants to one alone; a number is never used again while a higher one
# is there, and the highest is never removed, so that a slow contender cannot undo another's. Old numbers go with
# the holder's beats, or when it gives the lock back.
#
# A process's number is told from an equal one of another pid namespace by when that namespace's first process was
# started; where that is hidden, by the namespace's own name.
#
# The node's name has no blank at its end: read, by which it comes back, takes that away.
#
# A full disk is told by a program's echo: dash's own calls it an I/O error.
#
# The holder is a process on the device: when that process is gone, or the device was restarted, the lock is free at
# once. It beats by order of the other side, a line each, into a file that is overwritten in place (a full disk stops
# no beat), and gives the lock back when its input ends, which is what a broken connection does by itself.
lock() {
  root=$1 owner=$2 who=$3 stale=$4 make=$5 new=$6; shift 6
  claim "$root" "$new" "$make"
  there=yes
  for each in lock incoming store bundles programs runs current previous weights; do [ -d "$each" ] || there=no; done
  if [ "$there" = no ] && ! said=$(mkdir -p lock incoming store bundles programs runs current previous weights 2>&1); then
    [ "$make" = yes ] || { echo absent; exit 0; }
    echo "$said" >&2; exit 1
  fi
  node=$node${machine:+ $machine}
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
    forgotten
    # shellcheck disable=SC2086 # names without spaces
    discard $old
  done
  forgotten
  # shellcheck disable=SC2086 # names without spaces
  discard "runs/$owner" $old
  latest
  [ "$last" = "$mine" ] || exit 0
  while read -r each; do echo "$each"; done <"lock/$mine/holder" 2>/dev/null >"lock/$mine/released" ||
    mv -f "lock/$mine/holder" "lock/$mine/released"
  exit 0
}

command_lock() {
  lock "$@"
}

# The probe and the lock in one command: six words of probe's, then the lock's without the root.
command_open() {
  probe "$@" </dev/null
  shift 6
  lock "$root" "$@"
}
