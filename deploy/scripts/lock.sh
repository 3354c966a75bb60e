# shellcheck shell=sh
# $2 owner, $3 who that is in words, $4 a generation and beat that are known to be stale, $5 yes to
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

. ./lib/start.sh
. ./lib/survey.sh
. ./lib/discard.sh
. ./lib/root.sh

root=$1 owner=$2 who=$3 stale=$4 make=$5 new=$6; shift 6
claim "$root" "$new" "$make"
there=yes
for each in lock incoming store bundles programs runs current previous weights; do [ -d "$each" ] || there=no; done
if [ "$there" = no ] && ! said=$(mkdir -p lock incoming store bundles programs runs current previous weights 2>&1); then
  [ "$make" = yes ] || { echo absent; exit 0; }
  echo "$said" >&2; exit 1
fi
# shellcheck disable=SC2154 # lib/start.sh sets boot, node and machine
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
