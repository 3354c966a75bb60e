# shellcheck shell=sh
# $1 the root, then paths for discard (lib/discard.sh).

. ./lib/discard.sh

cd "$1" 2>/dev/null || exit 0
shift
discard "$@"
exit 0
