"""The universal one-sided algorithm of *Slicing Is All You Need* (§4): any partitions, any
replication, get and accumulate."""

from collections.abc import Iterator

from algorithms.registry import Option, algorithm
from drbench.errors import UnsupportedError, UsageError
from drbench.model.machine import Machine
from drbench.program.problem import Operand, Problem
from drbench.program.replicas import broadcast_replica, reduce_replicas
from drbench.program.steps import Accumulate, Fence, Gemm, Get, Step, Zero
from partitions import Grid, LayoutError, parse_grid, summed

from .lowering import MAX_COMM, MAX_COMPUTE, SCHEDULES, lower
from .slicing import (
    Product,
    free_axis,
    grid_of,
    largest_matrix,
    on_grid,
    own_first_balances,
    result_stays,
    slices,
)

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
    grid: str | None = "auto",
    replicate_result: bool = False,
    schedule: str = "direct",
    ir_max_compute: int | None = None,
    ir_max_comm: int | None = None,
) -> dict:
    """Decide ``auto``: work goes by the grid that all matrices are stored once on, and C's terms
    stay; without one the largest matrix stays. Free ranges are cut only where tiles are not read in
    place."""
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
    found = _grid(problem, stationary, grid)
    if stationary == "auto":
        stationary = "C" if found else largest_matrix(problem.m, problem.n, problem.k)
    if chunk == "none":
        chunk = None
    elif chunk == "auto":
        free = free_axis(stationary)
        pieces, shortest = _CUTS[free]
        still = problem.operand(stationary)
        replicas = on_grid(problem, stationary, found) if found else still
        share = problem.extent(free) // replicas.partition.replicas
        chunk = None if in_place else max(shortest, -(-share // pieces))
    return {
        "stationary": stationary,
        "chunk": chunk,
        **({"grid": str(found)} if found else {}),
        "replicate_result": replicate_result,
        "schedule": schedule,
        **bounds,
    }


def _grid(problem: Problem, stationary: str, grid: str | None) -> Grid | None:
    """The grid that work goes by; None if it goes by the tiles of the stationary matrix."""
    if grid == "auto":
        return grid_of(problem) if stationary == "auto" else None
    if grid in (None, "none"):
        return None
    try:
        found = parse_grid(grid)
    except LayoutError as error:
        raise UsageError(f"--grid: {error}.") from None
    if found.size > problem.nprocs:
        raise UsageError(
            f"--grid {found} needs {found.size} ranks, got {problem.nprocs}. Use a smaller grid."
        )
    return found


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
    Option(
        "grid",
        metavar="PMxPNxPK|auto|none",
        help="who multiplies what: rank (i, j, l) of a grid over m, n and k block (i, j, l) of the "
        "products, wherever the matrices lie. none: the owners of the stationary matrix their "
        "tiles; auto: a grid where all matrices are stored once on it (preset optimal).",
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
    grid : str, optional
        ``"PMxPNxPK"``: rank (i, j, l) does block (i, j, l) of the products (Agarwal et al., "A
        three-dimensional approach to parallel matrix multiplication", 1995), and what is stationary
        says which of its blocks it keeps while the others pass; ranks beyond the grid do none.
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
    grid = settled.get("grid")
    work = on_grid(problem, settled["stationary"], parse_grid(grid)) if grid else None
    steps = _direct(problem, rank, settled["stationary"], settled["chunk"], work, replicate_result)
    if settled["schedule"] == "direct":
        return steps
    bounds = settled["ir_max_compute"], settled["ir_max_comm"]
    return lower(steps, problem, rank, settled["schedule"], *bounds, machine)


def _direct(
    problem: Problem,
    rank: int,
    stationary: str,
    chunk: int | None,
    work: Operand | None,
    replicate_result: bool,
) -> Iterator[Step]:
    """The steps in the order of the slicing."""
    c, groups = problem.c, slices(problem, rank, stationary, chunk, work)
    if work is None:
        stays = result_stays(problem, stationary)
    else:
        stays = stationary == "C" and work.partition == c.partition
    if stays:
        for group in groups:
            yield from _multiplied(group, in_place=True)  # C[m, n] += A[m, k] · B[k, n]
    else:
        others = []
        if work is None and own_first_balances(
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
        sums: dict = {}
        kept: dict = {stationary: {}} if work else {}
        for group in others:
            yield from _multiplied(group, False, sums, kept)

    if c.partition.replicas > 1 or not stays:
        yield Fence()  # the partial results are complete
    if c.partition.replicas > 1:
        yield from reduce_replicas(c, rank)  # replica 0 += the others, of every term of a sum
    if replicate_result:
        yield from broadcast_replica(c, rank)


def _multiplied(
    group: list[Product], in_place: bool, sums: dict | None = None, kept: dict | None = None
) -> Iterator[Step]:
    """Products written into this rank's own tiles of C, in place; or for other ranks' tiles: the
    sum over the pieces of k goes to the owner of C[m, n] once. A block that several of them use is
    fetched once; ``sums`` and the blocks of the matrices in ``kept`` last longer than a group."""
    held: dict = {}
    sums, kept = {} if sums is None else sums, kept or {}
    for left, right, c, first, last in group:
        of_a, of_b = kept.get("A", held), kept.get("B", held)
        if (a := of_a.get(left)) is None:
            a = of_a[left] = yield Get(left)
        if (b := of_b.get(right)) is None:
            b = of_b[right] = yield Get(right)
        if in_place:
            yield Gemm(a, b, into=c)
            continue
        sums[c] = yield Gemm(a, b, into=None if first else sums[c])
        if last:
            yield Accumulate(sums.pop(c), c)
