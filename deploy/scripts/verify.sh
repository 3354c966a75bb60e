# shellcheck shell=sh
# Arguments: paths. Prints the look of each file as it was before its digest was computed, and digest SHA256 PATH;
# unable where the device has nothing to do that with.

. ./lib/look.sh
. ./lib/digest.sh

cd "$1" || exit 1
shift
look "$@" 2>/dev/null
for file in "$@"; do
  [ -f "$file" ] && [ ! -h "$file" ] || continue
  digest "$file" || exit 1
  echo "digest $got $file"
done
