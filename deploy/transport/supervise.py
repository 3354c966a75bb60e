"""The shell script under which every command runs on a device.

It gives the command a session (hence process group) of its own and ends that whole group when

- its standard input closes, which is how this side says "enough", and what happens by itself when the
  connection breaks or this side dies;
- more seconds pass than were granted, should the connection hang half-open.

It exits only when no process of the group is left, so an exit status seen is an end seen.
Plain POSIX sh plus ``sleep`` and, where there, ``setsid``: dash, busybox, mksh and bash all run it.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence

GRACE = 3
"""Seconds between TERM and KILL."""
_PAUSES = "0.1 0.1 0.2 0.3 0.5 0.8 1"
"""Between looks at whether the group is gone, `GRACE` in all. Few and growing: on a slow device each look starts a
program that takes longer than the pause itself."""

# The timer's `sleep` is known by `$!`, without a name of its own: a TERM between the two would orphan it. It is
# ended by KILL: a TERM that reaches it between fork and exec goes to the shell's own handler there and is lost.
# Their output is closed: an orphan holding it would keep the channel open after the command's end. The lifeline ends
# the timer too, should the supervisor itself be killed: it must not outlive the group whose number it knows.
# For the same reason both helpers' own TERM is lost in mksh when the command ends before they got going: it is sent
# until they are gone, ever more rarely, for a fork begins anew with each signal. (By KILL bash would report their death
# on the command's own stream.)
# For its first second, before the lifeline is sure to be there, the timer looks after the supervisor itself.
# SIGPIPE is ignored once the command is started: dash says "Killed" on a stream that the broken connection has closed.
SCRIPT = """\
pidfile=$1 limit=$2 pauses=$3 cwd=$4; shift 4
[ -d "$cwd" ] || mkdir "$cwd" || exit 126
cd "$cwd" || exit 126
exec 3<&0 </dev/null
if command -v setsid >/dev/null 2>&1; then setsid "$@" 3<&- & child=$!; group=-$child
else "$@" 3<&- & child=$!; group=$child; fi
trap '' PIPE
[ -z "$pidfile" ] || echo "$child" >"$pidfile"
end() {
  kill -TERM "$group"
  for pause in $pauses; do
    kill -0 "$group" || break
    sleep "$pause" || sleep 1
  done
  kill -KILL "$group"
}
living() { { read -r stat <"/proc/$1/stat"; } 2>/dev/null && case ${stat##*) } in [ZX]*) false;; esac; }
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
"""

# For the case that the supervisor itself does not answer: $1 is the file with the group's number.
# Killed processes count as living until their parent has looked at them, hence the second wait.
END_SCRIPT = """\
child=$(cat "$1" 2>/dev/null) || exit 0
case $child in ''|*[!0-9]*) exit 0;; esac
living() { kill -0 "-$child" 2>/dev/null || kill -0 "$child" 2>/dev/null; }
wait_for_end() {
  for pause in "$@"; do living || break; sleep "$pause" || sleep 1; done
}
kill -TERM "-$child" 2>/dev/null || kill -TERM "$child" 2>/dev/null
wait_for_end 0.1 0.1 0.2 0.3 0.5 0.8
kill -KILL "-$child" 2>/dev/null || kill -KILL "$child" 2>/dev/null
wait_for_end 0.1 0.1 0.2 0.3 0.5 0.8 1 1 1 1
! living
"""

_LONGEST = 24 * 3600
_EXTRA = 5.0
"""Seconds the device's own timer waits longer than this side: this side's end has the better message."""


def supervised(
    argv: Sequence[str], *, seconds: float, cwd: str = "", env: Mapping[str, str] | None = None, pidfile: str = ""
) -> list[str]:
    """``argv`` under the supervisor, as an argv for a device's own execve.

    Args:
        seconds: the device ends the command itself after these (and a little).
        cwd: folder to run in, made when only it is not there; the login folder when empty.
        env: set on top of the device's own environment.
        pidfile: file on the device that gets the group's number.
    """
    words = [f"{name}={value}" for name, value in (env or {}).items()]
    prefix = ["env", *words] if words else []
    limit = math.ceil(min(seconds + _EXTRA, _LONGEST))
    return ["sh", "-c", SCRIPT, "slipway", pidfile, str(limit), _PAUSES, cwd or ".", *prefix, *argv]


def quoted(argv: Sequence[str]) -> str:
    """``argv`` as one line for a remote login shell."""
    return shlex.join(argv)
