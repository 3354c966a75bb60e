#!/bin/sh
# getprop of the virtual phones: what the table gave, in the words of Android's own. By echo: mksh has no printf of its
# own, and a program for each property made of a moment most of a second.
show() { while IFS='=' read -r key value; do "$1" "$2" "$3"; done </system/build.prop; }
one() { [ "$key" != "$1" ] || { found=$value; return 0; }; }
all() { echo "[$key]: [$value]"; }
if [ $# -eq 0 ]; then show all; exit 0; fi
found=$2
show one "$1"
echo "$found"
