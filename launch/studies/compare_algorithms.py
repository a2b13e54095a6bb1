"""Every algorithm on the layouts it takes, beside the universal one on the very same tiles."""

import os
from contextlib import suppress
from dataclasses import replace
from itertools import product

from rich.table import Table

from algorithms import algorithms
from drbench.errors import UnsupportedError
from drbench.measure.noise import doubts
from drbench.measure.record import Record, by_balance
from launch.cases.case import Case, bound
from launch.cases.command_line import describe
from launch.cases.peaks import Peaks
from launch.host.kernels import without_pins
from launch.host.show import low_high, product_text, table
from launch.host.units import seconds
from launch.sweeps.progress import progress_console
from launch.sweeps.rounds import Standing, standings
from launch.sweeps.run_rounds import POOLED, ROUNDS, run_rounds
from launch.sweeps.supervisor import Settings
from launch.sweeps.sweep import verdict

#: The matrix that stays in each dataflow, for the universal algorithm.
_STATIONARY = {"OS": "C", "LS": "A", "RS": "B", "AG": "B", "RdS": "B"}
#: Options that make another program of an algorithm without a mesh.
_KINDS = ("dataflow", "variant")
_PHASES = ("get_wait", "collective_wait", "gemm", "accumulate", "fence", "pack")

#: Algorithms that are named as no slower than the fastest.
_SHOWN = 6


def layout_cases(
    base: Case, ranks: int, dataflows: list[str], meshes: list[str]
) -> dict[str, list[Case]]:
    """Cases by layout: every algorithm with a ``mesh`` that takes it, then the universal one on the
    same tiles; the algorithms without one last, those of the same tiles together, each in all its
    variants. All are ``base`` but for algorithm and layout.

    Examples
    --------
    >>> cases = layout_cases(Case(64, 64, 64), 2, ["OS"], ["1x2"])
    >>> {layout: [case.algorithm for case in found] for layout, found in cases.items()}["OS on 1x2"]
    ['collective', 'meshslice', 'summa', 'wang', 'universal']
    >>> [case.options.get("variant") for case in cases["A row, B column, C column"]]
    [None, 'pull', 'push', 'ring', None, None, None, None]
    """
    out: dict[str, list[Case]] = {}
    for name, algorithm in algorithms(plain=True).items():
        if name == "universal":
            continue
        if "mesh" in algorithm.options:
            chosen = [
                (f"{dataflow} on {mesh}", {"dataflow": dataflow, "mesh": mesh})
                for mesh in meshes
                for dataflow in dataflows
            ]
        else:
            options = [algorithm.options[name] for name in _KINDS if name in algorithm.options]
            tried = [[(each.name, value) for value in each.tried] for each in options]
            chosen = [("", dict(values)) for values in product(*tried)]
        for layout, options in chosen:
            case = replace(base, algorithm=name, options=options)
            with suppress(UnsupportedError):  # not on this mesh: other meshes have it
                _, problem, options = bound(case, ranks)
                algorithm.resolve(problem, **options)
                told = ", ".join(
                    f"{name} {text}" for name, text in zip("ABC", problem.texts.values())
                )
                out.setdefault(layout or told, []).append(case)
    for found in out.values():
        _, problem, options = bound(found[0], ranks)
        texts = problem.texts
        stationary = _STATIONARY.get(options.get("dataflow"), "auto")
        found.append(replace(base, **texts, options={"stationary": stationary}))
    return out


