"""``drbench compare-algorithms``: every algorithm on the layouts it takes, beside the universal one
on the very same tiles."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from drbench.errors import DrbenchError
from drbench.measure.record import Record
from launch.cases.case import Case
from launch.host.units import seconds

from .options import BACKEND, SIZE, TEXT, TRANSPORT, refuse_ranks

__all__ = ["compare_algorithms", "layout_cases"]

#: The matrix that stays in each dataflow, for the universal algorithm.
_STATIONARY = {"OS": "C", "LS": "A", "RS": "B", "AG": "B", "RdS": "B"}


def layout_cases(
    m: int, n: int, k: int, ranks: int, dataflows: list[str], meshes: list[str], **fields
) -> dict[str, list[Case]]:
    """Cases by layout: every algorithm with a ``mesh`` that takes it, then the universal one on the
    same tiles; the algorithms without one last.

    Examples
    --------
    >>> cases = layout_cases(64, 64, 64, 2, ["OS"], ["1x2"])
    >>> {layout: [case.algorithm for case in found] for layout, found in cases.items()}["OS on 1x2"]
    ['collective', 'meshslice', 'summa', 'wang', 'universal']
    """
    from algorithms import algorithms

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
            chosen = [(f"{name} {dataflow}", {"dataflow": dataflow}) for dataflow in ("AG", "RdS")]
        else:
            chosen = [(name, {})]
        for layout, options in chosen:
            try:
                problem = algorithm.problem(m, n, k, ranks, **options)
                algorithm.settle(problem, **options)
            except DrbenchError as error:
                if error.status != "unsupported":
                    raise
                continue  # not on this mesh: other meshes have it
            out.setdefault(layout, []).append(
                Case(m, n, k, algorithm=name, options=options, **fields)
            )
    for found in out.values():
        options = found[0].options
        texts = algorithms()[found[0].algorithm].layout(m, n, k, ranks, **options)
        found.append(
            Case(
                m,
                n,
                k,
                *texts,
                options={"stationary": _STATIONARY.get(options.get("dataflow"), "C")},
                **fields,
            )
        )
    return out


@click.command("compare-algorithms")
@click.option(
    "-p", "--ranks", type=click.IntRange(1), default=2, show_default=True, help="MPI ranks."
)
@click.option("-m", "m", type=SIZE, default=4096, show_default=True, help="Rows of A and C.")
@click.option("-n", "n", type=SIZE, default=4096, show_default=True, help="Columns of B and C.")
@click.option(
    "-k", "k", type=SIZE, default=4096, show_default=True, help="Columns of A, rows of B."
)
@click.option(
    "--dataflow",
    "dataflows",
    type=click.Choice(["OS", "LS", "RS"]),
    multiple=True,
    help="Only this dataflow of the 2-D algorithms. Repeatable.",
)
@click.option(
    "--mesh",
    "meshes",
    type=TEXT,
    multiple=True,
    metavar="ROWSxCOLS",
    help="Only this mesh. Repeatable. [default: every mesh of the ranks]",
)
@click.option(
    "--iters",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Timed repeats of each case.",
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    default=None,
    help="BLAS threads a rank. [default: 1; none on GPUs]",
)
@click.option(
    "--prefetch",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Look-ahead in products that need communication.",
)
@click.option(
    "--progress",
    "progress",
    type=click.Choice(["poll", "thread", "none"]),
    default="poll",
    show_default=True,
    help="Who drives MPI while a rank computes.",
)
@click.option(
    "--transport",
    type=TRANSPORT,
    default="auto",
    show_default=True,
    metavar="auto|direct|rma|throttled:GBps,us",
    help="As in drbench run.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="Longest a case may take, in seconds.",
)
@BACKEND
@click.option(
    "--machine", default="here", show_default=True, help="Name of the machine in the records."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    default=None,
    metavar="DIR",
    help="Keep the records here; what is there already is not run again.",
)
def compare_algorithms(ranks, m, n, k, dataflows, meshes, timeout, out, **fields):
    """Run all algorithms on one problem, each beside the universal one on the same layout, and
    print where the time goes.

    \b
      drbench compare-algorithms -p 4 -m 2048 -n 2048 -k 2048
      drbench compare-algorithms -p 4 --dataflow OS --mesh 2x2 --transport throttled:0.5,50 --out os
    """
    from algorithms.mesh import parse_mesh
    from launch.host.kernels import without_pins
    from launch.sweeps.lock import FolderLock
    from launch.sweeps.progress import SweepProgress, progress_console
    from launch.sweeps.store import Store, case_id
    from launch.sweeps.supervisor import Settings, run_cases
    from launch.sweeps.sweep import verdict

    refuse_ranks("compare-algorithms")
    if fields["backend"] != "cupy":
        fields["threads"] = fields["threads"] or 1
    for mesh in meshes:
        parse_mesh(mesh, ranks)
    meshes = list(meshes) or [
        f"{rows}x{ranks // rows}" for rows in range(1, ranks + 1) if ranks % rows == 0
    ]
    layouts = layout_cases(
        m, n, k, ranks, list(dataflows) or ["OS", "LS", "RS"], meshes, roof=True, **fields
    )
    pairs = [(case_id(case, ranks), case) for found in layouts.values() for case in found]
    say = progress_console()
    with ExitStack() as stack:
        folder = Path(
            out or stack.enter_context(tempfile.TemporaryDirectory(prefix="drbench-compare-"))
        )
        folder.mkdir(parents=True, exist_ok=True)
        lock = stack.enter_context(FolderLock(folder))
        store = Store(folder)
        store.open("compare-algorithms", ranks, [name for name, _ in pairs])
        todo = [(name, case) for name, case in pairs if name not in store.done]
        settings = Settings(ranks, timeout_s=timeout, environ=without_pins(dict(os.environ)))
        with SweepProgress(len(pairs), list(store.done.values()), say, lock.beat) as watch:
            run_cases(todo, store, settings, watch)
        say.print(
            f"C {m}x{n} = A {m}x{k} · B {k}x{n} on {ranks} ranks, transport "
            f"{fields['transport']}, prefetch {fields['prefetch']}"
        )
        for layout, found in layouts.items():
            say.print(_table(layout, [store.done[case_id(case, ranks)] for case in found]))
        if out:
            say.print(f"records: {store.records_path}", markup=False)
        return verdict(store.done.values())


def _table(layout: str, records: list[Record]) -> Table:
    """One layout: a row an algorithm, the fastest first."""
    table = Table(
        box=SIMPLE_HEAD,
        title=f"{layout}: A {records[-1].a}, B {records[-1].b}, C {records[-1].c}",
        title_justify="left",
        pad_edge=False,
    )
    table.add_column("algorithm")
    for name in (
        "best",
        "% of roof",
        "eff. comm.",
        "overlap",
        "get wait",
        "coll. wait",
        "gemm",
        "accumulate",
        "fence",
        "pack",
        "moved MB",
    ):
        table.add_column(name, justify="right")
    for r in sorted(records, key=lambda r: (r.status != "ok", r.best_s)):
        if r.status != "ok":
            table.add_row(r.algorithm, f"{r.status}: {r.reason}")
            continue
        moved = sum(
            getattr(r, f"{name}_bytes") or 0
            for name in ("get", "direct", "put", "accumulate", "collective", "replica")
        )
        phases = [
            "-" if r.phase_gemm_s is None else seconds(getattr(r, f"phase_{name}_s"))
            for name in ("get_wait", "collective_wait", "gemm", "accumulate", "fence", "pack")
        ]
        spread = (
            f"{r.percent_of_roof:.1f} ({r.percent_of_roof_min:.0f}-{r.percent_of_roof_max:.0f})"
        )
        efficiency = "-" if r.overlap_efficiency is None else f"{r.overlap_efficiency:.2f}"
        local = r.effective_communication_s
        table.add_row(
            r.algorithm,
            seconds(r.best_s),
            spread,
            f"-{seconds(-local)}" if local < 0 else seconds(local),
            efficiency,
            *phases,
            f"{moved / 1e6:.1f}",
        )
    return table
