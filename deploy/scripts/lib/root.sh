# shellcheck shell=sh
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

. ./lib/stat.sh

nl='
'
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
  for look in $looks; do
    u=${look%% *} m=${look##* } g=${look#* } g=${g%% *} path=$whole/$1
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
