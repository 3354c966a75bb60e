# shellcheck shell=sh
# What stat -c says is what coreutils, BusyBox and toybox say; stat.mac.sh has macOS's.
