# shellcheck shell=sh
# What garbage collection decides upon: the device's clock (s), links, files with size, age and links, and which
# files of the store each bundle and each program holds.

. ./lib/stat.sh

cd "$1" 2>/dev/null || exit 0
echo "now $(date +%s)"
for link in current/* previous/*; do
  [ ! -L "$link" ] || echo "link $link $(readlink "$link")"
done
stat -c 'file %s %Y %h %n' store/* incoming/* weights/* 2>/dev/null
stat -c 'folder 0 %Y 0 %n' runs/* bundles/* programs/* 2>/dev/null
for sums in bundles/*/SHA256SUMS programs/*/SHA256SUMS; do
  [ ! -f "$sums" ] || { echo "of ${sums%/*}"; cut -c 1-64 "$sums"; }
done
exit 0
