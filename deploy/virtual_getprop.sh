#!/bin/sh
# getprop of the virtual phones: what the table gave, in the words of Android's own.
show() { while IFS='=' read -r key value; do "$1" "$2" "$3"; done </system/build.prop; }
one() { [ "$key" != "$1" ] || { found=$value; return 0; }; }
all() { printf '[%s]: [%s]\n' "$key" "$value"; }
if [ $# -eq 0 ]; then show all; exit 0; fi
found=$2
show one "$1"
printf '%s\n' "$found"
