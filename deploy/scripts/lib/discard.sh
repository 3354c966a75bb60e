# shellcheck shell=sh
# Arguments: paths below incoming, runs, bundles, programs, store, weights or lock. A run whose process group still lives loses
# it first; that it is the run's is told by its working folder, since after a restart the number may be anybody's.

. ./lib/cwd.sh

discard() {
  for name in "$@"; do
    shift
    case $name in
      incoming/?*|runs/?*|bundles/?*|programs/?*|store/?*|weights/?*|lock/?*) ;; *) continue;;
    esac
    case $name in *..*) continue;; esac
    case ${name#store/} in "$name") ;; *[!0-9a-f]*) continue;; esac
    case ${name#lock/} in "$name") ;; *[!0-9]*) continue;; esac
    child=
    { read -r child <"$name/.pid"; } 2>/dev/null
    case $child in
      ''|*[!0-9]*) ;;
      *) [ "$(cwd_of "$child")" != "$(pwd -P)/$name" ] || kill -KILL "-$child" 2>/dev/null;;
    esac
    set -- "$@" "$name"
  done
  [ $# -eq 0 ] || rm -rf "$@"
}
