# shellcheck shell=sh
# Whether a process lives: one that has ended and waits for its parent does not.

living() { { read -r stat <"/proc/$1/stat"; } 2>/dev/null && case ${stat##*) } in [ZX]*) false;; esac; }
