# shellcheck shell=sh
# For the case that the supervisor itself does not answer: $1 is the file with the group's number.
# Killed processes count as living until their parent has looked at them, hence the second wait.

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
