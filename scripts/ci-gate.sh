#!/usr/bin/env bash
# The steps of the GPU workflow, so that each can be run by hand: install, gate, summary, diff, or all of the last three.
# They are told what to do by variables, never by text pasted into a shell:
#   OUT           folder for venv/, records/, junit.xml, summary.md; needed, and empty of records for a gate
#   PRESET        NAME@VERSION (full@4)
#   DEVICES       selectors, separated by blanks (hardware)
#   SHARD         I/N (none)
#   EXPECTATIONS  file or folder (those that samebits ships)
#   BASELINE      record or folder to compare with (none: no diff)
#   EXTRAS        extras to install, as in cuda12 (none)
#   SAMEBITS      the command ($OUT/venv/bin/samebits)
# A step exits as samebits does: docs/design.md.
set -euo pipefail

: "${OUT:?name a folder in OUT}"
samebits=${SAMEBITS:-$OUT/venv/bin/samebits}
known=()
[ -z "${EXPECTATIONS:-}" ] || known=(--expectations "$EXPECTATIONS")

install() {
    cd "$(dirname "$0")/.."
    python3 -m venv "$OUT/venv"
    "$OUT/venv/bin/pip" install --quiet ".${EXTRAS:+[$EXTRAS]}"
    "$samebits" --version
}

gate() {
    if [ -e "$OUT/records" ]; then
        echo "ci-gate: $OUT/records is there already; name a fresh folder in OUT" >&2
        return 2
    fi
    mkdir -p "$OUT"
    local options=(--preset "${PRESET:-full@4}" --out "$OUT/records" --junit "$OUT/junit.xml" "${known[@]}") selectors
    read -ra selectors <<<"${DEVICES:-hardware}"
    for selector in "${selectors[@]}"; do options+=(--device "$selector"); done
    [ -z "${SHARD:-}" ] || options+=(--shard "$SHARD")
    "$samebits" gate "${options[@]}"
}

# The table; its exit code is the gate's, which was told already.
summary() {
    mkdir -p "$OUT"
    if "$samebits" matrix "$OUT/records" --format md "${known[@]}" >"$OUT/matrix.md" || [ -s "$OUT/matrix.md" ]; then
        cat "$OUT/matrix.md" | tee -a "$OUT/summary.md"
    else
        echo "No records: no device was run." | tee -a "$OUT/summary.md"
    fi
}

diff() {
    if [ -z "${BASELINE:-}" ]; then
        echo "No baseline: nothing to compare with." | tee -a "$OUT/summary.md"
        return 0
    fi
    local code=0
    "$samebits" diff "$BASELINE" "$OUT/records" "${known[@]}" >"$OUT/diff.txt" || code=$?
    { echo; echo '```text'; tr -d '`' <"$OUT/diff.txt"; echo '```'; } | tee -a "$OUT/summary.md"
    return "$code"
}

all() {
    local codes=() code
    for step in gate summary diff; do
        code=0
        "$0" "$step" || code=$?
        codes+=("$code")
    done
    for code in 5 1 4 3 2; do
        [[ " ${codes[*]} " != *" $code "* ]] || return "$code"
    done
}

case ${1:-} in
    install | gate | summary | diff | all) "$1" ;;
    *) sed -n '2,13s/^# \?//p' "$0" >&2; exit 2 ;;
esac
