#!/usr/bin/env bash
# A conformance run on a lab machine without a network: docs/lab.md.
#
#   gpu-lab.sh pack DIR [EXTRA...]     on a machine with a network: wheels of samebits and all it needs, the model, this script
#   gpu-lab.sh run [options]           on the machine with the GPU; writes one archive of records to bring home
#     --wheels DIR      the packed folder (where this script lies)
#     --out DIR         a fresh folder for environment, records, archive (./samebits-lab-DATE)
#     --device SEL      a device selector; repeats (hardware: every API of every card)
#     --preset NAME     the first run (full)
#     --soak SECONDS    how long to soak each API of the card after it, to the end of a family of kernels; 0 for not at all (60)
#     --bench on|off    whether to measure speed (on)
#     --extras A,B      extras to install, of those that were packed (what the packed wheels show)
#
# PYTHON names the interpreter (python3); both machines need the same version of it, system and processor architecture.
# SAMEBITS names a command that is installed already: then no environment is made.
# Exits as `samebits gate` does; a finding stops nothing and is in the archive.
set -euo pipefail

python=${PYTHON:-python3}
here=$(cd "$(dirname "$0")" && pwd)

say() { printf '== %s (%s s)\n' "$1" "$SECONDS" >&2; }
refuse() { echo "gpu-lab: $1" >&2; exit 2; }

pack() {
    local folder=${1:?pack needs a folder} extras
    shift
    extras=$(IFS=,; echo "$*")
    mkdir -p "$folder/models"
    folder=$(cd "$folder" && pwd)
    say "wheels"
    "$python" -m pip wheel --quiet --wheel-dir "$folder" "$here/..${extras:+[$extras]}"
    say "model"
    "$python" -m venv "$folder/venv"
    "$folder/venv/bin/pip" install --quiet --no-index --find-links "$folder" samebits
    SAMEBITS_MODELS="$folder/models" "$folder/venv/bin/samebits" fetch-model
    rm -rf "$folder/venv"
    echo "$extras" >"$folder/extras"
    cp "$here/gpu-lab.sh" "$folder/"
    say "packed: copy $folder to the lab machine and start gpu-lab.sh run there"
}

run() {
    local wheels=$here out="" preset=full soak=60 bench=on extras="" devices=() code=0 status
    while [ $# -gt 0 ]; do
        [ $# -ge 2 ] || refuse "$1 needs a value"
        case $1 in
            --wheels) wheels=$2 ;;
            --out) out=$2 ;;
            --device) devices+=(--device "$2") ;;
            --preset) preset=$2 ;;
            --soak) soak=$2 ;;
            --bench) bench=$2 ;;
            --extras) extras=$2 ;;
            *) refuse "no option $1; the head of this script lists them" ;;
        esac
        shift 2
    done
    local samebits=${SAMEBITS:-}
    if [ -z "$samebits" ] && ! compgen -G "$wheels/samebits-*.whl" >/dev/null; then
        refuse "no samebits wheel in $wheels; pack one, and name its folder by --wheels"
    fi
    [[ $soak =~ ^[0-9]+$ ]] || refuse "--soak $soak: not a number of seconds"
    [ ${#devices[@]} -gt 0 ] || devices=(--device hardware)
    [ -n "$extras" ] || extras=$(cat "$wheels/extras" 2>/dev/null || true)
    out=${out:-samebits-lab-$(date -u +%Y%m%dT%H%M%SZ)}
    [ ! -e "$out/records" ] || refuse "$out/records is there already; name a fresh folder by --out"
    mkdir -p "$out/records"
    out=$(cd "$out" && pwd)
    export SAMEBITS_STATE_DIR="$out/state" SAMEBITS_CACHE_DIR="$out/cache" SAMEBITS_MODELS="${SAMEBITS_MODELS:-$wheels/models}"

    if [ -z "$samebits" ]; then
        say "environment"
        "$python" -m venv "$out/venv"
        "$out/venv/bin/pip" install --quiet --no-index --find-links "$wheels" "samebits${extras:+[$extras]}"
        samebits=$out/venv/bin/samebits
    fi
    say "discovery"
    "$samebits" doctor >"$out/doctor.txt" || true # stays here: it names folders of this machine
    "$samebits" devices
    say "$preset"
    "$samebits" gate --preset "$preset" "${devices[@]}" --out "$out/records" || code=$?
    # Nothing to soak, and nothing to bring home, where no device was run.
    compgen -G "$out/records/*/*.jsonl.gz" >/dev/null || return "$code"
    if [ "$soak" -gt 0 ]; then
        say "soak, $soak s a device"
        status=0
        "$samebits" gate --preset soak --time "$soak" "${devices[@]}" --out "$out/records-soak" || status=$?
        [ "$code" -ne 0 ] || code=$status
    fi
    if [ "$bench" = on ]; then
        say "benchmarks"
        "$samebits" bench "${devices[@]}" >"$out/bench.txt" 2>&1 || echo "benchmarks failed: $out/bench.txt" >&2
    fi
    say "archive"
    "$samebits" matrix "$out/records" --format md >"$out/matrix.md" || true # its exit code is the gate's, told already
    local kept=(records matrix.md) more
    for more in records-soak bench.txt; do [ ! -e "$out/$more" ] || kept+=("$more"); done
    tar -C "$out" -czf "$out.tar.gz" "${kept[@]}"
    say "bring home $out.tar.gz"
    return "$code"
}

case ${1:-} in
    pack | run) "$@" ;;
    *) refuse "say pack or run; the head of this script tells how" ;;
esac
