"""Options of ``drbench run`` that belong to peers alone."""

from __future__ import annotations

import click

from .params import TEXT

__all__ = ["PEER_OPTIONS", "peer_options"]

PEER_OPTIONS = ("variant", "device")


def peer_options(command):
    """Add the options that only peers take to a command."""
    for option in reversed(
        [
            click.option(
                "--variant",
                type=TEXT,
                default=None,
                help="pylops: summa or block [default: summa]; cosma: forced splits, such as "
                "sm2,pk2 [default: its own choice].",
            ),
            click.option(
                "--device",
                type=click.Choice(["cpu", "cuda"]),
                default=None,
                help="dtensor, heat: where the operands are. [default: cpu]",
            ),
        ]
    ):
        command = option(command)
    return command
