"""``drbench compare-algorithms``: every algorithm on the layouts it takes, beside the universal one
on the very same tiles."""

from __future__ import annotations

import click

from partitions import divisors

from .options import BACKEND, SIZE, TEXT, TRANSPORT, refuse_ranks

__all__ = ["compare_algorithms"]


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
    from launch.studies.compare_algorithms import layout_cases, run_layouts

    refuse_ranks("compare-algorithms")
    if fields["backend"] != "cupy":
        fields["threads"] = fields["threads"] or 1
    for mesh in meshes:
        parse_mesh(mesh, ranks)
    meshes = list(meshes) or [f"{rows}x{ranks // rows}" for rows in divisors(ranks)]
    layouts = layout_cases(
        m, n, k, ranks, list(dataflows) or ["OS", "LS", "RS"], meshes, roof=True, **fields
    )
    return run_layouts(layouts, ranks, timeout, out)
