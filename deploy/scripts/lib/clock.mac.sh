# shellcheck shell=sh
# macOS's date knows whole seconds only.
# shellcheck disable=SC2034 # the script that includes this reads it

clock() { now=$(date +%s).0; }
