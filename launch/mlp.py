"""``drbench mlp``: the paper's MLP-1 and MLP-2 (§5.2.1) on this machine, from cases to figures."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from drbench.errors import UsageError
from drbench.record import read_csv
from partitions import equal_replication, preset

from .batch import run_batch
from .case_fields import Case
from .kernels import pinned, weaker_pins, without_pins
from .peers import get_peer

__all__ = ["dtensor_cases", "mlp_cases", "run_mlp"]

#: Hidden size, its multiple, and batch sizes of the paper.
HIDDEN, RATIO, BATCHES = 12288, 4, (1024, 2048, 4096, 8192)
_PRESETS = ("row", "column", "block", "inner", "outer", "traditional")


def mlp_cases(ranks: int, scale: int, layer: str, iters: int, threads: int | None = None, machine: str = "here") -> list[Case]:
    """The cases of one or both layers: six partitionings × equal replication factors × Stationary C and B × four batches.

    Examples
    --------
    >>> cases = mlp_cases(4, scale=16, layer="mlp1", iters=5)
    >>> len(cases), cases[0].m, cases[0].n, cases[0].k
    (144, 64, 3072, 768)
    """
    hidden = HIDDEN // scale
    shapes = {"mlp1": (RATIO * hidden, hidden), "mlp2": (hidden, RATIO * hidden)}
    cases = []
    for name, (n, k) in shapes.items():
        if layer not in ("both", name):
            continue
        for batch in BATCHES:
            for chosen in _PRESETS:
                for factors in equal_replication(ranks):
                    a, b, c = preset(f"{chosen}/c{factors[0]}" if factors[0] > 1 else chosen, ranks)
                    for stationary in "CB":
                        cases.append(Case(max(1, batch // scale), n, k, a, b, c, options={"stationary": stationary}, preset=chosen, iters=iters, roof=True,
                                          threads=threads, machine=machine))
    return cases


def dtensor_cases(cases: list[Case]) -> list[Case]:
    """The cases of the lines DT - Row and DT - Column: DTensor on each problem of these cases, without replication (§5.2.1).

    Examples
    --------
    >>> [(case.algorithm, case.a, case.c) for case in dtensor_cases(mlp_cases(2, 16, "mlp1", 1)[:3])]
    [('dtensor', 'row', 'row'), ('dtensor', 'column', 'column')]
    """
    first = {(case.m, case.n, case.k): case for case in reversed(cases)}
    return [replace(case, algorithm="dtensor", options={}, preset=name, a=name, b=name, c=name)
            for case in reversed(first.values()) for name in ("row", "column")]


def run_mlp(ranks: int, scale: int, layer: str, iters: int, threads: int | None, out: str, machine: str) -> int:
    """Run, verify, record and draw; the exit code: 0, or 1 if a case is not ok.

    The CSV file is written anew: a row counts only if the whole run behind it was one.
    """
    say = Console(highlight=False, soft_wrap=True)
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}. Use a folder that can be made.") from None
    environ = _environment(say)
    stem = folder / f"{'mlp' if layer == 'both' else layer}-h{HIDDEN // scale}-p{ranks}"
    csv_path = stem.with_suffix(".csv")
    csv_path.unlink(missing_ok=True)
    cases = mlp_cases(ranks, scale, layer, iters, threads, machine)
    dtensor = get_peer("dtensor").available()
    if dtensor.ok:
        cases += dtensor_cases(cases)
    else:
        say.print(f"without DT - Row and DT - Column: {dtensor.what}. {dtensor.get}", markup=False)
    start, bad = time.monotonic(), []

    def on_case(index: int, summary: dict) -> None:
        case = cases[index]
        how = f"S-{case.options['stationary']} {case.c.partition('/')[2] or 'c1'}" if case.algorithm == "universal" else case.algorithm
        name = f"m={case.m} n={case.n} k={case.k} {case.preset} {how}"
        rate = f"{summary['gflops']:.0f} GFLOP/s, {summary['percent_of_roof']:.0f} % of roof" if summary["gflops"] else summary["reason"]
        if summary["status"] != "ok":
            bad.append(f"{name}: {summary['status']}: {summary['reason']}")
        progress.update(task, advance=1, description=f"{name}: {rate}")
        if not say.is_terminal and (index + 1) % 24 == 0:
            say.print(f"{index + 1}/{len(cases)} cases, {len(bad)} not ok, {time.monotonic() - start:.0f} s; {name}: {rate}")

    columns = (MofNCompleteColumn(), BarColumn(20), TimeRemainingColumn(), TextColumn("{task.description}"))
    say.print(f"{len(cases)} cases on {ranks} ranks, {iters} repeats each, every result verified")
    with Progress(*columns, console=say, disable=not say.is_terminal) as progress:
        task = progress.add_task("starting", total=len(cases))
        run_batch(cases, ranks, str(csv_path), on_case, environ)
    ok = sum(record.status == "ok" for record in read_csv(csv_path))
    say.print(f"{ok} of {len(cases)} cases ok in {time.monotonic() - start:.0f} s")
    for line in bad:
        say.print(f"not ok: {line}", style="red")
    if ok:
        _draw(say, csv_path, stem)
    say.print(f"records: {csv_path}")
    return 0 if ok == len(cases) else 1


def _draw(say, csv_path, stem) -> None:
    from plots.mlp import draw
    drawn = draw([csv_path], stem)
    for line in drawn.missing:
        say.print(f"not drawn: {line}")
    for path in drawn.paths:
        say.print(f"figure: {path}")


def _environment(say) -> dict:
    """The ranks' environment: without pins that hold the processor below its best kernels."""
    found = weaker_pins()
    if found is None:
        return dict(os.environ)
    held, free = found
    names = " and ".join(f"{name}={value}" for name, value in pinned().items())
    say.print(f"{names} holds this processor to {held.name} kernels ({held.flops_per_s / 1e9:.0f} GFLOP/s a thread); unset for this run: "
              f"{free.name} kernels reach {free.flops_per_s / 1e9:.0f} GFLOP/s")
    return without_pins()
