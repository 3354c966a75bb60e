# The part of a zig compiler wrapper that does not change. toolchains/compilers/zig.py writes the settings above it:
#   zig, tool (cc or c++), target, cpu, before (arguments ahead of the caller's), after (behind them),
#   link (what a call that links gets besides, behind everything),
#   no_debug, no_symbols (linker scripts that drop debug information, and the symbol table too; ELF only)
# It runs once a source file, so it starts no other program before zig: 1 ms, where Python takes 10.

case $target in
    aarch64-*) family=a64 ;;
    arm-*) family=a32 ;;
    *) family=other ;;
esac
case $target in *-macos*) apple=yes ;; *) apple='' ;; esac

# GNU's names of Arm extensions, as zig's CPU features: fp16 is +fullfp16, nodotprod is -dotprod.
feature() {
    sign=+ name=$1
    case $name in no*) sign=- name=${name#no} ;; esac
    # sve-b16b16, sme-f64f64: zig has underscores.
    while :; do
        case $name in *-*) name=${name%%-*}_${name#*-} ;; *) break ;; esac
    done
    case $family:$name in
        *:fp16) name=fullfp16 ;;
        *:simd) name=neon ;;
        a64:fp) name=fp_armv8 ;;
        a64:crypto) name=aes${sign}sha2 ;;
        a64:memtag) name=mte ;;
        a64:rng) name=rand ;;
        a64:rdma) name=rdm ;;
    esac
    name=$sign$name
}

fpu_features() {
    case $1 in
        vfp | vfpv2) name=vfp2 ;;
        vfp3 | vfpv3) name=vfp3 ;;
        vfpv3-fp16) name=vfp3+fp16 ;;
        vfpv3-d16) name=vfp3d16 ;;
        vfpv3-d16-fp16) name=vfp3d16+fp16 ;;
        vfpv4) name=vfp4 ;;
        vfpv4-d16) name=vfp4d16 ;;
        neon | neon-vfpv3) name=neon ;;
        neon-fp16) name=neon+fp16 ;;
        neon-vfpv4) name=neon+vfp4 ;;
        neon-fp-armv8) name=neon+fp_armv8 ;;
        crypto-neon-fp-armv8) name=neon+fp_armv8+crypto ;;
        fp-armv8) name=fp_armv8 ;;
        *) printf '%s\n' "zig wrapper: no CPU features known for -mfpu=$1" >&2; exit 1 ;;
    esac
}

# Splits $1 at its plus signs: the part before them goes to $head, the rest, in zig's names, to $features.
split_features() {
    saved=$IFS
    IFS=+
    set -f
    # shellcheck disable=SC2086 # splitting is meant
    set -- $1
    set +f
    IFS=$saved
    head=$1 features=''
    shift
    for extension; do
        feature "$extension"
        features=$features$name
    done
}

# -march=armv8.2-a+fp16+dotprod becomes generic+v8_2a+fullfp16+dotprod.
from_march() {
    split_features "$1"
    version=${head#armv}
    case $version in
        [789]*)
            version=${version%a}
            version=${version%-}
            case $version in *.*) version=${version%%.*}_${version#*.} ;; esac
            version=${version}a
            ;;
    esac
    cpu=generic+v$version$features
}

# -mcpu=cortex-a53+crypto becomes cortex_a53+aes+sha2.
from_mcpu() {
    split_features "$1"
    case $head in *-*) head=${head%%-*}_${head#*-} ;; esac
    cpu=$head$features
}

