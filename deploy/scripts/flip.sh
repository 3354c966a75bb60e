# shellcheck shell=sh
# $2 target and engine, $3 the bundle's digest.

. ./lib/point.sh

cd "$1" && mkdir -p current previous || exit 1
now=$(readlink "current/$2")
[ "$now" != "../bundles/$3" ] || exit 0
touch -c "bundles/$3" "bundles/${now##*/}" 2>/dev/null
[ -z "$now" ] || point "previous/$2" "$now" || exit 1
point "current/$2" "../bundles/$3"
