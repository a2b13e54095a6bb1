"""Every algorithm on the layouts it takes, beside the universal one on the very same tiles."""

import os
from contextlib import suppress
from dataclasses import replace

from rich.table import Table

from algorithms import algorithms
from drbench.errors import UnsupportedError
from drbench.measure.noise import doubts
from drbench.measure.record import Record
from launch.cases.case import Case, bound
from launch.cases.peaks import Peaks
from launch.host.kernels import without_pins
from launch.host.show import low_high, table
from launch.host.units import seconds
from launch.sweeps.progress import progress_console
from launch.sweeps.supervisor import Settings
from launch.sweeps.sweep import run_listed, verdict

#: The matrix that stays in each dataflow, for the universal algorithm.
_STATIONARY = {"OS": "C", "LS": "A", "RS": "B", "AG": "B", "RdS": "B"}
_PHASES = ("get_wait", "collective_wait", "gemm", "accumulate", "fence", "pack")


def layout_cases(
    base: Case, ranks: int, dataflows: list[str], meshes: list[str]
) -> dict[str, list[Case]]:
    """Cases by layout: every algorithm with a ``mesh`` that takes it, then the universal one on the
    same tiles; the algorithms without one last. All are ``base`` but for algorithm and layout.

    Examples
    --------
    >>> cases = layout_cases(Case(64, 64, 64), 2, ["OS"], ["1x2"])
    >>> {layout: [case.algorithm for case in found] for layout, found in cases.items()}["OS on 1x2"]
    ['collective', 'meshslice', 'summa', 'wang', 'universal']
    """
    out: dict[str, list[Case]] = {}
    for name, algorithm in algorithms().items():
        if name == "universal":
            continue
        if "mesh" in algorithm.options:
            chosen = [
                (f"{dataflow} on {mesh}", {"dataflow": dataflow, "mesh": mesh})
                for mesh in meshes
                for dataflow in dataflows
            ]
        elif "dataflow" in algorithm.options:
            flows = algorithm.options["dataflow"].tried
            chosen = [(f"{name} {dataflow}", {"dataflow": dataflow}) for dataflow in flows]
        else:
            chosen = [(name, {})]
        for layout, options in chosen:
            case = replace(base, algorithm=name, options=options)
            with suppress(UnsupportedError):  # not on this mesh: other meshes have it
                algorithm.settle(bound(case, ranks)[1], **options)
                out.setdefault(layout, []).append(case)
    for found in out.values():
        _, problem, options = bound(found[0], ranks)
        texts = {name: problem.operand(name).partition.text for name in "abc"}
        stationary = _STATIONARY.get(options.get("dataflow"), "C")
        found.append(replace(base, **texts, options={"stationary": stationary}))
    return out


def run_layouts(
    layouts: dict[str, list[Case]],
    ranks: int,
    timeout_s: float,
    out: str | None,
    peaks: Peaks | None,
) -> int:
    """Run the cases of :func:`layout_cases`, and print a table a layout; the exit code."""
    cases = [case for found in layouts.values() for case in found]
    settings = Settings(ranks, timeout_s=timeout_s, environ=without_pins(), peaks=peaks)
    say = progress_console()
    records = run_listed(cases, "compare-algorithms", settings, say, out)
    case, left = cases[0], iter(records)
    say.print(
        f"C {case.m}x{case.n} = A {case.m}x{case.k} · B {case.k}x{case.n} on {ranks} ranks, "
        f"transport {case.transport}, prefetch {case.prefetch}"
    )
    for layout, found in layouts.items():
        say.print(_table(layout, [next(left) for _ in found]))
    if out:
        say.print(f"records: {os.path.join(out, 'records.csv')}", markup=False)
    return verdict(records)


def _table(layout: str, records: list[Record]) -> Table:
    """One layout: a row an algorithm, the smallest median time first, noisy ones last; percent of
    the roof only where ranks do not share cores."""
    rows = []
    for r in sorted(records, key=lambda r: (r.status != "ok", bool(r.noisy), r.time_s)):
        if r.status != "ok":
            rows.append((r.algorithm, f"{r.status}: {r.reason}"))
            continue
        phases = [
            "-" if r.phase_gemm_s is None else seconds(getattr(r, f"phase_{name}_s"))
            for name in _PHASES
        ]
        spread = f"{r.percent_of_roof:.1f} ({low_high(r)})" if not r.oversubscribed else "-"
        efficiency = "-" if r.overlap_efficiency is None else f"{r.overlap_efficiency:.2f}"
        local = r.effective_communication_s
        rows.append(
            (
                ", ".join([r.algorithm, *doubts(r)]),
                seconds(r.time_s),
                spread,
                f"-{seconds(-local)}" if local < 0 else seconds(local),
                efficiency,
                *phases,
                f"{(r.moved_bytes or 0) / 2**20:.1f}",
            )
        )
    title = f"{layout}: A {records[-1].a}, B {records[-1].b}, C {records[-1].c}"
    columns = (
        "algorithm|>median|>% of roof|>eff. comm.|>overlap|>get wait|>coll. wait|>gemm|>accumulate|"
        ">fence|>pack|>moved MiB"
    )
    return table(columns, rows, title)
