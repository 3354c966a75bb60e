# shellcheck shell=sh
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
