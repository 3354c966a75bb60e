# shellcheck shell=sh
# Programs under the supervisor.

# Whether a process lives: one that has ended and waits for its parent does not.
living() { { read -r stat <"/proc/$1/stat"; } 2>/dev/null && case ${stat##*) } in [ZX]*) false;; esac; }

# Start the command in a process group of its own; group is what to kill.
start_group() {
  if command -v setsid >/dev/null 2>&1; then setsid "$@" 3<&- & child=$!; group=-$child
  else "$@" 3<&- & child=$!; group=$child; fi
}

# The timer's `sleep` is known by `$!`, without a name of its own: a TERM between the two would orphan it. It is
# ended by KILL: a TERM that reaches it between fork and exec goes to the shell's own handler there and is lost.
# Their output is closed: an orphan holding it would keep the channel open after the command's end. The lifeline ends
# the timer too, should the supervisor itself be killed: it must not outlive the group whose number it knows.
# For the same reason both helpers' own TERM is lost in mksh when the command ends before they got going: it is sent
# until they are gone, ever more rarely, for a fork begins anew with each signal. (By KILL bash would report their death
# on the command's own stream.)
# For its first second, before the lifeline is sure to be there, the timer looks after the supervisor itself.
# The connection may break before setsid has run: the command is in this shell's group then, and has no other. So it is
# also ended by its own number. Should it have begun its group between the two signals, the group has KILL to come.
# SIGPIPE is ignored once the command is started: dash says "Killed" on a stream that the broken connection has closed.
command_supervise() {
  pidfile=$1 limit=$2 pauses=$3 cwd=$4; shift 4
  [ -d "$cwd" ] || mkdir "$cwd" || exit 126
  cd "$cwd" || exit 126
  exec 3<&0 </dev/null
  start_group "$@"
  trap '' PIPE
  [ -z "$pidfile" ] || echo "$child" >"$pidfile"
  end() {
    kill -TERM "$group"; kill -TERM "$child"
    for pause in $pauses; do
      kill -0 "$group" || kill -0 "$child" || return
      sleep "$pause" || sleep 1
    done
    kill -KILL "$group"; kill -KILL "$child"
  }
  (
    before=$!
    trap '[ "$!" = "$before" ] || kill -KILL $!; exit 0' TERM
    sleep 1 & wait $!
    if living $$; then sleep "$limit" & wait $!; fi
    end
  ) >/dev/null 2>&1 3<&- & timer=$!
  ( read -r _ <&3; kill "$timer"; end ) >/dev/null 2>&1 & lifeline=$!
  wait "$child"; code=$?
  kill "$timer" "$lifeline" 2>/dev/null
  for each in "$timer" "$lifeline"; do
    looks=0 again=32
    while living "$each"; do
      looks=$((looks + 1))
      [ "$looks" -lt "$again" ] || { kill "$each" 2>/dev/null || break; again=$((again * 2)); }
    done
  done
  if kill -0 "$group" 2>/dev/null; then end >/dev/null 2>&1; fi
  exit "$code"
}

# The device's own clock (s).
clock() { now=; { read -r now rest </proc/uptime; } 2>/dev/null; }

# What a run left: the files that are small, and the device's own clock.
take() {
  left=$1 chosen='' found=''
  for f in result.json output*.npy; do
    case $f in *[!a-z0-9.]*) ;; *) [ ! -e "$f" ] || found="$found $f";; esac
  done
  # shellcheck disable=SC2046,SC2086 # names without spaces
  [ -z "$found" ] || set -- $(stat -c '%s %n' $found)
  while [ $# -ge 2 ]; do
    if [ "$1" -le "$left" ]; then left=$((left - $1)); chosen="$chosen $2"; echo "$1 $2"; fi
    shift 2
  done
  echo @@data
  # shellcheck disable=SC2086 # names without spaces
  [ -z "$chosen" ] || cat $chosen
}

# Runs a program between two looks at the device, all in one round trip. $1 is where sysfs is, $2 a mask of cores (hex),
# $3 a word that nobody else prints, $4 bytes of files that may come back at once, $5 the folder that is in use, for
# garbage collection; then come the program's words.
#
# Prints the device's state before and after, what could be set, when the program began and ended by the device's own
# uptime (s), and of result.json and the outputs those that are small: "SIZE NAME" each, "@@data", the bytes.
command_run() {
  # shellcheck disable=SC2034  # sys is for state, of probe.sh
  sys=$1 mask=$2 marker=$3 most=$4 used=$5; shift 5
  [ -z "$used" ] || touch -c "$used" 2>/dev/null &
  state before
  if [ -n "$mask" ]; then
    if command -v taskset >/dev/null 2>&1; then echo "note affinity set"; else echo "note affinity not set"; mask=; fi
  fi
  clock; begun=$now
  case $mask in '') "$@"; code=$?;; *) taskset "$mask" "$@"; code=$?;; esac
  clock
  state after
  echo "ran $begun $now"
  echo "@@files $marker"
  take "$most"
  wait
  exit "$code"
}
