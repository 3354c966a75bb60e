# shellcheck shell=sh
# The arguments of probe (lib/probe.sh).

. ./lib/probe.sh

probe "$@"
exit 0
