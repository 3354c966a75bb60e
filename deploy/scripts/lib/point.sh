# shellcheck shell=sh
# Make the link $1 point to $2 by a rename. Where mv has no -T there is a moment without the link,
# which the next deploy mends.

point() {
  rm -f "$1.part"
  ln -s "$2" "$1.part" || return 1
  mv -fT "$1.part" "$1" 2>/dev/null || { rm -f "$1" && mv -f "$1.part" "$1"; }
}
