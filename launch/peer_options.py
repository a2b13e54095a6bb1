"""Options of ``drbench run`` that belong to peers."""

from __future__ import annotations

import click

from .params import SIZE, TEXT

__all__ = ["PEER_OPTIONS", "peer_options"]

PEER_OPTIONS = ("block", "mesh", "panel", "variant", "device")


def peer_options(command):
    """Add the options of peers to a command."""
    for option in reversed([
        click.option("--block", type=SIZE, default=None, metavar="SIZE", help="scalapack: rows and columns of a block-cyclic tile. [default: 64]"),
        click.option("--mesh", type=TEXT, default=None, metavar="PRxPC", help="scalapack: process grid, as 2x3. [default: near-square]"),
        click.option("--panel", type=SIZE, default=None, metavar="SIZE", help="scalapack: width of the panels that p?gemm broadcasts. [default: as built]"),
        click.option("--variant", type=TEXT, default=None, help="pylops: summa or block [default: summa]; cosma: forced splits, such as sm2,pk2 [default: its own choice]."),
        click.option("--device", type=click.Choice(["cpu", "cuda"]), default=None, help="dtensor, heat: where the operands are. [default: cpu]"),
    ]):
        command = option(command)
    return command
