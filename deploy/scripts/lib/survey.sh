# shellcheck shell=sh
# Arguments: paths; one that ends with a slash stands for all in that folder. Prints the look of each that exists,
# what is unfinished or may be left over, and the bundle of each current link.

. ./lib/look.sh

survey() {
  for name in "$@"; do
    shift
    case $name in */) set -- "$@" "$name"*;; *) set -- "$@" "$name";; esac
  done
  [ $# -eq 0 ] || look "$@" 2>/dev/null
  for left in incoming/*.part runs/* runs/.*.part bundles/.*.part programs/.*.part weights/*.tmp; do
    [ ! -e "$left" ] || echo "leftover $left"
  done
  for link in current/*; do
    [ -L "$link" ] || continue
    there=
    for bundle in bundles/*; do [ ! "$link" -ef "$bundle" ] || { there=../$bundle; break; }; done
    echo "$link ${there:-$(readlink "$link")}"
  done
  [ ! -e governor ] || echo "pinned governor"
}
