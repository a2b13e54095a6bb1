"""The universal one-sided algorithm of *Slicing Is All You Need* (§4): any partitions, any
replication, get and accumulate."""

from collections.abc import Iterator

from algorithms.registry import Option, algorithm
from drbench.errors import UnsupportedError, UsageError
from drbench.model.machine import Machine
from drbench.program.problem import Problem
from drbench.program.replicas import broadcast_replica, reduce_replicas
from drbench.program.steps import Accumulate, Fence, Gemm, Get, Step, Zero
from partitions import summed

from .lowering import MAX_COMM, MAX_COMPUTE, SCHEDULES, lower
from .slicing import Product, free_axis, largest_matrix, own_first_balances, result_stays, slices

#: Where tiles are not read in place the free axis is cut, so that transfers overlap with products:
#: into this many pieces, none shorter than the second number of elements. Products lose next to
#: nothing when k is cut, but much when m or n is.
_CUTS = {"k": (16, 256), "m": (4, 1024), "n": (4, 1024)}


def settle(
    problem: Problem,
    in_place: bool = True,
    *,
    stationary: str = "auto",
    chunk: int | str | None = "auto",
    replicate_result: bool = False,
    schedule: str = "direct",
    ir_max_compute: int | None = None,
    ir_max_comm: int | None = None,
) -> dict:
    """Decide ``auto``: the largest matrix stays; free ranges are cut only where tiles are not read
    in place."""
    for operand in (problem.a, problem.b):
        if operand.partition.terms > 1:
            raise UnsupportedError(
                f"{operand.name} as {operand.partition.text} is Partial: its sum is pending "
                "(implementation). Redistribute it first, for example to "
                f"{summed(operand.partition).text}; C may be Partial."
            )
    bounds = {"ir_max_compute": ir_max_compute, "ir_max_comm": ir_max_comm}
    for name, bound in bounds.items():
        if bound is not None and schedule == "direct":
            raise UsageError(
                f"--{name.replace('_', '-')} bounds the operations of a lowered program, but the "
                "schedule is direct. Use --schedule greedy, cost or exhaustive."
            )
    if schedule != "direct":
        bounds = {
            "ir_max_compute": ir_max_compute or MAX_COMPUTE,
            "ir_max_comm": ir_max_comm or MAX_COMM,
        }
    if stationary not in ("A", "B", "C", "auto"):
        raise UsageError(f"stationary must be A, B, C or auto, got {stationary!r}.")
    if stationary == "auto":
        stationary = largest_matrix(problem.m, problem.n, problem.k)
    if chunk == "none":
        chunk = None
    elif chunk == "auto":
        free = free_axis(stationary)
        pieces, shortest = _CUTS[free]
        share = problem.extent(free) // problem.operand(stationary).partition.replicas
        chunk = None if in_place else max(shortest, -(-share // pieces))
    return {
        "stationary": stationary,
        "chunk": chunk,
        "replicate_result": replicate_result,
        "schedule": schedule,
        **bounds,
    }


REPLICATE_RESULT = Option(
    "replicate_result",
    bool,
    False,
    help="give the finished C to all its replicas (timed), not only to replica 0.",
)
OPTIONS = (
    Option(
        "stationary",
        ("auto", "auto:model", "A", "B", "C"),
        help="the matrix whose tiles do not move; auto takes the largest (on a tie C, then B), "
        "auto:model the fastest on the model of --machine, without one the one that moves least.",
        says="auto",
    ),
    Option(
        "chunk",
        int,
        least=1,
        unit="elements",
        words=("auto", "none"),
        metavar="SIZE|auto|none",
        help="longest range of the free axis one product covers, in elements: short ranges overlap "
        "better, long ones multiply faster. auto: as long as tiles allow where tiles are read in "
        "place, elsewhere 1/16 of k or 1/4 of m or n; none: never cut.",
        says="auto",
    ),
    REPLICATE_RESULT,
    Option(
        "schedule",
        SCHEDULES,
        help="order of a rank's products and transfers. direct: as the slicing yields them, "
        "transfers ahead by --prefetch; the others lower the program to operations of bounded "
        "concurrent products and transfers: first come first served, by a cost model (simulate: "
        "the machine's), or the cheapest of all by that model (small programs only).",
        says="direct",
    ),
    Option(
        "ir_max_compute",
        int,
        least=1,
        help="lowered: most computes in one operation.",
        says=str(MAX_COMPUTE),
    ),
    Option(
        "ir_max_comm",
        int,
        least=1,
        help="lowered: most transfers in one operation.",
        says=str(MAX_COMM),
    ),
)


@algorithm("universal", options=OPTIONS, settle=settle)
def program(
    problem: Problem,
    rank: int,
    *,
    replicate_result: bool = False,
    machine: Machine | None = None,
    **options,
) -> Iterator[Step]:
    """One-sided, for any partitioning and replication of A, B and C (Slicing Is All You Need).

    Parameters
    ----------
    stationary : str
        ``"A"``, ``"B"``, ``"C"``: the matrix whose tiles do not move; ``"auto"``: the largest.
    chunk : int, optional
        Longest range of the free axis in one product; smaller chunks overlap better and multiply
        slower.
    replicate_result : bool
        Give the finished C to every replica of it, not only to replica 0.
    schedule : str
        ``"direct"``: in the order of the slicing; or one of the strategies of
        :mod:`algorithms.universal.lowering`.
    ir_max_compute, ir_max_comm : int, optional
        Most computes and most transfers in one operation of a lowered program.
    machine : Machine, optional
        Whose times the schedules ``cost`` and ``exhaustive`` go by.
    """
    settled = settle(problem, **options)
    steps = _direct(problem, rank, settled["stationary"], settled["chunk"], replicate_result)
    if settled["schedule"] == "direct":
        return steps
    bounds = settled["ir_max_compute"], settled["ir_max_comm"]
    return lower(steps, problem, rank, settled["schedule"], *bounds, machine)


def _direct(
    problem: Problem, rank: int, stationary: str, chunk: int | None, replicate_result: bool
) -> Iterator[Step]:
    """The steps in the order of the slicing."""
    c, groups = problem.c, slices(problem, rank, stationary, chunk)
    stays = result_stays(problem, stationary)
    if stays:
        for group in groups:
            yield from _multiplied(group, in_place=True)  # C[m, n] += A[m, k] · B[k, n]
    else:
        others = []
        if own_first_balances(
            problem, stationary
        ):  # first what stays here: nobody accumulates yet, so these
            for group in groups:  # products go straight into the tile they start
                if all(product.c.owner == rank for product in group):
                    yield from _multiplied(group, in_place=True)
                else:
                    others.append(group)
        else:
            for tile in c.own_tiles(rank):
                yield Zero(tile)
            others = groups
        yield Fence()  # every tile is ready for everyone's accumulates
        for group in others:
            yield from _multiplied(group, in_place=False)

    if c.partition.replicas > 1 or not stays:
        yield Fence()  # the partial results are complete
    if c.partition.replicas > 1:
        yield from reduce_replicas(c, rank)  # replica 0 += the others, of every term of a sum
    if replicate_result:
        yield from broadcast_replica(c, rank)


def _multiplied(group: list[Product], in_place: bool) -> Iterator[Step]:
    """Products written into this rank's own tiles of C, in place; or for other ranks' tiles: the
    sum over the pieces of k goes to the owner of C[m, n] once. A block that several of them use is
    fetched once."""
    held: dict = {}
    partial: Step | None = None
    for left, right, c, first, last in group:
        if (a := held.get(left)) is None:
            a = held[left] = yield Get(left)
        if (b := held.get(right)) is None:
            b = held[right] = yield Get(right)
        if in_place:
            yield Gemm(a, b, into=c)
            continue
        partial = yield Gemm(a, b, into=None if first else partial)
        if last:
            yield Accumulate(partial, c)
