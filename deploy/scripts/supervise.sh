# shellcheck shell=sh
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

. ./lib/living.sh

pidfile=$1 limit=$2 pauses=$3 cwd=$4; shift 4
[ -d "$cwd" ] || mkdir "$cwd" || exit 126
cd "$cwd" || exit 126
exec 3<&0 </dev/null
. ./lib/group.sh
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
