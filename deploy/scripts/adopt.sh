# shellcheck shell=sh
# $2 an id. Marks a root that an earlier version made, which is one that holds exactly what these made and nothing
# else; its owner and mode were found good before. Prints adopted, or foreign NAME for everything else and
# lacks NAME for what all of them had.

cd -P "$1" || exit 1
foreign=
strange() { echo "foreign $1"; foreign=yes; }
for each in lock incoming store bundles runs; do
  [ -d "$each" ] || { echo "lacks $each"; foreign=yes; }
done
for each in * .[!.]* ..?* */* */.[!.]* */..?*; do
  [ -e "$each" ] || [ -h "$each" ] || continue
  name=${each##*/} kind=file
  if [ -h "$each" ]; then kind='link'; elif [ -d "$each" ]; then kind='folder'; fi
  case $kind:$each in
    folder:lock|folder:incoming|folder:store|folder:bundles|folder:runs|folder:current|folder:previous) ;;
    file:governor|link:current/*-*|link:previous/*-*) ;;
    folder:lock/*) case $name in *[!0-9]*) strange "$each";; esac;;
    folder:runs/kept-*-*-*|folder:runs/.*.part|folder:bundles/.*.part) ;;
    folder:runs/*-*-*) case $name in *[!0-9a-f-]*) strange "$each";; esac;;
    folder:bundles/*) case $name in *[!0-9a-f]*) strange "$each";; esac;;
    file:store/*) case ${#name}:$name in *:*[!0-9a-f]*) strange "$each";; 64:*) ;; *) strange "$each";; esac;;
    file:incoming/*.*-*-*.part) case ${name%%.*} in *[!0-9a-f]*) strange "$each";; esac;;
    *) strange "$each";;
  esac
done
[ -z "$foreign" ] || exit 0
umask 077; set -C
echo "slipway-root 1 $2" >.slipway-root && echo adopted
