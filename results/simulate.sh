#!/bin/sh
# Make every committed simulated record again, each by its command, then the ledger, the tables of the pages, the
# figures and the verdicts on the claims; the last lines name the verdicts that changed. `make records` runs this: an
# hour on two cores.
set -eu
cd "$(dirname "$0")/.."
to=results/simulated
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT

# The figures of the slicing paper, its schedules, and what each of its optimisations gains
for machine in pvc12 h100x8 "pvc12,links.xe.bandwidth_bytes_per_s=26.5e9 --label pvc12-table2"; do
    name=${machine% --*}
    for sweep in mlp1 mlp1-dtensor mlp2 mlp2-dtensor $(test "$name" = "$machine" && echo lowering); do
        drbench sweep $sweep --simulate --machine $machine --out "$runs/$sweep-$name"
        cp "$runs/$sweep-$name/records.csv" $to/$sweep-$name.csv
    done
done
for machine in pvc12 h100x8 "dgxh100 -p 64"; do
    name=${machine% -p*}
    drbench sweep optimisations --simulate --machine $machine --out "$runs/optimisations-$name"
    cp "$runs/optimisations-$name/records.csv" $to/optimisations/$name.csv
done
python -m benchmarks model.readings --out $to/readings

# The studies of MeshSlice, FLUX and Triton-distributed, and the ledger
python -m drbench.launch.papers results

# Timelines
mkdir -p $to/timeline-4x4 $to/timeline-overlap
for algorithm in cannon summa collective wang meshslice; do
    drbench simulate -p 16 -m 16Ki -n 48Ki -k 12Ki --dtype bfloat16 --algorithm $algorithm --mesh 4x4 \
        --machine tpuv4sim-4x4 --timeline $to/timeline-4x4/$algorithm.json
done
# FLUX, Figures 5 and 6, on the sizes of Figure 13 (m = 1024) with the options that its study found the fastest
# (the shape of the tiles is the library's)
layer() {
    drbench simulate -p 8 -m 1Ki --dtype bfloat16 --machine h800,kernel_slowdown=0 "$@"
}
for variant in "collective -o dataflow=RS --mesh 1x8" "te_chunks -o dataflow=AG" \
    "ag_gemm -o variant=pull -o buffer=symmetric -o tile=128 -o part=128"; do
    layer -n 48Ki -k 12Ki --algorithm $variant --timeline $to/timeline-overlap/ag-${variant%% *}.json
done
for variant in "collective -o dataflow=RS --mesh 8x1" "te_chunks -o dataflow=RS" \
    "gemm_rs -o variant=pull -o additions=end -o tile=128 -o part=128"; do
    layer -n 12Ki -k 48Ki --algorithm $variant --timeline $to/timeline-overlap/rs-${variant%% *}.json
done

# The claims under changed constants (half of the time)
drbench artifact --sensitivity --csv $to/readings/sensitivity.csv

python -m benchmarks figures
python -m drbench.launch.papers claims
python -m benchmarks pages --write
