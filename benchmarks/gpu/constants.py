"""Constants of a machine model from what ``launch/gpu_check.sh`` measured on one GPU:

    python -m benchmarks gpu.constants results/measured/h100-80gb/gpu_check.json --machine h100x8

For each arithmetic the share of the peak, the cost of edges and of short k, and the launch that
bring :class:`~drbench.model.gemm.Compute` nearest to the measured products (least mean error over a
grid of them; the machine says what else it needs), and the error that is left, beside that of the
machine as it is. For accumulates how much longer a product takes beside one, by the blocks that
add.
"""

import argparse
import json
import statistics
from dataclasses import replace
from itertools import product
from pathlib import Path

from drbench.model.gemm import Compute
from launch.cases.machine_models import find_machine

#: FLOP/s of an H100 SXM without sparsity; NVIDIA H100 data sheet.
PEAKS = {"fp32": 67e12, "tf32": 494.7e12, "bf16": 989.4e12, "fp64": 67e12}
_ITEMSIZES = {"bf16": 2, "fp64": 8}
_SUSTAINED = [0.6 + 0.01 * step for step in range(41)]
_EDGES, _RAMPS, _LAUNCHES = (0, 8, 16, 32, 64), (0, 32, 64, 128, 256, 512), (5e-6, 1e-5, 1.5e-5)


def lines_of(path: Path, kind: str) -> list[dict]:
    """What the stage on speed said of one kind of thing."""
    stages = json.loads(path.read_text(encoding="utf-8"))["stages"]
    return [line for stage in stages for line in stage["lines"] if line.get("kind") == kind]


def errors(compute: Compute, products: list[dict], itemsize: int) -> list[float]:
    """Share by which each predicted time is longer (or, below 0, shorter) than the measured.

    Examples
    --------
    >>> products = [{"m": 1000, "n": 1000, "k": 1000, "us": 1600.0}]
    >>> errors(Compute(1e12), products, 4)
    [0.25]
    """
    return [
        compute.gemm_s(x["m"], x["n"], x["k"], itemsize) / (x["us"] / 1e6) - 1 for x in products
    ]


def fitted(base: Compute, products: list[dict], itemsize: int) -> Compute:
    """The constants with the least mean error."""
    grid = (
        replace(base, sustained=share, edge=edge, k_ramp=ramp, launch_s=launch, _known={})
        for share, edge, ramp, launch in product(_SUSTAINED, _EDGES, _RAMPS, _LAUNCHES)
    )
    return min(grid, key=lambda each: statistics.mean(map(abs, errors(each, products, itemsize))))


def slowdown(line: dict) -> float:
    """By how much longer a product takes while accumulates are under way
    (``accumulate_slowdown``): what it got done beside them, out of the time that both took.

    Examples
    --------
    An accumulate of 2 ms costs a product of 4 ms one more: beside it half was done.

    >>> slowdown({"product_ms": 4.0, "transfers_ms": 2.0, "both_ms": 5.0})
    1.0
    """
    done = line["product_ms"] + line["transfers_ms"] - line["both_ms"]
    return line["transfers_ms"] / done - 1 if done > 0 else float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("check", type=Path)
    parser.add_argument("--machine", required=True)
    given = parser.parse_args()
    base, products = find_machine(given.machine).compute, lines_of(given.check, "product")
    for arithmetic in dict.fromkeys(line["arithmetic"] for line in products):
        own = [line for line in products if line["arithmetic"] == arithmetic]
        itemsize, peak = _ITEMSIZES.get(arithmetic, 4), PEAKS[arithmetic]
        found = fitted(replace(base, peak_flops=peak, _known={}), own, itemsize)
        left = [abs(error) for error in errors(found, own, itemsize)]
        print(f"# {arithmetic}: {len(own)} products; error of the fit {_percent(left)}")
        if arithmetic == "fp32":
            assumed = [abs(error) for error in errors(base, own, itemsize)]
            print(f"# {given.machine} as it is: {_percent(assumed)}")
        print(f"peak_flops = {peak:g}\nsustained = {found.sustained:.2f}")
        print(f"edge = {found.edge:g}\nk_ramp = {found.k_ramp:g}\nlaunch_s = {found.launch_s:g}")
    for line in lines_of(given.check, "overlap"):
        if line["what"] == "accumulates":
            blocks = f"{line['blocks']} blocks" if line["blocks"] else "no limit"
            print(
                f"# {line['arithmetic']} beside accumulates, {blocks}, {line['gb_per_s']:.0f} "
                f"GB/s: accumulate_slowdown = {slowdown(line):.2f}"
            )


def _percent(values: list[float]) -> str:
    return f"{100 * statistics.mean(values):.1f} % on average, {100 * max(values):.0f} % at most"


if __name__ == "__main__":
    main()
