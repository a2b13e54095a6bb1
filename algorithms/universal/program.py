"""The universal one-sided algorithm of *Slicing Is All You Need* (§4): any partitions, any
replication, get and accumulate.

Every rank runs one of three programs, each in a file of its own:

==============  ===========================================  ===================================
``algorithm1``  Algorithm 1 of the paper: get, multiply,     where neither other one is chosen
                accumulate
``packed``      few large GEMMs of blocks that are copied    each rank, where ``packing`` finds
                together first                               that this saves time
``pushed``      partial sums are pushed to their owners,     all ranks with ``sums=push``, in
                who add them                                 the order of ``arrival``
==============  ===========================================  ===================================
"""

from collections.abc import Iterable, Iterator

from drbench.algorithms.lowering.lowering import lower
from drbench.algorithms.registry import algorithm
from drbench.model.machine import Machine
from drbench.program.problem import Problem
from drbench.program.replicas import broadcast_replica, reduce_replicas
from drbench.program.steps import Fence, Step, Steps

from .algorithm1 import Round, local_gemms, multiply
from .arrival import arrivals
from .distribution import own_first_balances
from .fetch import Operands
from .footprint import Footprint
from .options import OPTIONS, Resolved, decide, pushes, resolve
from .packed import multiply_packed
from .packing import CORES, Packing, choose_packing, cores
from .pushed import multiply_pushed


@algorithm("universal", options=OPTIONS, resolve=resolve, signals=pushes)
def program(
    problem: Problem,
    rank: int,
    *,
    machine: Machine | None = None,
    **options,
) -> Iterable[Step]:
    """One-sided, for any partitioning and replication of A, B and C (Slicing Is All You Need).

    Parameters
    ----------
    problem : Problem
    rank : int
    machine : Machine, optional
        The performance model for the schedules ``cost`` and ``exhaustive``, the order of pushed
        partial sums, and packing.
    **options
        As in :func:`~drbench.algorithms.universal.options.decide`.
    """
    resolved = decide(problem, **options)
    steps = _with_replicas(_multiply(resolved, rank, machine), resolved, rank)
    return lower(steps, problem, rank, resolved.schedule, machine)


def _multiply(resolved: Resolved, rank: int, machine: Machine | None) -> Steps:
    """The steps of one rank, without the reduction of replicas."""
    share, chunk = resolved.share(rank, machine, Footprint), resolved.chunk
    if resolved.sums == "push":
        work = resolved.stationary, resolved.work, resolved.choose_offset(machine)
        all_ranks = arrivals(resolved.problem, *work, chunk, machine)
        yield from multiply_pushed(share, all_ranks, resolved.fetch)
        return
    is_local, first = resolved.result_is_local, own_tiles_first(resolved)
    if packing := choose_packing_of(resolved, share, machine):
        yield from multiply_packed(share, packing, first, is_local)
        return
    rounds: Iterable[Round] = local_gemms(share, chunk)
    if first:
        rounds = _own_first(rounds, rank)
    elif not is_local:
        rounds = _fence_first(rounds)
    yield from multiply(share, rounds, Operands(share, resolved.fetch))


def own_tiles_first(resolved: Resolved) -> bool:
    """Whether ranks multiply for their own tiles of C before a Fence, then for those of others."""
    if resolved.result_is_local or resolved.layout:
        return False
    return own_first_balances(resolved.problem, resolved.stationary)


def _own_first(rounds: Iterable[Round], rank: int) -> Iterator[Round]:
    """The rounds: first those whose GEMMs are all for own tiles, then a Fence."""
    others = []
    for round_ in rounds:
        if all(gemm.c.owner == rank for gemm in round_.gemms):
            yield round_
        else:
            others.append(round_)
    yield from _fence_first(others)


def _fence_first(rounds: Iterable[Round]) -> Iterator[Round]:
    """The rounds after a Fence."""
    yield Round([], fence=True)
    yield from rounds


def choose_packing_of(
    resolved: Resolved, share: Footprint, machine: Machine | None
) -> Packing | None:
    """The packing of a rank's blocks with these options; None if they are not packed."""
    always = resolved.pack == "always"
    if resolved.pack == "never" or not (always or (machine and machine.adds_on_core)):
        return None
    machine = machine or cores(resolved.problem.type_of("A")) or CORES
    copies = resolved.result_is_local or own_tiles_first(resolved)
    return choose_packing(share, resolved.chunk, machine, copies, always)


def _with_replicas(steps: Steps, resolved: Resolved, rank: int) -> Steps:
    """The steps, then the reduction and broadcast of replicas of C."""
    c = resolved.problem.c
    yield from steps
    if c.partition.replicas > 1 or not resolved.result_is_local:
        yield Fence()  # the partial results are complete
    if c.partition.replicas > 1:
        yield from reduce_replicas(c, rank, how=resolved.reduce)  # replica 0 += the others
    if resolved.replicate_result:
        yield from broadcast_replica(c, rank)
