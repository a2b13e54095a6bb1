"""``drbench calibrate``: a machine model of this machine, measured."""

from __future__ import annotations

import os

import click

from drbench.errors import UsageError
from launch.host.mpi import launched, run_ranks, started_by_us

from .device_options import BACKEND

__all__ = ["calibrate"]


@click.command()
@click.option(
    "-p",
    "--ranks",
    type=click.IntRange(2),
    default=2,
    show_default=True,
    help="Ranks that measure at once, on one node.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False),
    required=True,
    metavar="FILE",
    help="TOML file whose section [model] is written; its other sections stay.",
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    default=None,
    help="BLAS threads a rank. [default: cores of the node // ranks on it]",
)
@click.option("--name", default="here", show_default=True, help="Name of the machine.")
@click.option(
    "--trials",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Measure everything this often; the best counts.",
)
@BACKEND
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600,
    show_default=True,
    help="Kill the ranks after this many seconds (exit 4).",
)
@click.pass_obj
def calibrate(arguments, ranks, out, threads, name, trials, backend, timeout):
    """Measure this machine, its cores or (--backend cupy) its GPUs, for the simulator: products,
    gets, accumulates, barriers, collectives. About 20 seconds.

    \b
      drbench calibrate -p 2 --out here.toml drbench simulate -m 2Ki -n 2Ki -k 2Ki --preset column
      --machine ./here.toml -p 2 --transport throttled:0.2,50
    """
    if backend == "cupy" and threads is not None:
        raise UsageError(
            "--threads sets BLAS threads of cores, and the backend is cupy. Leave it out."
        )
    if launched() is None and not started_by_us():
        from launch.host.kernels import pinned, without_pins

        folder = os.path.dirname(out) or "."
        if not os.path.isdir(folder):
            raise UsageError(f"--out {out}: no folder {folder}. Make it first.")
        if pinned():
            click.echo(
                f"{' and '.join(pinned())} unset for the measurement, as drbench mlp does", err=True
            )
        return run_ranks(ranks, list(arguments), timeout, without_pins())
    from mpi4py import MPI  # noqa: F401  (initialises)

    if backend != "numpy":
        from launch.ranks.calibrate_devices import calibrate_devices

        return calibrate_devices(out, threads, name, trials, backend)
    from launch.ranks.calibrate import calibrate_here

    return calibrate_here(out, threads, name, trials)
