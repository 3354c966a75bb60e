# shellcheck shell=sh
# The same without /proc.
# shellcheck disable=SC2034 # the script that includes this reads them

machine='' node=$(uname -n)
boot=$(sysctl -n kern.bootsessionuuid 2>/dev/null || sysctl -n kern.boottime)
start_of() {
  start=$(ps -o stat= -o lstart= -p "$1" 2>/dev/null) || return 1
  # shellcheck disable=SC2086 # a field each
  set -- $start
  case ${1-} in '') return 1;; Z*) start=;; *) shift; start=$*;; esac
}