def run_layouts(
    layouts: dict[str, list[Case]],
    ranks: int,
    timeout_s: float,
    out: str | None,
    peaks: Peaks,
) -> int:
    """Run the cases of :func:`layout_cases` in rounds, print a table a layout, and say which is the
    fastest of all; the exit code."""
    settings = Settings(ranks, timeout_s=timeout_s, environ=without_pins(), peaks=peaks)
    say, groups = progress_console(), list(layouts.values())
    runs = run_rounds(groups, "compare-algorithms", settings, say, out)
    case = groups[0][0]
    say.print(
        f"{product_text(case)} on {ranks} ranks, "
        f"transport {case.transport}, prefetch {case.look_ahead}"
        + (f", collectives {case.collectives}" if case.collectives else "")
    )
    for layout, group in zip(layouts, runs):
        say.print(_table(layout, standings(group)))
    names, every = {}, {}
    for layout, group, found in zip(layouts, groups, runs):
        for case, run in zip(group, found):  # the universal one is the same on several layouts
            names.setdefault(repr(case), []).append(layout)
            every[repr(case)] = run
    told = [" = ".join(each) for each in names.values()]
    for line in fastest_of_all(told, standings(list(every.values()))):
        say.print(line, markup=False)
    if out:
        say.print(f"records: {os.path.join(out, POOLED)}; turn by turn: {ROUNDS}/", markup=False)
    return verdict(record for run in every.values() for record in run.values())


def fastest_of_all(layouts: list[str], found: list[Standing]) -> list[str]:
    """Which of all is the fastest, and which are not told apart from it, the first few by name;
    nothing without a time.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> from drbench.measure.noise import Ratio
    >>> row = Record(mode="measured", status="ok", best_s=1.0, algorithm="summa")
    >>> found = [Standing(row, Ratio(1.0), True), Standing(row, Ratio(1.01, 0.98, 1.05))]
    >>> fastest_of_all(["OS on 1x2", "OS on 2x1"], found)
    ['fastest of all: summa, OS on 1x2; not told apart from it: summa, OS on 2x1']
    >>> meshes = [f"OS on 1x{n}" for n in range(2, 12)]
    >>> fastest_of_all(["OS on 1x1", *meshes], [found[0], *[found[1]] * 10])[0][-42:]
    'summa, OS on 1x6; summa, OS on 1x7; 4 more'
    """
    named = [(f"{_name(each.record)}, {layout}", each) for layout, each in zip(layouts, found)]
    best = [name for name, each in named if each.fastest]
    if not best:
        return []
    as_fast = [
        name for name, each in named if each.ratio and not each.fastest and not each.ratio.apart
    ]
    shown = as_fast[:_SHOWN] + [f"{len(as_fast) - _SHOWN} more"] * (len(as_fast) > _SHOWN)
    more = f"; not told apart from it: {'; '.join(shown)}" if shown else ""
    return [f"fastest of all: {best[0]}{more}"]


def _name(record: Record) -> str:
    """An algorithm, with its variant where the layout does not say it."""
    return describe(record) if record.options else record.algorithm


def _order(standing: Standing) -> tuple:
    record, ratio = standing.record, standing.ratio
    return ratio is None, not standing.fastest, bool(record.noisy), ratio and ratio.middle


def _table(layout: str, found: list[Standing]) -> Table:
    """One layout: a row an algorithm, the smallest ratio to the fastest first, noisy ones last;
    percent of the roof only where ranks do not share cores."""
    rows = []
    for standing in sorted(found, key=_order):
        r = standing.record
        if r.status != "ok":
            rows.append((f"{_name(r)}: {r.status}: {r.reason}",))
            continue
        phases = [
            "-" if r.phase_gemm_s is None else seconds(getattr(r, f"phase_{name}_s"))
            for name in _PHASES
        ]
        ratio = f"{r.percent_of_roof:.1f} ({low_high(r)}){by_balance(r)}"
        spread = ratio if not r.oversubscribed else "-"
        efficiency = "-" if r.overlap_efficiency is None else f"{r.overlap_efficiency:.2f}"
        local = r.effective_communication_s
        rows.append(
            (
                ", ".join([_name(r), *doubts(r)]),
                seconds(r.time_s),
                str(standing),
                spread,
                f"-{seconds(-local)}" if local < 0 else seconds(local),
                efficiency,
                *phases,
                f"{(r.moved_bytes or 0) / 2**20:.1f}",
            )
        )
    last = found[-1].record
    title = f"{layout}: A {last.a}, B {last.b}, C {last.c}"
    columns = (
        "~algorithm|>median|>to the fastest|>% of roof|>eff. comm.|>overlap|>get wait|>coll. wait|"
        ">gemm|>accumulate|>fence|>pack|>moved MiB"
    )
    return table(columns, rows, title)
