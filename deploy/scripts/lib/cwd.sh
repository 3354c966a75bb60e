# shellcheck shell=sh
# Prints the working folder of a process; nothing without it.

cwd_of() { readlink "/proc/$1/cwd" 2>/dev/null; }