march='' fpu='' action=link inputs='' sources='' default=yes whole=yes debug='' strip=''
# zig drops libraries that nothing refers to unless told otherwise, and has no --push-state: keep its stack here.
keep=--as-needed stack=''
count=$#
while [ "$count" -gt 0 ]; do
    count=$((count - 1))
    word=$1
    shift
    case $word in
        -c | -S | -E | -M | -MM | -fsyntax-only) action=compile ;;
        -nostdlib | -nodefaultlibs | -nostdlib++) default=no ;;
        -r) default=no whole='' ;;
        # What the wrapper gives it already; clang would complain that nothing uses it.
        -stdlib=*) continue ;;
        -g0) debug='' ;;
        -g | -g[1-9]* | -gdwarf*) debug=yes ;;
        -s | -Wl,-s | -Wl,--strip-all) strip=yes; continue ;;
        -Wl,-S | -Wl,--strip-debug) continue ;;
        # Apple's way to say what the target says already.
        -arch | -isysroot) if [ -n "$apple" ] && [ "$count" -gt 0 ]; then shift; count=$((count - 1)); continue; fi ;;
        -mmacosx-version-min=* | -mmacos-version-min=*) if [ -n "$apple" ]; then continue; fi ;;
        -march=*) case $family in a64 | a32) march=${word#-march=}; continue ;; esac ;;
        -mfpu=*) if [ $family = a32 ]; then fpu=${word#-mfpu=}; continue; fi ;;
        -mfloat-abi=hard) if [ $family = a32 ]; then continue; fi ;;
        -mcpu=*) case $family in a64 | a32) from_mcpu "${word#-mcpu=}"; continue ;; esac ;;
        -Wl,*--push-state* | -Wl,*--pop-state* | -Wl,*-as-needed*)
            rest=${word#-Wl,} pending=''
            while [ -n "$rest" ]; do
                part=${rest%%,*}
                case $rest in *,*) rest=${rest#*,} ;; *) rest='' ;; esac
                case $part in
                    --push-state) stack="$keep $stack"; part='' ;;
                    --pop-state) part=${stack%% *}; stack=${stack#* }; part=${part:---as-needed} ;;
                esac
                case $part in
                    '' | --as-needed | --no-as-needed)
                        if [ -n "$pending" ]; then set -- "$@" "-Wl$pending"; pending=''; fi
                        if [ -n "$part" ]; then keep=$part; set -- "$@" "-Wl,$part"; fi
                        ;;
                    -l*) set -- "$@" "$part" ;;
                    -*) pending=$pending,$part ;;
                    # A word without a dash is an option's value when one came just before, else an input.
                    *) if [ -n "$pending" ]; then pending=$pending,$part; else set -- "$@" "$part"; inputs=yes; fi ;;
                esac
            done
            if [ -n "$pending" ]; then set -- "$@" "-Wl$pending"; fi
            continue
            ;;
        -Xlinker) if [ "$count" -eq 0 ]; then set -- "$@" "$word"; continue; fi
            # The same, one word at a time, as CMake writes it for clang. Between push and pop, files are inputs.
            part=$1
            shift
            count=$((count - 1))
            case $part in
                --push-state) stack="$keep $stack"; continue ;;
                --pop-state) part=${stack%% *}; stack=${stack#* }; part=${part:---as-needed} ;;
            esac
            case $part in
                --as-needed | --no-as-needed) keep=$part; set -- "$@" "-Wl,$part"; continue ;;
                *.so | *.so.* | *.a | -l*) if [ -n "$stack" ]; then set -- "$@" "$part"; inputs=yes; continue; fi ;;
            esac
            set -- "$@" -Xlinker "$part"
            continue
            ;;
        -*) ;;
        *.c | *.cc | *.cpp | *.cxx | *.C | *.S | *.s) inputs=yes sources=yes ;;
        *.o | *.a | *.so | *.so.* | *.obj | *.lib | *.dylib | *.tbd | @*) inputs=yes ;;
    esac
    set -- "$@" "$word"
done

if [ -n "$march" ]; then from_march "$march"; fi
if [ -n "$fpu" ]; then
    fpu_features "$fpu"
    cpu=${cpu:-generic}+$name
fi
if [ $action = link ] && [ -n "$inputs" ]; then
    # zig builds its run-time libraries once for programs with debug information and once for those without, and
    # that takes minutes: so there is one kind for a target, and what is not wanted is dropped while linking.
    if [ -z "$sources$debug" ]; then set -- "$@" -O2; fi
    if [ -n "$no_symbols" ] && [ -n "$whole" ]; then
        if [ -n "$strip" ]; then set -- "$@" "-Wl,-T,$no_symbols"; elif [ -z "$debug" ]; then set -- "$@" "-Wl,-T,$no_debug"; fi
    elif [ -n "$whole" ] && [ -z "$debug" ]; then
        set -- "$@" -s
    fi
    if [ $default = yes ] && [ -n "$link" ]; then
        # shellcheck disable=SC2086 # paths of our cache, quoted by the writer where they need it
        eval "set -- \"\$@\" -Wl,--as-needed $link"
    fi
fi
eval "exec \"\$zig\" $tool -target $target ${cpu:+-mcpu=\$cpu} $before \"\$@\" $after"
