# shellcheck shell=sh
# A Mac has no setsid: the shell's job control gives the command a group of its own.
# shellcheck disable=SC2034 # the script that includes this reads it

set -m; "$@" 3<&- & child=$!; group=-$child; set +m
