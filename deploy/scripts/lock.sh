# shellcheck shell=sh
# Whose the root is, and the lock of the device.

# Sets boot to what every restart changes; in a container it is the machine's.
boot_of() { boot=; { read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null; }
# Sets start to when a process was started, empty for one that has ended.
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

# $1 root, $2 owner, $3 who that is in words, $4 seconds after which another may take the device, $5 yes to make the
# root, $6 an id for it then, $7… paths for the survey. Prints absent, refused WHY and a path, busy and who, or acquired
# ID, the survey and ready; then it stays, as the holder, until its input ends, which is what a broken connection does by
# itself. What the session has not completed goes with the lock. Unfinished uploads stay for the next session, which goes
# on with them, unless a line says that nobody will.
#
# The lock is the link with the highest number below lock; NUMBER.free beside it says that it was released. Making a link
# is one step, with its text in it: who holds the device. Taking the lock is making the next number, which the file system
# grants to one alone; a number is never used again while a higher one is there, and the highest is never removed, so that
# a slow contender cannot undo another's.
#
# The holder is a process on the device: when that process is gone, or the device was restarted, the lock is free at
# once. A process's number is told from an equal one of another pid namespace by when that namespace's first process was
# started; where that is hidden, by the namespace's own name. Time is the device's own since its start: nobody sets it.
lock() {
  root=$1 owner=$2 who=$3 limit=$4 make=$5 new=$6; shift 6
  claim "$root" "$new" "$make"
  there=yes
  for each in lock incoming store bundles programs runs current previous weights; do [ -d "$each" ] || there=no; done
  if [ "$there" = no ] && ! said=$(mkdir -p lock incoming store bundles programs runs current previous weights 2>&1); then
    [ "$make" = yes ] || { echo absent; exit 0; }
    echo "$said" >&2; exit 1
  fi
  boot_of; clock; now=${now%.*}
  start_of 1
  space=${start:-$(readlink /proc/self/ns/pid 2>/dev/null)}
  latest() {
    last=0
    for each in lock/*; do
      case ${each#lock/} in ''|*[!0-9]*) continue;; esac
      [ "${each#lock/}" -le "$last" ] || last=${each#lock/}
    done
  }
  { read -r here </etc/machine-id || here=; read -r name </proc/sys/kernel/hostname || name=$(uname -n); } 2>/dev/null
  here="$name $here"
  # Whether a session has the device: its machine, boot, namespace, process and that one's start, until when, and who.
  held() {
    [ ! -e "lock/$last.free" ] && holder=$(readlink "lock/$last") || return 1
    IFS='|'; set -f
    # shellcheck disable=SC2086 # a field each
    set -- $holder
    set +f; unset IFS
    [ $# -ge 7 ] || return 1
    node=$1; shift
    holder=$6
    if [ "$1" != "$boot" ]; then  # restarted; or another board, if they share the root over a network
      [ "$node" != "$here" ] && [ -n "$(find "lock/$last.until" -mmin -2 2>/dev/null)" ]
      return
    fi
    if [ "$2" = "$space" ]; then start_of "$3" && [ "$start" = "$4" ] || return 1; fi
    { read -r until <"lock/$last.until" && [ "$((until - 1000000000))" -ge "${now:-0}" ]; } 2>/dev/null && return 0
    [ "$5" -lt "${now:-0}" ] || return 0
    [ "$2" != "$space" ] || kill -KILL "$3" 2>/dev/null
    return 1
  }
  # Whoever was faster may have gone again: then nobody is named.
  busy() { latest; held || holder=; echo busy; echo "$holder"; exit 0; }
  latest
  ! held || busy
  mine=$((last + 1))
  start_of $$
  if ! said=$(ln -s "$here|$boot|$space|$$|$start|$((${now:-0} + limit))|$who" "lock/$mine" 2>&1); then
    [ ! -h "lock/$mine" ] || busy
    echo "$said" >&2; exit 1
  fi
  latest
  [ "$last" = "$mine" ] || { rm -f "lock/$mine"; busy; }
  # The number's length stays the same, so that a full disk stops no beat. A program's echo tells of one: dash's own calls
  # it an I/O error.
  beat() { clock; now=${now%.*}; echo "$((1000000000 + ${now:-0} + limit))" 1<>"lock/$mine.until"; }
  beat || { env echo "$limit" >"lock/$mine.until"; rm -f "lock/$mine" "lock/$mine.until"; exit 1; }
  echo "acquired $id"
  survey "$@"
  echo ready
  tidy=
  while read -r line; do
    latest
    [ "$last" = "$mine" ] || { echo lost; exit 1; }
    [ "$line" != beat ] || { beat; continue; }
    tidy=$line
  done
  set -- "runs/$owner" bundles/.*."$owner".part programs/.*."$owner".part
  [ -z "$tidy" ] || set -- "$@" incoming/*."$owner".part
  for each in lock/*; do
    case ${each#lock/} in ''|*[!0-9]*) ;; *) [ "${each#lock/}" -ge "$mine" ] || set -- "$@" "$each" "$each.free" "$each.until";; esac
  done
  discard "$@"
  : >"lock/$mine.free"
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
