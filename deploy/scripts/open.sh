# shellcheck shell=sh
# The probe and the lock in one command: six words of probe's, then the lock's without the root.

. ./lib/probe.sh

probe "$@" </dev/null
shift 6
set -- "$root" "$@"

. ./lock.sh
