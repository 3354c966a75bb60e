#!/bin/sh
# Starts the program beside this script that has the script's name and .real (pte_runner.real), with the device's C
# library where that is new enough for the bundle's libraries, else through the loader and with the C library that the
# bundle brings. glibc_probe tells: it starts on no device whose C library is too old. SLIPWAY_GLIBC=device or =bundle
# decides instead of it.
self=$0
if [ -h "$self" ]; then self=$(readlink -f -- "$self") || self=$0; fi
case $self in
    */*) bin=${self%/*} ;;
    *) bin=. ;;
esac
program=$bin/${self##*/}.real
lib=$bin/../lib

case ${SLIPWAY_GLIBC:-} in
    device) own=yes ;;
    bundle) own='' ;;
    *) if { "$lib/glibc/glibc_probe"; } >/dev/null 2>&1; then own=yes; else own=''; fi ;;
esac
if [ -n "$own" ]; then
    # The libraries need each other, and the path that the program carries is for its own needs only.
    LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
    exec "$program" "$@"
fi
for loader in "$lib"/glibc/ld-linux*; do
    # shellcheck disable=SC2093 # there is one loader
    exec "$loader" --inhibit-cache --library-path "$lib/glibc:$lib" --argv0 "$self" "$program" "$@"
done
