# shellcheck shell=sh
# The same without /proc.

living() { stat=$(ps -o stat= -p "$1" 2>/dev/null) && case $stat in ''|Z*) false;; esac; }
