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
from .signalled import cuts, signalled, slots, tile_of
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

#: With ``--signals auto`` slots may take as much memory as a rank's tiles, this many times.
_SLOTS = 1


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
    signals: str = "never",
    tile: int | None = None,
) -> dict:
    """Decide ``auto``: work goes by the grid that all matrices are stored once on, and C's terms
    stay; without one the largest matrix stays. Free ranges are cut only where tiles are not read in
    place. Sums for other ranks are pushed where transfers take time, and slots are bounded."""
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
    if signals == "always":
        if grid not in (None, "auto", "none"):
            raise UsageError(
                f"--signals always goes by the tiles of the stationary matrix, --grid {grid} by a "
                "grid. Leave one of them out."
            )
        grid = "none"
    found = _grid(problem, stationary, grid)
    if stationary == "auto":
        stationary = "C" if found else largest_matrix(problem.m, problem.n, problem.k)
    if signals == "always" and type(chunk) is int:
        raise UsageError(
            "--chunk cuts what is moved without signals, with signals it is cut by --tile. Use "
            "one of them."
        )
    if chunk == "none":
        chunk = None
    elif chunk == "auto":
        free = free_axis(stationary)
        pieces, shortest = _CUTS[free]
        still = problem.operand(stationary)
        replicas = on_grid(problem, stationary, found) if found else still
        share = problem.extent(free) // replicas.partition.replicas
        chunk = None if in_place else max(shortest, -(-share // pieces))
    settled = {
        "stationary": stationary,
        "chunk": chunk,
        **({"grid": str(found)} if found else {}),
        "replicate_result": replicate_result,
        "schedule": schedule,
        **bounds,
    }
    if signals == "never" and tile is not None:
        raise UsageError(
            "--tile cuts what travels with a signal, but there are no signals. Use --signals "
            "always or auto, or --chunk."
        )
    if signals == "always" and schedule != "direct":
        raise UsageError(
            f"--signals always orders products by what arrives, --schedule {schedule} by "
            "operations. Leave one of them out."
        )
    told = why_no_signals(problem, stationary, in_place, signals, schedule, settled.get("grid"))
    if told:
        return settled
    if tile is None and not in_place:
        tile = tile_of(problem, stationary)
    return settled | {"chunk": None, "signals": "always"} | ({"tile": tile} if tile else {})


def why(problem: Problem, in_place: bool = True, **options) -> list[str]:
    """What ``--signals`` comes to, and why; nothing if there are none and none were asked for.

    Examples
    --------
    >>> problem = Problem(4096, 4096, 4096, 2, a="row", b="row", c="row")
    >>> for in_place in (True, False):
    ...     print(*why(problem, in_place, stationary="B", signals="auto"))
    no signals: every tile is read and added to in place
    signalled: m is cut into tiles of 512; slots for 33554432 bytes on rank 0, the most
    """
    asked = options.get("signals", "never")
    if asked == "never":
        return []
    settled = settle(problem, in_place, **options)
    stationary = settled["stationary"]
    if not _signals(**settled):
        how = settled["schedule"], settled.get("grid")
        return [f"no signals: {why_no_signals(problem, stationary, in_place, asked, *how)}"]
    axes = sorted({cuts(problem, rank, stationary) for rank in range(problem.nprocs)}, reverse=True)
    tile = settled.get("tile")
    cut = f"{' or '.join(axes)} is cut into tiles of {tile}" if tile else "nothing is cut"
    elements = slots(problem, stationary)
    most = max(elements)
    held = (
        f"slots for {most * problem.itemsizes['C']} bytes on rank {elements.index(most)}, the most"
        if most
        else "no slots, for no rank adds to the tiles of another"
    )
    return [f"signalled: {cut}; {held}"]


def why_no_signals(
    problem: Problem,
    stationary: str,
    in_place: bool,
    signals: str = "auto",
    schedule: str = "direct",
    grid: str | None = None,
) -> str | None:
    """Why ``--signals`` has none, in words; None if it has.

    Examples
    --------
    >>> problem = Problem(8, 8, 8, 2, a="row", b="row", c="row")
    >>> why_no_signals(problem, "B", True)
    'every tile is read and added to in place'
    >>> why_no_signals(problem, "C", False), why_no_signals(problem, "B", False)
    ('no rank adds to the tiles of another', None)
    """
    if signals == "never":
        return "they are not asked for"
    if signals == "always":
        return None
    if schedule != "direct":
        return f"the schedule {schedule} has operations"
    if grid:
        return f"products go by the grid {grid}"
    if result_stays(problem, stationary):
        return "no rank adds to the tiles of another"
    if in_place:
        return "every tile is read and added to in place"
    sizes = problem.itemsizes["C"]
    needed, rank = max((elements, rank) for rank, elements in enumerate(slots(problem, stationary)))
    tiles = sum(problem.tile_bytes(rank).values())
    if needed * sizes > _SLOTS * tiles:
        return (
            f"the slots of rank {rank} would take {needed * sizes} bytes, more than {_SLOTS} times "
            f"the {tiles} of its tiles"
        )
    return None


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
    Option(
        "signals",
        ("never", "auto", "always"),
        help="always: sums for other ranks are pushed into slots, tile by tile, each with a "
        "signal, and products are made in the order in which tiles arrive; never: accumulated. "
        "auto: where ranks add to tiles of others, not all in place, and slots take no more than a "
        "rank's tiles.",
        says="never",
    ),
    Option(
        "tile",
        int,
        least=1,
        unit="elements",
        help="with signals: elements of a communication tile along the axis that is cut.",
        says="a quarter of the share of m or n that lies in one place, at least 128, or 1/16 of k; "
        "uncut where tiles are read in place",
    ),
)


def _signals(*, signals: str = "never", **options) -> bool:
    """Whether ranks signal each other, of settled options."""
    return signals == "always"


@algorithm("universal", options=OPTIONS, settle=settle, signals=_signals, why=why)
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
    signals : str
        ``"always"``: sums for other ranks are pushed (:mod:`algorithms.universal.signalled`).
    tile : int, optional
        Elements of a communication tile; without it nothing is cut.
    machine : Machine, optional
        Whose times the schedules ``cost`` and ``exhaustive``, and signals, go by.
    """
    settled = settle(problem, **options)
    stationary, grid = settled["stationary"], settled.get("grid")
    if _signals(**settled):
        stays, steps = True, signalled(problem, rank, stationary, settled.get("tile"), machine)
    else:
        work = on_grid(problem, stationary, parse_grid(grid)) if grid else None
        stays = _stays(problem, stationary, work)
        steps = _direct(problem, rank, stationary, settled["chunk"], work)
    steps = _finished(steps, problem, rank, stays, replicate_result)
    if settled["schedule"] == "direct":
        return steps
    bounds = settled["ir_max_compute"], settled["ir_max_comm"]
    return lower(steps, problem, rank, settled["schedule"], *bounds, machine)


def _stays(problem: Problem, stationary: str, work: Operand | None) -> bool:
    """Whether no rank accumulates into another's tile; ``work`` is what the grid deals out, if
    products go by one."""
    if work is None:
        return result_stays(problem, stationary)
    return stationary == "C" and work.partition == problem.c.partition


def _direct(
    problem: Problem, rank: int, stationary: str, chunk: int | None, work: Operand | None
) -> Iterator[Step]:
    """The steps in the order of the slicing."""
    c, groups = problem.c, slices(problem, rank, stationary, chunk, work)
    if _stays(problem, stationary, work):
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


def _finished(
    steps: Iterator[Step], problem: Problem, rank: int, stays: bool, replicate_result: bool
) -> Iterator[Step]:
    """The steps, then what replicas of C do with each other; ``stays``: no rank has accumulated
    into the tiles of another."""
    c = problem.c
    yield from steps
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
