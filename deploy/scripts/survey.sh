# shellcheck shell=sh
# $1 the root, then paths for survey (lib/survey.sh). Prints what it prints, and the whole size in KiB.

. ./lib/survey.sh

cd "$1" 2>/dev/null || exit 0
shift
survey "$@"
echo "usage $(du -sk . 2>/dev/null)"
exit 0
