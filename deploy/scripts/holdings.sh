# shellcheck shell=sh
# Prints of SHA256 PATH for each file that should have that digest.

cd "$1" || exit 1
for file in store/*; do [ ! -f "$file" ] || echo "of ${file#store/} $file"; done
for sums in bundles/*/SHA256SUMS programs/*/SHA256SUMS; do
  [ -f "$sums" ] || continue
  while IFS= read -r line; do echo "of ${line%% *} ${sums%/*}/${line#*  }"; done <"$sums"
done
exit 0
