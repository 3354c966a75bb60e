# shellcheck shell=sh
# $2 target and engine. Prints none, damaged and what, or now DIGEST DIGEST-BEFORE.

. ./lib/point.sh

cd "$1" 2>/dev/null || { echo none; exit 0; }
now=$(readlink "current/$2") before=$(readlink "previous/$2")
[ -n "$before" ] && [ "$before" != "$now" ] || { echo none; exit 0; }
sums=
if command -v sha256sum >/dev/null 2>&1; then sums=sha256sum; elif command -v shasum >/dev/null 2>&1; then
  sums='shasum -a 256'
fi
# shellcheck disable=SC2086 # a program and its option
if [ -n "$sums" ] && ! said=$(cd "previous/$2/." && $sums -c SHA256SUMS 2>&1); then
  echo damaged; echo "$said" | grep -v ': OK$'
  exit 0
fi
point "current/$2" "$before" || exit 1
[ -z "$now" ] || point "previous/$2" "$now" || exit 1
echo "now ${before##*/} ${now##*/}"
