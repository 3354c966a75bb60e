# shellcheck shell=sh
# What taking the lock does too; for a store that is used without it. $2 an id for a new root.

. ./lib/root.sh

claim "$1" "$2" yes
mkdir -p incoming store bundles programs runs || exit 1
