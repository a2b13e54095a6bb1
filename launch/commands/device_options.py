"""Options of commands that run products on devices."""

from __future__ import annotations

import importlib.util

import click

from drbench.errors import MissingError

__all__ = ["BACKEND", "device_options", "installed"]


def installed(context, parameter, value):
    """Refuse cupy where it is not installed, before any rank is started. (Whether there is a GPU,
    the ranks' nodes know.)"""
    if value == "cupy" and importlib.util.find_spec("cupy") is None:
        raise MissingError(
            "--backend cupy needs CuPy, which is not installed. pip install 'drbench[cuda12]' or "
            "'drbench[cuda13]', as the driver has it."
        )
    return value


BACKEND = click.option(
    "--backend",
    type=click.Choice(["numpy", "numpy-async", "cupy"]),
    default="numpy",
    show_default=True,
    callback=installed,
    help="Where products run. numpy: cores; cupy: GPUs; numpy-async: the executor of GPUs on "
    "worker threads (to test it, its times mean nothing).",
)


def device_options(command):
    """Add ``--backend`` and what only devices obey to a command."""
    for option in reversed(
        [
            BACKEND,
            click.option(
                "--compute",
                type=click.Choice(["tf32"]),
                default=None,
                help="cupy: multiply float32 in TF32, which keeps 10 bits of the fraction. "
                "[default: true float32]",
            ),
            click.option(
                "--max-gemms",
                type=click.IntRange(1),
                default=None,
                help="Devices: products that may run at the same time. [default: 1]",
            ),
            click.option(
                "--max-accumulates",
                type=click.IntRange(1),
                default=None,
                help="Devices: accumulates that may run at the same time. [default: 1]",
            ),
            click.option(
                "--accumulate-blocks",
                type=click.IntRange(1),
                default=None,
                help="cupy: most thread blocks of an accumulate, so that products keep the other "
                "processors. [default: no limit]",
            ),
            click.option(
                "--collectives",
                type=click.Choice(["nccl", "gpu-aware", "staged"]),
                default=None,
                help="Devices: who moves what collectives and other nodes need. nccl: one rank a "
                "GPU; gpu-aware: MPI reads device memory; "
                "staged: through pinned host memory. [default: the first that can, found by "
                "asking and trying; recorded]",
            ),
        ]
    ):
        command = option(command)
    return command
