# shellcheck shell=sh
# $2 owner, $3 the program's folder, to which a link is left in the run's.

cd "$1/runs" && mv "$2" "kept-$2" && ln -s "../../$3" "kept-$2/program"
