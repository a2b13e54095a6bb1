"""Process rows and columns whose members do the same at the same time: a simulation needs only one
of these members.

On a torus with equal links, chips whose programs are *congruent* (the same steps on values of the
same shapes, the same neighbours relative to themselves) run synchronously: by induction over the
events each starts and finishes its n-th step when all others do. A collective then begins when one
member has arrived, a shift between neighbours likewise, and a chip's own outgoing links represent
those of the whole ring, as no other chip uses them. So the time is that of one chip;
``tests/model/test_folding.py`` compares it with a simulation of all chips.

The root of a broadcast may also pack its block. But all members leave the broadcast together, so
the group stays synchronous, as if every member packed. This does not hold after a reduction whose
root unpacks.
"""

from collections.abc import Collection

from drbench.program.problem import Problem
from drbench.program.trace import Trace

from .machine import Machine


def even(problem: Problem) -> bool:
    """True if every rank holds one tile of each matrix, and all tiles of a matrix have the same
    shape.

    Examples
    --------
    >>> (
    ...     even(Problem(8, 8, 8, 4)),
    ...     even(Problem(8, 7, 8, 4)),
    ...     even(Problem(8, 8, 8, 4, b="tiles:2x2@2x2")),
    ... )
    (True, False, False)
    """
    partitions = [operand.partition for operand in problem.operands]
    return all(
        p.replicas == 1
        and p.grid is not None
        and p.shape == (p.tile_shape[0] * p.grid.rows, p.tile_shape[1] * p.grid.cols)
        for p in partitions
    )


def fits_torus(trace: Trace, machine: Machine, folded: Collection[str]) -> bool:
    """True if the folded groups are whole rings of the machine's torus, in which every chip
    communicates only with its neighbours, on links of its own.

    Examples
    --------
    >>> from drbench.algorithms import get_algorithm
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Link
    >>> algorithm = get_algorithm("collective")
    >>> problem = algorithm.problem(8, 8, 8, 8, mesh="2x4")
    >>> trace = algorithm.trace(problem, 0, **algorithm.resolve(problem, mesh="2x4"))
    >>> ici = (Link("ici", 1e9, shared="pair"),)
    >>> [
    ...     fits_torus(trace, Machine("t", Compute(1e12), ici, devices=8, torus=torus), ("row",))
    ...     for torus in ((2, 4), (4, 2))
    ... ]
    [True, False]
    """
    if (
        machine.torus is None
        or machine.adds_on_core
        or machine.links[0].shared != "pair"
        or machine.devices != trace.problem.nprocs
    ):
        return False
    rows, cols = machine.torus
    row, col = divmod(trace.rank, cols)
    rings = tuple(range(row * cols, (row + 1) * cols)), tuple(range(col, rows * cols, cols))
    return all(len(group) == 1 or group.members in rings for group in trace.groups) and all(
        step.ring().hops <= 1
        for step in trace.steps
        if step.grouped and step.kind == "shift" and step.group.name in folded
    )


def packed_by_any(step) -> int:
    """Most elements that a member of a group step packs before it."""
    if step.kind != "pipeline":
        return step.packs(always=False)[0]
    return 0 if step.sums or len(step.group) == 1 or step.fragment.contiguous else step.shard()
