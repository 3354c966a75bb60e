# What stands before a compiler to keep what it made. toolchains/compilers/ccache.py writes the settings above it:
#   program (ccache, with its loader), home and real (Conan's home, and the same without symbolic links), size, folder
# Called as: launcher KEY COMPILER WORDS..., where KEY changes whenever the compiler or what it links against does.
export CCACHE_DIR="$folder" CCACHE_MAXSIZE="$size" CCACHE_COMPILERCHECK="string:$1" CCACHE_COMPILERTYPE=clang
# The compiler's list of included files says what a result depends on: no second run of the preprocessor. No result
# of ours names the folder it was made in (-ffile-prefix-map, -g0).
export CCACHE_DEPEND=1 CCACHE_NOHASHDIR=1 CCACHE_BASEDIR="$home"
case $1 in gnu-*) CCACHE_COMPILERTYPE=gcc ;; esac
shift

# Conan gives every build a folder with a random name, .../p/b/pthre0123456789abc, and test programs one elsewhere.
# ccache makes what is below its base relative; dependencies go through links in the build folder, whose names stay.
case $PWD/ in
    "$real"/p/b/*) PWD=$home${PWD#"$real"}; export PWD ;;
    "$home"/p/b/*) ;;
    *) CCACHE_BASEDIR=/ ;;
esac
own=${PWD#"$home"/p/b/}
count=$#
while [ "$count" -gt 0 ]; do
    count=$((count - 1))
    word=$1
    shift
    case $word in
        -I"$home"/p/b/*/p/* | "$home"/p/b/*/p/*)
            option=${word%%"$home"/p/b/*}
            rest=${word#"$option$home"/p/b/}
            package=${rest%%/*}
            link=.dependencies/${package%?????????????}
            # Of packages that share their first letters, one has headers alone.
            if [ ! -d "$home/p/b/$package/p/lib" ]; then link=$link-headers; fi
            if [ "$package" != "${own%%/*}" ]; then
                if [ ! -d "$link" ]; then
                    mkdir -p .dependencies
                    ln -s "$home/p/b/$package/p" "$link" 2>/dev/null || true
                fi
                # Two packages may share the first letters: then one keeps its path.
                if [ "$link" -ef "$home/p/b/$package/p" ]; then word=$option$link/${rest#*/p/}; fi
            fi
            ;;
    esac
    set -- "$@" "$word"
done
eval "exec $program \"\$@\""
