"""Tables of gpu.md: what ``launch/gpu_check.sh`` found."""

import json

from .records import RESULTS
from .tables import block, table


def _gpu(machine: str) -> dict:
    """What launch/gpu_check.sh found."""
    path = RESULTS / "measured" / machine / "gpu_check.json"
    return json.loads(path.read_text(encoding="utf-8"))


@block
def gpu_checks(machine: str, *without: str) -> str:
    """What drbench claims about GPUs, tried on one; lines whose name holds a word of ``without``
    have a table of their own."""
    say = {True: "yes", False: "no", None: ""}
    lines = [
        (each["what"], each["value"], each["bar"], say[each["ok"]])
        for each in _gpu(machine)["checks"]
        if not any(word in each["what"] for word in without)
    ]
    return table(["what", "measured", "bar", "met"], lines)


def _gpu_lines(machine: str, kind: str) -> list[dict]:
    stages = _gpu(machine)["stages"]
    return [line for stage in stages for line in stage["lines"] if line.get("kind") == kind]


@block
def gpu_host(machine: str) -> str:
    """Microseconds of the host for each kind of step, alone and in a graph."""
    found = {line["what"]: f"{line['us']:.1f}" for line in _gpu_lines(machine, "host")}
    graph = " in a graph, done"
    rows = [
        (what, took, found.get(what + graph, ""))
        for what, took in found.items()
        if graph not in what
    ]
    return table(["step", "launched by itself", "in a graph"], rows)


@block
def gpu_products(machine: str) -> str:
    """TFLOP/s of single products, by shape and arithmetic."""
    found: dict[tuple, dict] = {}
    for line in _gpu_lines(machine, "product"):
        shape = tuple(line[extent] for extent in "mnk")
        found.setdefault(shape, {})[line["arithmetic"]] = f"{line['tflops']:.1f}"
    kinds = list(next(iter(found.values())))
    return table(
        ["m × n × k", *kinds],
        [
            (" × ".join(map(str, shape)), *(rates[kind] for kind in kinds))
            for shape, rates in found.items()
        ],
    )


@block
def gpu_overlap(machine: str) -> str:
    """A product of 8192³ beside accumulates, by the blocks that add."""
    lines = [
        (
            line["arithmetic"],
            line["blocks"] or "no limit",
            f"{line['gb_per_s']:.0f}",
            f"{line['both_ms'] / line['product_alone_ms']:.2f}",
            f"{line['hidden']:.2f}",
        )
        for line in _gpu_lines(machine, "overlap")
        if line["what"] == "accumulates"
    ]
    header = ["arithmetic", "blocks that add", "GB/s added alone", "both, to the product alone"]
    return table([*header, "hidden of the shorter"], lines)
