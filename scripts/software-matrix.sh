#!/usr/bin/env bash
# The rows of CI: software devices, each under a preset that fits its speed, as records in one folder.
#
#   software-matrix.sh OUT [quick|full|pass|tiny ...]      all four where none is named
#
#   quick   every device of the machine that is run unnamed
#   full    the fast ones
#   pass    of `full`, the whole pass over 4 tokens of a released model, under one schedule, on those that are slower
#   tiny    compile-only rows and sanitizer builds; of Oclgrind and PoCL's single methods, which are slow simulators or compilers,
#           each kernel's checks and first case, under one schedule (`tree` where it has that: the most barriers). PoCL's
#           method repl copies a program for every work-item, and takes minutes for most: the linear kernels in native int64 only
#
# SAMEBITS names the command (samebits), PYTHON an interpreter (python3). All is run whatever comes of it; exits with the worst code, as docs/design.md ranks them.
set -euo pipefail

full=(opencl:intel-cpu opencl:pocl cuda_host:g++)
pass=(lavapipe opengl:llvmpipe swiftshader opencl:rusticl)
tiny=(nvrtc hiprtc cuda_host:g++-asan cuda_host:clang++-asan)
first=(opencl:oclgrind opencl:pocl-loops opencl:pocl-loopvec)

four='pass_dyadic_q16;t=4;dist=document;seed=0;model=smollm2-135m-q4_1'

smallest='
import json, sys
for kernel, case in {case["kernel"]: case for case in reversed(json.load(sys.stdin))}.items():
    schedule = "tree" if "tree" in case["schedules"] else case["schedules"][0]
    print("--case", case["id"] + ";schedule=" + schedule, sep="\n")'

samebits=${SAMEBITS:-samebits}
out=${1:?software-matrix needs a folder}
shift
[ $# -gt 0 ] || set -- quick full pass tiny

codes=()
gate() {
    local code=0
    "$samebits" gate --out "$out" "$@" || code=$?
    codes+=("$code")
}
named() {
    local device
    for device in "$@"; do printf -- '--device\n%s\n' "$device"; done
}

for preset in "$@"; do
    case $preset in
        quick) gate --preset quick ;;
        full) mapfile -t devices < <(named "${full[@]}"); gate --preset full "${devices[@]}" ;;
        pass)
            mapfile -t devices < <(named "${pass[@]}")
            gate --preset full "${devices[@]}" --case "$four;schedule=forward"
            ;;
        tiny)
            mapfile -t devices < <(named "${tiny[@]}")
            gate --preset tiny "${devices[@]}"
            mapfile -t cases < <("$samebits" cases --preset tiny --json | "${PYTHON:-python3}" -c "$smallest")
            mapfile -t devices < <(named "${first[@]}")
            gate --preset tiny "${devices[@]}" "${cases[@]}"
            mapfile -t cases < <(printf '%s\n' "${cases[@]}" | grep --no-group-separator -B1 '^linear_' | sed '/^linear_/s/$/;variant=int64/')
            gate --preset tiny --device opencl:pocl-repl "${cases[@]}"
            ;;
        *) echo "software-matrix: no rows for preset '$preset'; there are quick, full, pass, tiny" >&2; exit 2 ;;
    esac
done
for code in 5 1 4 3 2; do
    [[ " ${codes[*]} " != *" $code "* ]] || exit "$code"
done
