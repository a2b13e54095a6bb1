"""Lines that describe the decisions of the universal algorithm, with reasons (``drbench plan``)."""

from collections.abc import Sequence
from math import prod

from drbench.model.machine import Machine
from drbench.program.problem import Problem

from .arrival import cut_along, gemms_of
from .footprint import Footprint
from .options import Resolved, decide, why_accumulated
from .program import choose_packing_of


def why(
    problem: Problem,
    in_place: bool = True,
    *,
    ranks: Sequence[int] = (0,),
    machine: Machine | None = None,
    **options,
) -> list[str]:
    """Lines that describe the decisions on ``sums``, ``work=level`` and ``pack``, with reasons;
    none for usual ones.

    Examples
    --------
    >>> problem = Problem(4096, 4096, 4096, 2, a="row", b="row", c="row")
    >>> for in_place in (True, False):
    ...     print(*why(problem, in_place, stationary="B", sums="auto"))
    partial sums are accumulated: every tile is read and added to in place
    partial sums are pushed: m is cut into tiles of 512; slots for 33554432 bytes on rank 0, ...
    >>> tall = Problem(4096, 4096, 4096, 2, a="tiles:512x4096@2x1", b="row", c="row")
    >>> print(*why(tall, stationary="C", pack="always"))
    packed, rank 0: 2 GEMMs of at most 2048x4096x2048 for 8 of blocks, 8388608 elements copied...
    >>> uneven = Problem(4096, 4096, 4096, 2, b="tiles:1300x1700@1x2")
    >>> print(*why(uneven, stationary="B", work="level"))
    level work: 1425408 elements of B are multiplied by another rank than their owner; the...
    """
    resolved = decide(problem, in_place, **options)
    pushes, lines = resolved.sums == "push", []
    if pushes:
        lines.append(_describe_pushed(resolved))
    elif options.get("sums") == "auto" or (problem.nodes and "sums" not in options):
        reason = why_accumulated(resolved, in_place) or "pack=always is set"
        lines.append(f"partial sums are accumulated: {reason}")
    if options.get("work") == "level":
        lines.append(_describe_level(resolved))
    for rank in ranks if not pushes else ():
        if packing := choose_packing_of(
            resolved, resolved.share(rank, machine, Footprint), machine
        ):
            lines.append(f"packed, rank {rank}: {packing.description}")
    return lines


def _describe_level(resolved: Resolved) -> str:
    """A line about the work that ``work=level`` moves."""
    stationary = resolved.stationary
    stored = resolved.problem.operand(stationary).partition
    if resolved.layout is None:
        return f"work is level: no rank holds more than its share of {stationary}"
    ranks = range(resolved.problem.nprocs)
    before, after = (
        [prod(partition.local_shape(rank)) for rank in ranks]
        for partition in (stored, resolved.layout.partition)
    )
    mean = sum(before) / len(before)
    moved = sum(max(0, old - new) for old, new in zip(before, after)) // stored.replicas
    return (
        f"level work: {moved} elements of {stationary} are multiplied by another rank than their "
        f"owner; the busiest rank has {max(after) / mean:.3f} times the mean, "
        f"{max(before) / mean:.3f} before"
    )


def _describe_pushed(resolved: Resolved) -> str:
    """A line about how partial sums are pushed."""
    problem, tile = resolved.problem, resolved.chunk
    axes = {
        cut_along(gemms_of(resolved.share(rank)), rank, resolved.stationary)
        for rank in range(problem.nprocs)
    }
    cut = "nothing is cut"
    if tile:
        cut = f"{' or '.join(sorted(axes, reverse=True))} is cut into tiles of {tile}"
    slots = resolved.partial_sums().slots
    most = max(slots)
    needed = f"slots for {most * problem.itemsizes['C']} bytes on rank {slots.index(most)}"
    if not most:
        return f"partial sums are pushed: {cut}; no slots, for no rank adds to the tiles of another"
    return f"partial sums are pushed: {cut}; {needed}, the most"
