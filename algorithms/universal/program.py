"""The universal one-sided algorithm of *Slicing Is All You Need* (§4): any partitions, any
replication, get and accumulate."""

from collections.abc import Generator, Iterator, Sequence
from math import prod

from algorithms.registry import Option, algorithm
from drbench.errors import UnsupportedError, UsageError
from drbench.model.machine import Machine
from drbench.program.problem import Operand, Problem
from drbench.program.replicas import REDUCTIONS, broadcast_replica, reduce_replicas
from drbench.program.steps import Accumulate, Block, Fence, Gemm, Get, Step, Zero
from partitions import Grid, LayoutError, parse_grid, part, summed

from .assembled import ASSEMBLE, Assembly, assembly, cores, multiplied
from .choice import fewest_moved
from .lowering import MAX_COMM, MAX_COMPUTE, SCHEDULES, lower
from .signalled import LEAST, cuts, sent, signalled, slots, tile_of
from .slicing import (
    ORDERS,
    Product,
    cut_out,
    cuts_rows,
    free_axis,
    grid_of,
    keeps_rows,
    levelled,
    on_grid,
    own_first_balances,
    result_stays,
    rows_of,
    slices,
    widened,
)

#: Where tiles are not read in place the free axis is cut, so that transfers overlap with products:
#: into this many pieces, none shorter than the second number of elements. Products lose next to
#: nothing when k is cut, but much when m or n is.
_CUTS = {"k": (16, 256), "m": (4, 1024), "n": (4, 1024)}

#: What is fetched of another rank's tile.
FETCH = ("slice", "tile", "rows", "sent")

#: What others need is sent on so many ranks at most: each plans the products of all.
_SENDERS = 64

#: With ``--signals auto`` slots may take as much memory as a rank's tiles, this many times: those
#: of sums, and with ``--fetch sent`` those of operands. On several nodes sums may take twice that:
#: what MPI accumulates there waits for the core of its target.
_SLOTS, _FAR_SLOTS = 1, 2

