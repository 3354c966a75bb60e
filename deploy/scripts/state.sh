# shellcheck shell=sh
# Prints the device's state. $1 is where sysfs is.
. ./lib/state.sh

sys=$1
state now
exit 0
