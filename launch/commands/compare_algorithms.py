"""``drbench compare-algorithms``: every algorithm on the layouts it takes, beside the universal one
on the very same tiles."""

from dataclasses import replace

import click

from partitions import divisors

from .guards import default_ranks, go_on, refuse_too_many
from .options import (
    TEXT,
    command,
    label_option,
    of_case,
    option,
    out_option,
    pairs_option,
    peak_option,
    ranks_option,
    refuse_ranks,
    take_options,
    timeout_option,
    yes_option,
)


@command("compare-algorithms")
@ranks_option()
@of_case("m", "n", "k", default=4096)
@of_case("transpose", "alpha", "beta")
@option(
    "--dataflow",
    "dataflows",
    type=click.Choice(["OS", "LS", "RS"]),
    multiple=True,
    help="Only this dataflow of the 2-D algorithms. Repeatable.",
)
@option(
    "--mesh",
    "meshes",
    type=TEXT,
    multiple=True,
    metavar="ROWSxCOLS",
    help="Only this mesh. Repeatable. [default: every mesh of the ranks]",
)
@of_case("iters", default=5, help="Rounds, and timed repeats in the first, at least; see --budget.")
@of_case(
    "budget",
    help="Rounds go on until the ratio to the fastest on the layout is known within 2 %, or for so "
    "long each, as do repeats in the first; 0: --iters.",
)
@of_case("threads", says="1; none on GPUs")
@of_case("transport", "backend")
@pairs_option("prefetch", "progress", "collectives", help="As of run. Repeatable.")
@label_option()
@peak_option()
@yes_option()
@timeout_option(default=300.0)
@out_option()
def compare_algorithms(ranks, dataflows, meshes, timeout, out, peak, yes, **fields):
    """Run all algorithms on one problem, each beside the universal one on the same layout, and
    print which is the fastest and where the time goes.

    \b
      drbench compare-algorithms -p 4 -m 2048 -n 2048 -k 2048
      drbench compare-algorithms -p 4 --dataflow OS --mesh 2x2 --transport throttled:0.5,50 --out os
    """
    from algorithms.mesh import parse_mesh
    from launch.cases.case import Case
    from launch.cases.peak_files import read_peaks
    from launch.studies.compare_algorithms import layout_cases, run_layouts
    from launch.sweeps.estimate import long_time

    refuse_ranks("compare-algorithms")
    take_options(fields)
    if fields["backend"] != "cupy":
        fields["threads"] = fields["threads"] or 1
    ranks = ranks or default_ranks(fields["threads"], fields["backend"])
    refuse_too_many(ranks, fields["threads"], yes)
    for mesh in meshes:
        parse_mesh(mesh, ranks)
    meshes = list(meshes) or [f"{rows}x{ranks // rows}" for rows in divisors(ranks)]
    base = Case(**fields, roof=True)
    layouts = layout_cases(base, ranks, list(dataflows) or ["OS", "LS", "RS"], meshes)
    if base.backend == "numpy":
        cases = [case for found in layouts.values() for case in found]
        # the first round, and those that are timed only
        again = [replace(case, roof=False) for case in cases]
        long = long_time([*cases, *again], ranks, base.threads)
        go_on(long, "drbench compare-algorithms", yes, "fewer --mesh and --dataflow")
    return run_layouts(layouts, ranks, timeout, out, read_peaks(peak, [base]))
