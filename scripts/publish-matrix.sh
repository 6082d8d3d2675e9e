#!/usr/bin/env bash
# Runs every row of scripts/software-matrix.sh, puts their records in the place of those in matrices/runs, and writes the README's
# table from them. PYTHON names an interpreter that has samebits (python3).
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
printf '#!/bin/sh\nexec "%s" -P -m harness.cli "$@"\n' "$(command -v "$python")" >"$new/samebits"
chmod +x "$new/samebits"

SAMEBITS="$new/samebits" scripts/software-matrix.sh "$new/runs"
rm -rf "$new/runs/failures" matrices/runs
mv "$new/runs" matrices/runs
chmod -R u+w matrices/runs
"$python" scripts/readme_matrix.py
