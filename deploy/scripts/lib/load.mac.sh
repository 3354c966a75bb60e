# shellcheck shell=sh
# Memory: pages that are free, or whose content need not be written first.

load() {
  load=$(sysctl -n vm.loadavg 2>/dev/null) && load=${load#* } && echo "load ${load%% *}"
  vm_stat 2>/dev/null | awk '
    /page size of/ { for (n = 1; n <= NF; n++) if ($n ~ /^[0-9]+$/) size = $n }
    /^Pages (free|inactive|speculative):/ { pages += $NF }
    END { printf "MemAvailable: %.0f kB\n", pages * size / 1024 }'
}
