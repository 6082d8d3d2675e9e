#!/usr/bin/env bash
# The rows of CI: software devices, each under a preset that fits its speed, as records in one folder.
#
#   software-matrix.sh OUT [ROWS ...]      quick full pass tiny first compile where none is named
#
#   quick    every device of the machine that is run unnamed
#   full     the fast ones
#   pass     of `full`, the whole pass over 4 tokens of a released model, under one schedule, on those that are slower
#   tiny     sanitizer builds
#   first    of `tiny`, each kernel's checks and first case under one schedule (`tree` where it has that: the most
#            barriers), on PoCL's single methods and Oclgrind, which are slow compilers and a simulator: on that the GEMMs
#            and linear kernels `forward`, and the slowest in one variant. PoCL's method repl copies a program for every work-item, and takes minutes for
#            most: the lightest kernels only
#   compile  compile-only rows, under `tiny`
#   compile-once  the same, every kernel and variant under `split_k` where it reduces: a program is compiled once for all cases
#
# SAMEBITS names the command (samebits), PYTHON an interpreter (python3). All is run whatever comes of it; exits with the worst code, as docs/design.md ranks them.
set -euo pipefail

full=(opencl:intel-cpu opencl:pocl cuda_host:g++)
pass=(lavapipe opengl:llvmpipe swiftshader opencl:rusticl)
tiny=(cuda_host:g++-asan cuda_host:clang++-asan)
first=(opencl:pocl-loops opencl:pocl-loopvec)
compile=(nvrtc hiprtc)
light='residual|kv_append|probe_words|nel_(act|embedding|requant|residual|rope)'

four='pass_dyadic_q16;t=4;dist=document;seed=0;model=smollm2-135m-q4_1'

smallest='
import json, sys
for kernel, case in {case["kernel"]: case for case in reversed(json.load(sys.stdin))}.items():
    schedule = "tree" if "tree" in case["schedules"] else case["schedules"][0]
    print("--case", case["id"] + ";schedule=" + schedule, sep="\n")'

samebits=${SAMEBITS:-samebits}
out=${1:?software-matrix needs a folder}
shift
[ $# -gt 0 ] || set -- quick full pass tiny first compile

codes=()
gate() {
    local code=0
    "$samebits" gate --out "$out" "$@" || code=$?
    codes+=("$code")
}
named() { # options for devices, one a line
    local device
    for device in "$@"; do printf -- '--device\n%s\n' "$device"; done
}
cases() { # options for cases of a preset that a program prints, one a line
    "$samebits" cases --preset "$1" --json | "${PYTHON:-python3}" -c "$2"
}

for rows in "$@"; do
    case $rows in
        quick) gate --preset quick ;;
        full) mapfile -t devices < <(named "${full[@]}"); gate --preset full "${devices[@]}" ;;
        pass)
            mapfile -t devices < <(named "${pass[@]}")
            gate --preset full "${devices[@]}" --case "$four;schedule=forward"
            ;;
        tiny) mapfile -t devices < <(named "${tiny[@]}"); gate --preset tiny "${devices[@]}" ;;
        first)
            mapfile -t devices < <(named "${first[@]}")
            mapfile -t cases < <(cases tiny "$smallest")
            gate --preset tiny "${devices[@]}" "${cases[@]}"
            mapfile -t forward < <(printf '%s\n' "${cases[@]}" | sed -E -e '/^(gemm|linear)_/s/;schedule=tree$/;schedule=forward/' -e '/^(limbs|gemm_i32_i64);/s/$/;variant=base/')
            gate --preset tiny --device opencl:oclgrind "${forward[@]}"
            mapfile -t cases < <(printf '%s\n' "${cases[@]}" | grep --no-group-separator -B1 -E "^($light);")
            gate --preset tiny --device opencl:pocl-repl "${cases[@]}"
            ;;
        compile) mapfile -t devices < <(named "${compile[@]}"); gate --preset tiny "${devices[@]}" ;;
        compile-once)
            mapfile -t devices < <(named "${compile[@]}")
            mapfile -t cases < <(cases tiny "$smallest" | sed -E 's/^([a-z0-9_]+);.*;schedule=/\1;*;schedule=/; s/=tree$/=split_k/')
            gate --preset tiny "${devices[@]}" "${cases[@]}"
            ;;
        *)
            there="quick, full, pass, tiny, first, compile, compile-once"
            echo "software-matrix: no rows '$rows'; there are $there" >&2
            exit 2
            ;;
    esac
done
for code in 5 1 4 3 2; do
    [[ " ${codes[*]} " != *" $code "* ]] || exit "$code"
done
