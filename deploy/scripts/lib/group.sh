# shellcheck shell=sh
# Start the command in a process group of its own; group is what to kill.
# shellcheck disable=SC2034 # the script that includes this reads it

if command -v setsid >/dev/null 2>&1; then setsid "$@" 3<&- & child=$!; group=-$child
else "$@" 3<&- & child=$!; group=$child; fi
