# shellcheck shell=sh
# Prints a file's size, and what changes whenever its bytes do: inode, and the times of its last change to bytes and
# to itself, to the nanosecond where the file system has them. coreutils, BusyBox and toybox print the same.

. ./lib/stat.sh

look() {
  TZ=UTC0 stat -c 'size %s %i:%y:%z; %n' "$@"
}
