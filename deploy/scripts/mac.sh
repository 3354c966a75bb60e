# shellcheck shell=sh
# shellcheck disable=SC2034 # what includes these functions reads their variables
# The functions that a Mac has in place of those of the same names: it has no /proc, and BSD's programs.

# BSD's stat takes other words; the formats are those that the scripts have.
stat() {
  case $2 in
    'size %s %i:%y:%z; %n') set -- "$@" 'size %z %i:%Fm:%Fc; %N';;
    '%u %g %f') set -- "$@" '%u %g %Xp';;
    'file %s %Y %h %n') set -- "$@" 'file %z %m %l %N';;
    'folder 0 %Y 0 %n') set -- "$@" 'folder 0 %m 0 %N';;
    '%s %n') set -- "$@" '%z %N';;
    %s) set -- "$@" %z;;
    *) return 1;;
  esac
  for format in "$@"; do :; done
  shift 2; count=$#
  for each in "$@"; do
    shift; [ "$count" -eq 1 ] || set -- "$@" "$each"; count=$((count - 1))
  done
  command stat -f "$format" "$@"
}

cwd_of() { lsof -a -p "$1" -d cwd -Fn 2>/dev/null | sed -n 's/^n//p'; }

boot_of() { boot=$(sysctl -n kern.bootsessionuuid 2>/dev/null || sysctl -n kern.boottime); }
start_of() {
  start=$(ps -o stat= -o lstart= -p "$1" 2>/dev/null) || return 1
  # shellcheck disable=SC2086 # a field each
  set -- $start
  case ${1-} in '') return 1;; Z*) start=;; *) shift; start=$*;; esac
}

# Mounts are printed as /proc/mounts of Linux has them; deploy/devices/probe.py reads what sysctl prints.
hardware() {
  section mounts; mount | sed -n 's/, /,/g; s/^\(.*\) on \(\/.*\) (\(.*\))$/\1 \2 - \3/p'
  section board; sysctl -n hw.model 2>/dev/null
  section darwin; sysctl machdep.cpu.brand_string hw.memsize 2>/dev/null
  section memory; load_now
  section cores; getconf _NPROCESSORS_ONLN 2>/dev/null
}

# Memory: pages that are free, or whose content need not be written first.
load_now() {
  load=$(sysctl -n vm.loadavg 2>/dev/null) && load=${load#* } && echo "load ${load%% *}"
  vm_stat 2>/dev/null | awk '
    /page size of/ { for (n = 1; n <= NF; n++) if ($n ~ /^[0-9]+$/) size = $n }
    /^Pages (free|inactive|speculative):/ { pages += $NF }
    END { printf "MemAvailable: %.0f kB\n", pages * size / 1024 }'
}

living() { stat=$(ps -o stat= -p "$1" 2>/dev/null) && case $stat in ''|Z*) false;; esac; }

# A Mac has no setsid: the shell's job control gives the command a group of its own.
start_group() { set -m; "$@" 3<&- & child=$!; group=-$child; set +m; }

# macOS's date knows whole seconds only.
clock() { now=$(date +%s).0; }