#: With ``--widen auto`` whole rows are at most so many times what is needed of them. Twice and four
#: times the bytes took less time than packed ones between virtual nodes of 2 and 4 ranks; eight
#: times, of 8 ranks, are not told apart from packed ones (docs/performance.md).
_WIDEST = 4


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
    assemble: str = "auto",
    fetch: str = "slice",
    widen: int | str = 1,
    reduce: str = "pull",
    order: str = "offset",
    steal: bool = False,
) -> dict:
    """Decide ``auto``: work goes by the grid that all matrices are stored once on, and C's terms
    stay; without one that matrix stays with which ranks move least. Free ranges are cut
    only where tiles are not read in place. Sums for other ranks are pushed where transfers
    take time, and slots are bounded. What is assembled each rank finds for itself."""
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
        stationary = "C" if found else fewest_moved(problem)
    if steal and found:
        raise UsageError(
            f"--steal moves products away from who holds most, --grid {found} deals them anew. "
            "Leave one of them out."
        )
    given = chunk if type(chunk) is int else None
    widest = _WIDEST if widen == "auto" else int(widen)
    if widest > 1 and (fetch == "sent" or fetch != "rows" and signals == "never"):
        raise UsageError(
            f"--widen {widen} is of whole rows, and --fetch is {fetch}. Use --fetch rows, or leave "
            "it out."
        )
    if fetch == "sent":  # as far as there are signals, and slots go
        plain = order == "offset" and not steal
        how = signals, schedule, str(found) if found else None, given, plain
        if why_no_signals(problem, stationary, in_place, *how, sends=True):
            fetch = "rows"
    if signals == "always" and given:
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
        whole = in_place or fetch == "tile" or (fetch == "rows" and cuts_rows(problem, stationary))
        chunk = None if whole else max(shortest, -(-share // pieces))
    settled = {
        "stationary": stationary,
        "chunk": chunk,
        **({"grid": str(found)} if found else {}),
        **({"steal": True} if steal else {}),
        "replicate_result": replicate_result,
        "schedule": schedule,
        **bounds,
    }
    named = {"fetch": (fetch, "slice"), "widen": (widest, 1)}
    named |= {"reduce": (reduce, "pull"), "order": (order, "offset")}
    settled |= {name: value for name, (value, usual) in named.items() if value != usual}
    if assemble == "always":
        others = {
            "--schedule": schedule != "direct",
            "--signals": signals == "always",
            f"--fetch {fetch}": fetch != "slice",
            "--order": order != "offset",
        }
        for flag in (flag for flag, given in others.items() if given):
            raise UsageError(
                f"--assemble always makes few large products, {flag} goes by small ones. Leave one "
                "of them out."
            )
    plain = fetch != "tile" and order == "offset"
    by_rows = fetch == "rows" and not keeps_rows(problem, stationary)
    if assemble != "never" and schedule == "direct" and plain and not by_rows:
        settled["assemble"] = assemble
    if signals == "always" and not plain:
        raise UsageError(
            "--signals always moves parts of tiles, and multiplies them in the order in which they "
            "come. Leave it out, or --fetch tile and --order."
        )
    if signals == "never" and tile is not None:
        raise UsageError(
            "--tile cuts what travels with a signal, but there are no signals. Use --signals "
            "always or auto, or --chunk."
        )
    if signals == "always" and steal:
        raise UsageError(
            "--signals always goes by who holds the stationary matrix, --steal does not. Leave one "
            "of them out."
        )
    if signals == "always" and schedule != "direct":
        raise UsageError(
            f"--signals always orders products by what arrives, --schedule {schedule} by "
            "operations. Leave one of them out."
        )
    how = signals, schedule, settled.get("grid"), given, plain and not steal
    if why_no_signals(problem, stationary, in_place, *how, fetch == "sent"):
        return settled
    if tile or not in_place:
        if fetch in ("rows", "sent") and not tile:  # every message costs its core some time
            tile = max(4 * LEAST, 2 * tile_of(problem, stationary, None, found))
            if cuts_rows(problem, stationary):
                tile = max(problem.m, problem.n, problem.k)
        tile = tile_of(problem, stationary, tile, found)
    settled.pop("assemble", None)
    if fetch != "sent":
        settled.pop("fetch", None)
    return settled | {"chunk": None, "signals": "always"} | ({"tile": tile} if tile else {})


def why(
    problem: Problem,
    in_place: bool = True,
    *,
    ranks: Sequence[int] = (0,),
    machine: Machine | None = None,
    **options,
) -> list[str]:
    """What ``--signals``, ``--steal`` and ``--assemble`` come to, and why; nothing if there are
    none and none were asked for.

    Examples
    --------
    >>> problem = Problem(4096, 4096, 4096, 2, a="row", b="row", c="row")
    >>> for in_place in (True, False):
    ...     print(*why(problem, in_place, stationary="B", signals="auto"))
    no signals: every tile is read and added to in place
    signalled: m is cut into tiles of 512; slots for 33554432 bytes on rank 0, the most
    >>> tall = Problem(4096, 4096, 4096, 2, a="tiles:512x4096@2x1", b="row", c="row")
    >>> print(*why(tall, stationary="C", assemble="always"))
    assembled, rank 0: 2 products of at most 2048x4096x2048 for 8 pieces, 8388608 elements copied...
    >>> uneven = Problem(4096, 4096, 4096, 2, b="tiles:1300x1700@1x2")
    >>> print(*why(uneven, stationary="B", steal=True))
    stolen: products of 1425408 elements of B; the busiest rank has 1.000 times the mean, 1.170...
    """
    settled = settle(problem, in_place, **options)
    told = _why_signals(problem, in_place, settled, **options)
    if "widen" in settled:
        told += [_why_widened(problem, rank, settled) for rank in ranks]
    if "steal" in settled:
        told.append(_stolen(problem, settled))
    for rank in ranks:
        if found := _assembly(problem, rank, settled, machine):
            told.append(f"assembled, rank {rank}: {found.about}")
    return told


def _why_widened(problem: Problem, rank: int, settled: dict) -> str:
    """What ``--widen`` comes to for one rank, in words."""
    most, work = settled["widen"], _work(problem, settled)
    needed: dict[tuple, int] = {}  # bytes of what lies apart, and of the rows that it is in
    whole: dict[tuple, int] = {}
    for group in slices(problem, rank, settled["stationary"], None, work):
        for block in (block for one in group for block in (one.a, one.b)):
            wide = widened(problem, rank, block, most)
            if wide is not block:
                needed[block.key] = block.size * problem.itemsize
                whole[wide.key] = wide.size * problem.itemsize
    if not whole:
        return f"fetched, rank {rank}: nothing that lies apart comes in whole rows"
    return (
        f"fetched, rank {rank}: {sum(whole.values())} bytes in whole rows for "
        f"{sum(needed.values())} that lie apart, at most {most} times as many: those their owners' "
        "cores would pack"
    )


def _stolen(problem: Problem, settled: dict) -> str:
    """What ``--steal`` moves, in words."""
    name, work = settled["stationary"], _work(problem, settled)
    stored = problem.operand(name).partition
    if work is None:
        return f"nothing to steal: no rank holds more than its share of {name}"
    ranks = range(problem.nprocs)
    before, after = (
        [prod(partition.local_shape(rank)) for rank in ranks]
        for partition in (stored, work.partition)
    )
    mean = sum(before) / len(before)
    moved = sum(max(0, old - new) for old, new in zip(before, after)) // stored.replicas
    return (
        f"stolen: products of {moved} elements of {name}; the busiest rank has "
        f"{max(after) / mean:.3f} times the mean, {max(before) / mean:.3f} before"
    )


def _why_signals(problem: Problem, in_place: bool, settled: dict, **options) -> list[str]:
    asked = options.get("signals", "never")
    if asked == "never":
        return []
    stationary = settled["stationary"]
    if not _signals(**settled):
        chunk = options.get("chunk")
        given = chunk if type(chunk) is int else None
        sends = options.get("fetch") == "sent"
        plain = not {"order", "steal"} & {*settled} and (sends or "fetch" not in settled)
        how = asked, settled["schedule"], settled.get("grid"), given, plain, sends
        return [f"no signals: {why_no_signals(problem, stationary, in_place, *how)}"]
    grid = _grid(problem, stationary, settled.get("grid"))
    everyone = range(problem.nprocs)
    axes = sorted({cuts(problem, rank, stationary, grid) for rank in everyone}, reverse=True)
    tile = settled.get("tile")
    cut = f"{' or '.join(axes)} is cut into tiles of {tile}" if tile else "nothing is cut"
    elements = slots(problem, stationary, grid)
    most = max(elements)
    held = (
        f"slots for {most * problem.itemsizes['C']} bytes on rank {elements.index(most)}, the most"
        if most
        else "no slots, for no rank adds to the tiles of another"
    )
    if settled.get("fetch") == "sent":
        most = max(sent(problem, stationary, grid)) * problem.itemsize
        held += f"; {most} bytes of A and B are sent to a rank at most, for sockets join the nodes"
    return [f"signalled: {cut}; {held}"]


def why_no_signals(
    problem: Problem,
    stationary: str,
    in_place: bool,
    signals: str = "auto",
    schedule: str = "direct",
    grid: str | None = None,
    chunk: int | None = None,
    plain: bool = True,
    sends: bool = False,
) -> str | None:
    """Why ``--signals`` has none, in words; None if it has. ``plain``: slices are fetched, in the
    usual order; ``sends``: or sent, so that operands have slots, too.

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
    if chunk:
        return "--chunk cuts what is moved without them"
    if not plain:
        return "--fetch tile, --order and --steal are of products without them"
    by = _grid(problem, stationary, grid)
    if not sends and result_stays(
        problem, stationary, on_grid(problem, stationary, by) if by else None
    ):
        return "no rank adds to the tiles of another"
    if in_place:
        return "every tile is read and added to in place"
    if sends and problem.nprocs > _SENDERS:
        return f"{problem.nprocs} ranks are more than {_SENDERS}, which send each other operands"
    sizes = problem.itemsizes
    operands = sent(problem, stationary, by) if sends else [0] * problem.nprocs
    sums = slots(problem, stationary, by)
    most = _FAR_SLOTS if problem.nodes else _SLOTS
    for times, held in (
        (_SLOTS, [elements * sizes["A"] for elements in operands]),
        (most, [elements * sizes["C"] for elements in sums]),
    ):
        needed, rank = max((each, rank) for rank, each in enumerate(held))
        tiles = sum(problem.tile_bytes(rank).values())
        if needed > times * tiles:
            return (
                f"the slots of rank {rank} would take {needed} bytes, more than {times} times "
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
        help="the matrix whose tiles do not move; auto takes the one with which ranks move least, "
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
        says="never; auto for runs on several nodes",
    ),
    Option(
        "assemble",
        ASSEMBLE,
        help="pieces of operands copied together and multiplied at once, results for several "
        "owners as one product. auto: on cores, where products lose more on pieces than the copies "
        "cost by the model of --machine, without one by built-in figures; always: also where they "
        "do not.",
        says="auto",
    ),
    Option(
        "steal",
        bool,
        False,
        help="ranks that hold more of the stationary matrix than others leave them products, "
        "planned in advance, and the least that levels them; what those need is moved.",
    ),
    Option(
        "tile",
        int,
        least=1,
        unit="elements",
        tried=(256, 1024, 4096),
        help="with signals: elements of a communication tile along the axis that is cut.",
        says="a quarter of the share of m or n that lies in one place, at least 128, or 1/16 of k; "
        "with --fetch rows twice that, at least 512; uncut where tiles are read in place",
    ),
    Option(
        "fetch",
        FETCH,
        help="what is fetched of another rank's tile. slice: the part that a product takes; tile: "
        "all of it, once, and products take slices of the copy (as in the paper, §4.2); rows: "
        "whole rows of it where the rank needs all of them, which lie side by side, so that no "
        "rank packs them; sent: its owner sends the part at once, where there are signals and "
        "what is sent to a rank takes no more than its tiles, else rows.",
        says="slice; for runs on several nodes rows, or sent if sockets join them",
    ),
    Option(
        "widen",
        int,
        least=1,
        words=("auto",),
        metavar="TIMES|auto",
        help="with --fetch rows: whole rows of tiles on other nodes also where the rank needs a "
        "part of each, if that is at most so many times what it needs: those are moved without "
        f"the core of their owner, which packs parts. auto: {_WIDEST} times; 1: never.",
        says="1; auto for runs on several nodes, unless sockets join them",
    ),
    Option(
        "reduce",
        REDUCTIONS,
        help="how the replicas of C become one. pull: the ranks of replica 0 read the others' "
        "tiles and add them; push: the others accumulate into replica 0 (as in the repository of "
        "the paper's authors).",
        says="pull",
    ),
    Option(
        "order",
        ORDERS,
        help="in what order a rank's products go. offset: rotated by the place of the stationary "
        "tile (the paper's iteration offset); cheapest: likewise, but first what needs the fewest "
        "elements from others.",
        says="offset",
    ),
)


def _signals(*, signals: str = "never", **options) -> bool:
    """Whether ranks signal each other, of settled options."""
    return signals == "always"


@algorithm(
    "universal",
    options=OPTIONS,
    settle=settle,
    signals=_signals,
    why=why,
    one_sided=True,
)
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
        ``"A"``, ``"B"``, ``"C"``: the matrix whose tiles do not move; ``"auto"``: that with which
        ranks move least.
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
    assemble : str
        ``"always"`` or ``"auto"``: products are assembled
        (:mod:`algorithms.universal.assembled`), everywhere or where that saves time on a machine
        of cores.
    fetch : str
        ``"slice"``: of another rank's tile what a product takes is fetched; ``"tile"``: all of it,
        once, and kept for all products that take slices of it (paper, §4.2); ``"rows"``: whole rows
        of it where the rank needs all of them; ``"sent"``: owners send it, with signals.
    widen : int
        With ``"rows"``: also where they are at most so many times what the rank needs
        (:func:`~algorithms.universal.slicing.widened`).
    reduce : str
        ``"pull"`` or ``"push"``, as of :func:`~drbench.program.replicas.reduce_replicas`.
    order : str
        One of :data:`~algorithms.universal.slicing.ORDERS`.
    steal : bool
        Ranks that hold more of the stationary matrix than others leave them products, planned in
        advance (:func:`algorithms.universal.slicing.levelled`).
    machine : Machine, optional
        Whose times the schedules ``cost`` and ``exhaustive``, signals and ``assemble`` go by.
    """
    settled = settle(problem, **options)
    stationary = settled["stationary"]
    grid = _grid(problem, stationary, settled.get("grid"))
    if _signals(**settled):
        sends = settled.get("fetch") == "sent"
        how = settled.get("tile"), machine, grid, settled.get("widen", 1), sends
        stays, steps = True, signalled(problem, rank, stationary, *how)
    else:
        work = _work(problem, settled)
        stays = result_stays(problem, stationary, work)
        if found := _assembly(problem, rank, settled, machine):
            own_first = work is None and own_first_balances(problem, stationary)
            steps = multiplied(problem, rank, stationary, found, stays, own_first, work)
        else:
            steps = _direct(problem, rank, settled, work)
    how = settled.get("reduce", "pull")
    steps = _finished(steps, problem, rank, stays, replicate_result, how)
    if settled["schedule"] == "direct":
        return steps
    bounds = settled["ir_max_compute"], settled["ir_max_comm"]
    return lower(steps, problem, rank, settled["schedule"], *bounds, machine)


def _assembly(
    problem: Problem, rank: int, settled: dict, machine: Machine | None
) -> Assembly | None:
    """How a rank's products are assembled with settled options; None if they are not."""
    asked = settled.get("assemble", "never")
    if asked == "never" or (asked == "auto" and not (machine and machine.adds_on_core)):
        return None
    stationary, work = settled["stationary"], _work(problem, settled)
    copies = result_stays(problem, stationary, work) or (
        work is None and own_first_balances(problem, stationary)
    )
    machine = machine or cores(problem.type_of("A"))
    always = asked == "always"
    return assembly(problem, rank, stationary, settled["chunk"], work, machine, copies, always)


def _work(problem: Problem, settled: dict) -> Operand | None:
    """Who does which products, as a layout of the stationary matrix; None: who holds its tiles."""
    stationary = settled["stationary"]
    if grid := _grid(problem, stationary, settled.get("grid")):
        return on_grid(problem, stationary, grid)
    level = levelled(problem.operand(stationary).partition) if settled.get("steal") else None
    return Operand(stationary, level) if level else None


def _direct(problem: Problem, rank: int, settled: dict, work: Operand | None) -> Iterator[Step]:
    """The steps in the order of the slicing."""
    c, stationary, order = problem.c, settled["stationary"], settled.get("order", "offset")
    groups = slices(problem, rank, stationary, settled["chunk"], work, order)
    how = settled.get("fetch", "slice"), settled.get("widen", 1)
    fetched = _Fetched(problem, rank, *how, stationary, work)
    if result_stays(problem, stationary, work):
        for group in groups:
            yield from _multiplied(group, fetched, True)  # C[m, n] += A[m, k] · B[k, n]
    else:
        others = []
        if work is None and own_first_balances(
            problem, stationary
        ):  # first what stays here: nobody accumulates yet, so these
            for group in groups:  # products go straight into the tile they start
                if all(product.c.owner == rank for product in group):
                    yield from _multiplied(group, fetched, True)
                else:
                    others.append(group)
        else:
            for tile in c.own_tiles(rank):
                yield Zero(tile)
            others = groups
        yield Fence()  # every tile is ready for everyone's accumulates
        sums: dict = {}
        if work:
            fetched.keep(stationary)
        for group in others:
            yield from _multiplied(group, fetched, False, sums)


def _finished(
    steps: Iterator[Step],
    problem: Problem,
    rank: int,
    stays: bool,
    replicate_result: bool,
    how: str,
) -> Iterator[Step]:
    """The steps, then what replicas of C do with each other; ``stays``: no rank has accumulated
    into the tiles of another; ``how`` they are reduced."""
    c = problem.c
    yield from steps
    if c.partition.replicas > 1 or not stays:
        yield Fence()  # the partial results are complete
    if c.partition.replicas > 1:
        yield from reduce_replicas(c, rank, how=how)  # replica 0 += the others, of every term
    if replicate_result:
        yield from broadcast_replica(c, rank)


class _Fetched:
    """What a rank has of A and B: the tokens of blocks, for as long as products are to take them.

    Parameters
    ----------
    problem : Problem
    rank : int
    how : str
        One of :data:`FETCH`. A tile is kept for all products; rows of it for those with the same
        tile of the stationary matrix.
    widen : int
        With ``"rows"``: what is more than a product needs, as of
        :func:`~algorithms.universal.slicing.widened`.
    stationary : str
    work : Operand, optional
        As of :func:`~algorithms.universal.slicing.slices`.
    """

    def __init__(
        self,
        problem: Problem,
        rank: int,
        how: str,
        widen: int,
        stationary: str,
        work: Operand | None = None,
    ):
        self.problem, self.rank, self.how, self.widen = problem, rank, how, widen
        self._free = free_axis(stationary)
        self._still, self._tile = "ABC".index(stationary), None
        layout = (work or problem.operand(stationary)).partition
        extent, replica = problem.extent(self._free), layout.replica_of(rank)
        self._share = part(extent, replica, layout.replicas)
        self._blocks: dict[str, dict] = {"A": {}, "B": {}}
        self._tiles: dict[tuple, Step] = {}
        self._of_group = ["A", "B"]

    def keep(self, matrix: str) -> None:
        """Keep the blocks of a matrix beyond their group."""
        self._of_group = [name for name in self._of_group if name != matrix]

    def next_group(self, group: list[Product]) -> None:
        """Let go of the blocks of the last group, and of rows of the last stationary tile."""
        for name in self._of_group:
            self._blocks[name] = {}
        tile = group[0][self._still].tile
        if self.how == "rows" and tile != self._tile:
            self._tile, self._tiles = tile, {}

    def token(self, block: Block) -> Generator[Step, Step, Step]:
        """The token of a block, which costs nothing if the tile is the rank's own."""
        held = self._blocks[block.matrix]
        if (found := held.get(block)) is None:
            if self.how != "slice" and block.owner != self.rank:
                found = yield from self._sliced(block)
            else:
                found = yield Get(block)
            held[block] = found
        return found

    def _sliced(self, block: Block) -> Generator[Step, Step, Step]:
        """A part of the copy of a whole tile, or of whole rows of it."""
        tile = self.problem.operand(block.matrix).tile_block(block.tile, block.replica)
        if self.how == "rows":
            tile = self._rows(block, tile)
        if (token := self._tiles.get(tile.key)) is None:
            token = self._tiles[tile.key] = yield Get(tile)
        return (yield from cut_out(token, tile, block))

    def _rows(self, block: Block, tile: Block) -> Block:
        """The rows of a tile, as it is stored, that a block is part of, if this rank needs all of
        them; else what :func:`widened` makes of it."""
        operand = self.problem.operand(block.matrix)
        along = operand.axes[not block.transposed]
        low, high = (tile.row0, tile.row1) if block.transposed else (tile.col0, tile.col1)
        if along != self._free or low < self._share.start or high > self._share.stop:
            return widened(self.problem, self.rank, block, self.widen)
        return rows_of(operand, block, tile)


def _multiplied(
    group: list[Product], fetched: _Fetched, in_place: bool, sums: dict | None = None
) -> Iterator[Step]:
    """Products written into this rank's own tiles of C, in place; or for other ranks' tiles: the
    sum over the pieces of k goes to the owner of C[m, n] once. A block that several of them use is
    fetched once; ``sums`` last longer than a group."""
    fetched.next_group(group)
    sums = {} if sums is None else sums
    for left, right, c, first, last in group:
        a = yield from fetched.token(left)
        b = yield from fetched.token(right)
        if in_place:
            yield Gemm(a, b, into=c)
            continue
        sums[c] = yield Gemm(a, b, into=None if first else sums[c])
        if last:
            yield Accumulate(sums.pop(c), c)
