# shellcheck shell=sh
# What the device is, and how it is doing.

# Mounts, processor, board and memory.
hardware() {
  section mounts; lines_of /proc/mounts
  section cpuinfo; lines_of /proc/cpuinfo first
  section board; unended /proc/device-tree/model || unended /sys/class/dmi/id/product_name
  section online; first_line /sys/devices/system/cpu/online ||
    { section cores; getconf _NPROCESSORS_ONLN 2>/dev/null || nproc 2>/dev/null || grep -c ^processor /proc/cpuinfo; }
  section memory
  # shellcheck disable=SC2034 # three lines
  for f in 1 2 3; do read -r line && echo "$line"; done 2>/dev/null </proc/meminfo
}

# The load, and the memory that programs may take.
load_now() {
  { read -r load rest </proc/loadavg; } 2>/dev/null && echo "load $load"
  # shellcheck disable=SC2034 # three lines
  for n in 1 2 3; do
    read -r key rest && case $key in MemAvailable:) echo "$key $rest";; esac
  done 2>/dev/null </proc/meminfo
}

# How the device is doing. $sys is where sysfs is.
state() {
  echo "@@$1"
  for d in "$sys"/devices/system/cpu/cpu[0-9]*/cpufreq; do
    [ -d "$d" ] || continue
    c=${d%/cpufreq}
    read -r g <"$d/scaling_governor" && read -r f <"$d/scaling_cur_freq" && echo "cpu ${c##*/cpu} $f $g"
  done 2>/dev/null
  seen=
  for z in "$sys"/class/thermal/thermal_zone*; do
    { read -r type <"$z/type" && read -r degrees <"$z/temp"; } 2>/dev/null && echo "zone $degrees $type" && seen=1
  done
  # Newer Androids hide the zones from the shell; its service shows some.
  [ -n "$seen" ] || ! command -v dumpsys >/dev/null || dumpsys thermalservice 2>/dev/null | grep -o 'Temperature{[^}]*}'
  for z in "$sys"/class/thermal/cooling_device*; do
    { read -r type <"$z/type" && read -r now <"$z/cur_state"; } 2>/dev/null && echo "cooling $now $type"
  done
  for f in "$sys"/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count; do
    { read -r n <"$f"; } 2>/dev/null && echo "count $n"
  done
  for f in "$sys"/devices/platform/soc/*firmware/get_throttled; do
    { read -r bits <"$f"; } 2>/dev/null && echo "throttled $bits"
  done
  command -v vcgencmd >/dev/null 2>&1 && vcgencmd get_throttled 2>/dev/null
  load_now
  echo "@@end"
}

# $1 root as configured, $2 triplet, $3 loaders, $4 libraries, $5 tools (lists of names without
# blanks), $6 the bundle's loader; when it needs none, any of glibc's that is there tells the version.
# Leaves the absolute root in `root`.
# Each program that is started costs a slow device tens of milliseconds (and mksh may have no printf of its own):
# whatever the shell can do, it does, and without $( ), which is a process too.
# The versions are those of the libraries of the bundle's own architecture: `getconf` and `ldd` would answer for the
# login's, which on a 64-bit kernel with a 32-bit system (or the reverse) is another.
section() { echo; echo "@@$1"; }
first_line() { { read -r line <"$1"; } 2>/dev/null && echo "$line"; }
unended() { line=; { read -r line <"$1"; } 2>/dev/null; [ -n "$line" ] && say "$line"; }
# With a second word: only what comes before an empty line.
lines_of() {
  count=0
  while [ "$count" -lt 500 ] && IFS= read -r line; do
    [ -z "$2" ] || [ -n "$line" ] || return 0
    say "$line"; count=$((count + 1))
  done 2>/dev/null <"$1"
}
named() { echo "$1"; echo "$4"; echo "$3"; echo "$2"; }
probe() {
  # Not by echo, which changes backslashes.
  case ${KSH_VERSION-} in '') say() { printf '%s\n' "$1"; };; *) say() { print -r -- "$1"; };; esac
  section system
  # shellcheck disable=SC2046 # a word each
  named $(uname -s -n -r -m)
  section home; echo "${HOME:-/}"
  case $1 in /*) root=$1;; *) root=${HOME:+$HOME/$1};; esac
  section root; echo "$root"
  near=$root; while [ ! -d "$near" ] && [ "$near" != / ]; do near=${near%/*}; near=${near:-/}; done
  section near; cd "$near" && pwd -P
  section writable; [ -w "$near" ] && echo yes
  section df; df -Pk "$near" 2>/dev/null
  hardware
  section loaders; for f in $3; do [ -e "$f" ] && echo "$f"; done
  dirs="/lib/$2 /usr/lib/$2 /lib64 /usr/lib64 /lib /usr/lib /usr/local/lib /system/lib64 /system/lib"
  find_library() { p=; for d in $dirs; do [ ! -e "$d/$1" ] || { p=$d/$1; return; }; done; }
  section libraries; for f in $4; do find_library "$f"; [ -z "$p" ] || echo "$f $p"; done
  # Reading a library through takes seconds on a slow device: only where its loader or its file's name does not tell.
  # BusyBox's grep stops at the first NUL of a line: hand it one string a line.
  symbols_of() { tr '\000' '\n' < "$1" | grep -a -o "$2" | sort -u; }
  version_of() {
    find_library "$1"; [ -n "$p" ] || return 0
    for f in "${p%/*}"/$2; do [ ! "$f" -ef "$p" ] || { echo "$f"; return; }; done
    symbols_of "$p" "$3"
  }
  section glibc
  own=$6 told=
  [ -n "$own" ] || for f in $3; do case $f in */ld-linux*) [ ! -x "$f" ] || { own=$f; break; };; esac; done
  [ ! -x "$own" ] || told=$("$own" --version 2>/dev/null)
  case $told in
    *'release version 2.'*) echo "$told";;
    *) version_of libc.so.6 'libc-2.*.so' 'GLIBC_2\.[0-9]*'
      section getconf; getconf GNU_LIBC_VERSION 2>/dev/null;;
  esac
  section glibcxx; version_of libstdc++.so.6 'libstdc++.so.6.0.*' 'GLIBCXX_3\.4\.[0-9]*'
  section tools; for f in $5; do command -v "$f" >/dev/null 2>&1 && echo "$f"; done
  section android; getprop 2>/dev/null
  section end
}

# The arguments are those of `probe`.
command_probe() {
  probe "$@"
  exit 0
}

# Prints the device's state. $1 is where sysfs is.
command_state() {
  sys=$1
  state now
  exit 0
}
