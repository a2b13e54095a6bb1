"""The universal one-sided algorithm of *Slicing Is All You Need* (§4): any partitions, any
replication, get and accumulate.

Every rank runs Algorithm 1 of the paper: :func:`emit` walks through the local GEMMs that
:func:`~drbench.algorithms.universal.slicing.slices` yields in iteration-offset order; for each it
gets the blocks of A and B, multiplies, and delivers the partial sums of other ranks' tiles. The
same function serves packed operands and pushed partial sums, with other blocks in another order.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import prod

from drbench.algorithms.lowering.lowering import check_schedule, lower
from drbench.algorithms.registry import algorithm
from drbench.errors import UsageError
from drbench.model.machine import Machine
from drbench.options import Option
from drbench.program.problem import Operand, Problem
from drbench.program.replicas import REDUCTIONS, broadcast_replica, reduce_replicas
from drbench.program.signal_steps import Await, Push
from drbench.program.steps import (
    Accumulate,
    Add,
    Block,
    Copy,
    Fence,
    FilledScratch,
    Gemm,
    Get,
    Join,
    Pack,
    Scratch,
    Step,
    Steps,
)

from .arrival import arrivals, cut_along, partial_sums, tile_of
from .choice import choose_offset, fewest_moved
from .packing import CORES, Packed, Packing, choose_packing, cores, packed
from .slicing import (
    FENCE,
    OFFSETS,
    LocalGemm,
    Share,
    cut_out,
    cuts_rows,
    free_axis,
    grid_of,
    keeps_rows,
    own_first_balances,
    result_stays,
    rows_of,
    slices,
    work_of,
)

#: Where tiles are not read in place the free axis is divided, so that transfers overlap with GEMMs:
#: into this many ranges, none shorter than the second number of elements. Dividing k hardly slows
#: GEMMs, dividing m or n does.
_CUTS = {"k": (16, 256), "m": (4, 1024), "n": (4, 1024)}

#: ``sums=auto`` pushes partial sums where slots need at most this multiple of the memory of a
#: rank's tiles, since an accumulate on another node waits for the target's CPU.
_SLOTS = 2

#: Options that order GEMMs themselves, as a schedule does.
_REORDER = {"pack": "always", "sums": "push"}


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
        As in :func:`resolve`.
    """
    found = resolve(problem, **options)
    share = _share(problem, rank, found, machine)
    stays = _pushes(**found) or result_stays(problem, share.stationary, share.work)
    steps = _finish(_multiply(share, found, stays, machine), share, stays, found)
    return lower(steps, problem, rank, found["schedule"], machine)


def _multiply(share: Share, found: dict, stays: bool, machine: Machine | None) -> Steps:
    """The steps of one rank without the reduction of replicas; ``stays``: no rank accumulates into
    the tiles of another."""
    problem, rank, chunk = share.problem, share.rank, found["chunk"]
    if _pushes(**found):
        how = _distribution(problem, found, machine)
        at = arrivals(problem, *how, chunk, machine)
        yield from emit(share, [at.gemms(rank)], found.get("fetch", "slice"), push=True)
        for source, c in at.arriving(rank):
            arrived = yield Await(source, _key(c), c.shape)
            yield Add(arrived, into=c, side=True)  # C[m, n] += the partial sum of the source
        return
    own_first = share.work is None and not stays and own_first_balances(problem, share.stationary)
    packing = _packing(share, found, stays or own_first, machine)
    rounds: Iterable[list[LocalGemm]]
    if packing:
        rounds = packed(share, packing, own_first)
    else:
        rounds = slices(share, chunk)
        if own_first:
            rounds = _own_first(rounds, rank)
    if not stays and not own_first:
        rounds = chain([[FENCE]], rounds)
    yield from emit(share, rounds, "slice" if packing else found.get("fetch", "slice"))


def emit(
    share: Share, rounds: Iterable[list[LocalGemm]], fetch: str = "slice", push: bool = False
) -> Steps:
    """The steps of one rank's local GEMMs (paper, Algorithm 1): get a block of A and one of B,
    multiply, deliver.

    Parameters
    ----------
    share : Share
    rounds : iterable of list of LocalGemm
        The GEMMs in order; within a round no operand is fetched twice. Until :data:`FENCE` no other
        rank accumulates into this rank's tiles.
    fetch : str
        One of :data:`FETCH`.
    push : bool
        Partial sums for tiles of others are pushed, not accumulated.
    """
    rank, operands = share.rank, _Operands(share, fetch)
    exclusive = True  # no other rank accumulates into this one's tiles yet
    partial: dict[Block | Packed, Step] = {}
    late: list[tuple[Step, Block]] = []
    for group in rounds:
        operands.next_round(group)
        for gemm in group:
            if gemm is FENCE:
                yield Fence()
                exclusive = False
                for token, block in late:
                    yield Accumulate(token, block)
                continue
            a = yield from operands.token(gemm.a)
            b = yield from operands.token(gemm.b, axis=0)
            c = gemm.c
            if exclusive and isinstance(c, Block) and c.owner == rank:
                yield Gemm(a, b, into=c, kernel=gemm.kernel)  # C[m, n] += A[m, k] · B[k, n]
                continue
            partial[c] = yield Gemm(a, b, into=partial.get(c), kernel=gemm.kernel)
            if not gemm.last:
                continue
            for token, block in (yield from _blocks_of(partial.pop(c), c)):
                if block.owner == rank and exclusive:
                    yield Copy(token, into=block)
                elif push:
                    yield Push(token, block.owner, _key(block))
                elif exclusive:
                    late.append((token, block))
                else:
                    yield Accumulate(token, block)


class _Operands:
    """The tokens of blocks of A and B, while GEMMs need them.

    Parameters
    ----------
    share : Share
    fetch : str
        One of :data:`FETCH`. A tile is kept for all GEMMs; rows of it for those with the same tile
        of the stationary matrix; blocks for a round, but of the stationary matrix, where its owner
        does not multiply it, for all.
    """

    def __init__(self, share: Share, fetch: str):
        self.share, self.fetch = share, fetch
        self._kept = share.stationary if share.work else ""
        self._held: dict[object, Step] = {}
        self._wider: dict[tuple, Step] = {}
        self._tile: object = None

    def next_round(self, group: list[LocalGemm]) -> None:
        """Release the blocks of the last round, and rows of the last stationary tile."""
        self._held = {
            block: token
            for block, token in (self._held.items() if self._kept else ())
            if isinstance(block, Block) and block.matrix == self._kept
        }
        if self.fetch == "rows" and group[0] is not FENCE:
            tile = group[0]["ABC".index(self.share.stationary)].tile
            if tile != self._tile:
                self._tile, self._wider = tile, {}

    def token(self, operand, axis: int = 1) -> Steps:
        """The token of a block, of packed blocks, or of blocks that are joined along an axis; the
        rank's own blocks cost nothing."""
        if (token := self._held.get(operand)) is None:
            if isinstance(operand, Block):
                token = yield from self._get(operand)
            elif isinstance(operand, Packed):
                token = yield from self._pack(operand)
            else:
                tokens = []
                for block in operand:
                    tokens.append((yield from self.token(block)))
                return (yield Join(tokens, axis))
            self._held[operand] = token
        return token

    def _get(self, block: Block) -> Steps:
        whole = self._whole(block)
        if whole is block:
            return (yield Get(block))
        if (token := self._wider.get(whole.key)) is None:
            token = self._wider[whole.key] = yield Get(whole)
        at = block.row0 - whole.row0, block.col0 - whole.col0
        return (yield from cut_out(token, *at, block.shape))

    def _whole(self, block: Block) -> Block:
        """The region to fetch for a block: the block, its tile, or whole rows of the tile, as it is
        stored, if this rank needs all of them."""
        if self.fetch == "slice" or block.owner == self.share.rank:
            return block
        operand = self.share.problem.operand(block.matrix)
        tile = operand.tile_block(block.tile, block.replica)
        if self.fetch == "tile":
            return tile
        low, high = tile.rows if block.transposed else tile.cols
        along, share = operand.axes[not block.transposed], self.share
        mine = share.interval if along == share.free else ()
        if not any(start <= low and high <= stop for start, stop in mine):
            return block
        return rows_of(operand, block, tile)

    def _pack(self, operand: Packed) -> Steps:
        first = operand.parts[0][2]
        into = yield Scratch(operand.shape, first.matrix, first.transposed)
        blocks = []
        for row, col, block in operand.parts:
            blocks.append((yield Pack(block, into, row, col)))
        return (yield FilledScratch(into, blocks))


def _blocks_of(total: Step, c: Block | Packed) -> Steps:
    """The tokens of the blocks of a partial sum, and the blocks."""
    if isinstance(c, Block):
        return [(total, c)]
    found = []
    for row, col, block in c.parts:
        found.append(((yield from cut_out(total, row, col, block.shape)), block))
    return found


def _own_first(rounds: Iterable[list[LocalGemm]], rank: int) -> Iterator[list[LocalGemm]]:
    """The rounds: first those whose GEMMs are all for own tiles, then a Fence."""
    others = []
    for group in rounds:
        if all(gemm.c.owner == rank for gemm in group):
            yield group
        else:
            others.append(group)
    yield [FENCE]
    yield from others


def _finish(steps: Steps, share: Share, stays: bool, found: dict) -> Steps:
    """The steps, then the reduction and broadcast of replicas of C."""
    c = share.problem.c
    yield from steps
    if c.partition.replicas > 1 or not stays:
        yield Fence()  # the partial results are complete
    if c.partition.replicas > 1:
        how = found.get("reduce", "pull")
        yield from reduce_replicas(c, share.rank, how=how)  # replica 0 += the others, by terms
    if found["replicate_result"]:
        yield from broadcast_replica(c, share.rank)


def _key(c: Block) -> tuple[int, int, int, int]:
    """The key of a signal: the block of C, to which each rank contributes once."""
    return *c.rows, *c.cols


def _layout(problem: Problem, found: dict) -> Operand | None:
    """The work distribution with resolved options (:func:`work_of`)."""
    return work_of(problem, found["stationary"], found.get("work", "own"))


def _distribution(
    problem: Problem, found: dict, machine: Machine | None = None
) -> tuple[str, str, str]:
    """The stationary matrix, the work distribution and the offset with resolved options."""
    stationary, work = found["stationary"], found.get("work", "own")
    offset = found.get("offset", "axis")
    if offset == "auto":
        tiles = found.get("fetch") == "tile"
        offset = choose_offset(problem, stationary, work, tiles, machine)
    return stationary, work, offset


def _share(problem: Problem, rank: int, found: dict, machine: Machine | None = None) -> Share:
    """The share of a rank with resolved options."""
    stationary, _, offset = _distribution(problem, found, machine)
    return Share(problem, rank, stationary, _layout(problem, found), offset)


def _pushes(*, sums: str = "accumulate", **options) -> bool:
    """Whether partial sums are pushed with resolved options."""
    return sums == "push"


def _packing(share: Share, found: dict, copies: bool, machine: Machine | None) -> Packing | None:
    """The packing of a rank's blocks with resolved options; None if they are not packed."""
    asked = found.get("pack", "never")
    if asked == "never" or (asked == "auto" and not (machine and machine.adds_on_core)):
        return None
    machine = machine or cores(share.problem.type_of("A")) or CORES
    return choose_packing(share, found["chunk"], machine, copies, asked == "always")


# -- undecided options
# ------------------------------------------------------------------------------------------


def resolve(
    problem: Problem,
    in_place: bool = True,
    *,
    stationary: str = "auto",
    work: str = "auto",
    offset: str = "auto",
    schedule: str = "direct",
    reduce: str = "pull",
    replicate_result: bool = False,
    **moves,
) -> dict:
    """Decide ``auto`` options, the same on every rank.

    If all matrices are stored once on a grid over m, n and k, that grid distributes the work and C
    stays; else each rank multiplies its own tiles, and the matrix stays for which ranks move least.
    The free axis is divided only where tiles are not read in place. If ranks are on several nodes
    (:attr:`Problem.nodes`), whole rows are fetched and partial sums are pushed: MPI moves both
    without involving the target CPU. Each rank decides packing for itself. Resolved options resolve
    to themselves, so that :func:`program` accepts either.

    Examples
    --------
    >>> problem = Problem(8, 8, 8, 2)
    >>> resolve(problem, stationary="C", pack="never")["pack"]
    'never'

    Raises
    ------
    UsageError
        If options exclude each other.
    """
    schedule = check_schedule(schedule)
    clash = {f"{key}={each}": moves.get(key) == each for key, each in _REORDER.items()}
    clash[f"schedule={schedule}"] = schedule != "direct"
    given = [name for name, asked in clash.items() if asked]
    if len(given) > 1:
        raise UsageError(
            f"{' and '.join(given)} each put GEMMs into an order of their own. Use one of them."
        )
    if work == "auto":
        work = str((grid_of(problem) if stationary == "auto" else None) or "own")
    if stationary == "auto":
        stationary = fewest_moved(problem) if work in ("own", "level") else "C"
    layout = work_of(problem, stationary, work)
    found = {"stationary": stationary, "replicate_result": replicate_result, "schedule": schedule}
    found |= {"work": work} if layout else {}
    replicated = (layout or problem.operand(stationary)).partition.replicas > 1
    found |= {"offset": offset} if replicated or offset == "off" else {}
    found |= {"reduce": reduce} if reduce != "pull" else {}
    return found | _resolve_moves(problem, in_place, found, **moves)


def _resolve_moves(
    problem: Problem,
    in_place: bool,
    found: dict,
    *,
    chunk: int | str | None = "auto",
    sums: str | None = None,
    pack: str = "auto",
    fetch: str = "auto",
) -> dict:
    """Decide how blocks and partial sums move, after the other options."""
    stationary, layout = found["stationary"], _layout(problem, found)
    if sums is None:
        sums = "auto" if problem.nodes else "accumulate"
    if sums == "auto" and pack != "always" and not why_accumulated(problem, in_place, found):
        sums = "push"
    size = chunk if type(chunk) is int else None
    if sums == "push":
        uncut = chunk in ("none", None) or (in_place and not size)
        tile = None if uncut else tile_of(problem, stationary, size, found.get("work", "own"))
        return {"chunk": tile, "sums": "push"} | ({"fetch": fetch} if fetch == "tile" else {})
    if fetch == "auto":
        fetch = "rows" if problem.nodes else "slice"
    moves: dict = {"fetch": fetch} if fetch != "slice" or problem.nodes else {}
    if chunk == "auto" and not (
        in_place or fetch == "tile" or (fetch == "rows" and cuts_rows(problem, stationary))
    ):
        free = free_axis(stationary)
        cuts, shortest = _CUTS[free]
        replicas = (layout or problem.operand(stationary)).partition.replicas
        size = max(shortest, -(-(problem.extent(free) // replicas) // cuts))
    moves["chunk"] = size
    side_by_side = fetch == "slice" or (fetch == "rows" and keeps_rows(problem, stationary))
    if pack == "always" or (found["schedule"] == "direct" and side_by_side):
        moves["pack"] = pack
    return moves


def why_accumulated(problem: Problem, in_place: bool, found: dict) -> str | None:
    """The reason why ``sums=auto`` accumulates partial sums; None if it pushes them.

    Examples
    --------
    >>> problem = Problem(8, 8, 8, 2, a="row", b="row", c="row")
    >>> for stationary in "CB":
    ...     print(why_accumulated(problem, False, {"stationary": stationary, "schedule": "direct"}))
    no rank adds to the tiles of another
    None
    """
    if found["schedule"] != "direct":
        return f"the schedule {found['schedule']} has operations"
    if result_stays(problem, found["stationary"], _layout(problem, found)):
        return "no rank adds to the tiles of another"
    if in_place:
        return "every tile is read and added to in place"
    held = partial_sums(problem, *_distribution(problem, found)).slots
    needed, rank = max((each * problem.itemsizes["C"], rank) for rank, each in enumerate(held))
    tiles = sum(problem.tile_bytes(rank).values())
    if needed > _SLOTS * tiles:
        return (
            f"the slots of rank {rank} would take {needed} bytes, more than {_SLOTS} times the "
            f"{tiles} of its tiles"
        )
    return None


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
    found = resolve(problem, in_place, **options)
    lines = []
    if _pushes(**found):
        lines.append(_describe_pushed(problem, found))
    elif options.get("sums") == "auto" or (problem.nodes and "sums" not in options):
        reason = why_accumulated(problem, in_place, found) or "pack=always is set"
        lines.append(f"partial sums are accumulated: {reason}")
    stationary, layout = found["stationary"], _layout(problem, found)
    if options.get("work") == "level":
        lines.append(_describe_level(problem, stationary, layout))
    stays = result_stays(problem, stationary, layout)
    for rank in ranks if not _pushes(**found) else ():
        share = _share(problem, rank, found, machine)
        copies = stays or (layout is None and own_first_balances(problem, stationary))
        if packing := _packing(share, found, copies, machine):
            lines.append(f"packed, rank {rank}: {packing.description}")
    return lines


def _describe_level(problem: Problem, stationary: str, layout) -> str:
    """A line about the work that ``work=level`` moves."""
    stored = problem.operand(stationary).partition
    if layout is None:
        return f"work is level: no rank holds more than its share of {stationary}"
    ranks = range(problem.nprocs)
    before, after = (
        [prod(partition.local_shape(rank)) for rank in ranks]
        for partition in (stored, layout.partition)
    )
    mean = sum(before) / len(before)
    moved = sum(max(0, old - new) for old, new in zip(before, after)) // stored.replicas
    return (
        f"level work: {moved} elements of {stationary} are multiplied by another rank than their "
        f"owner; the busiest rank has {max(after) / mean:.3f} times the mean, "
        f"{max(before) / mean:.3f} before"
    )


def _describe_pushed(problem: Problem, found: dict) -> str:
    """A line about how partial sums are pushed."""
    stationary, tile = found["stationary"], found["chunk"]
    axes = set()
    for rank in range(problem.nprocs):
        rounds = slices(_share(problem, rank, found))
        axes.add(cut_along([gemm for group in rounds for gemm in group], rank, stationary))
    cut = "nothing is cut"
    if tile:
        cut = f"{' or '.join(sorted(axes, reverse=True))} is cut into tiles of {tile}"
    slots = partial_sums(problem, *_distribution(problem, found)).slots
    most = max(slots)
    held = f"slots for {most * problem.itemsizes['C']} bytes on rank {slots.index(most)}, the most"
    if not most:
        held = "no slots, for no rank adds to the tiles of another"
    return f"partial sums are pushed: {cut}; {held}"


#: The parts of another rank's tile to fetch.
FETCH = ("slice", "tile", "rows")
REPLICATE_RESULT = Option(
    "replicate_result",
    bool,
    False,
    help="give the finished C to all its replicas, inside the timed region.",
)
OPTIONS = (
    Option(
        "stationary",
        ("auto", "A", "B", "C"),
        help="matrix whose tiles do not move; auto: the one with which the busiest rank moves "
        "least.",
        default_text="auto",
        group="Algorithm",
    ),
    Option(
        "work",
        metavar="auto|own|level|PMxPNxPK",
        help="work distribution: stationary tiles, balanced (level), or a grid over m, n and k.",
        default_text="own; of preset optimal its grid",
    ),
    Option(
        "offset",
        ("auto", *OFFSETS),
        help="what i + j of tile (i, j) rotates: the axis, a replica's interval, nothing.",
        default_text="axis; interval where that moves less",
    ),
    Option(
        "chunk",
        int,
        least=1,
        unit="elements",
        words=("auto", "none"),
        tried=(256, 1024, 4096),
        metavar="SIZE|auto|none",
        help="longest range of the cut axis that a GEMM covers; none: tiles are not cut.",
        default_text="none if read in place; else k/16, m/4 or n/4",
    ),
    Option(
        "sums",
        ("auto", "accumulate", "push"),
        help="how partial sums reach the owners of C; auto: push if its slots are small.",
        default_text="accumulate; auto on several nodes",
    ),
    Option(
        "pack",
        ("auto", "never", "always"),
        help="copy thin blocks together and multiply them in one GEMM; auto: where the model "
        "predicts a gain.",
        default_text="auto",
    ),
    Option(
        "fetch",
        ("auto", *FETCH),
        help="part of a remote tile: a GEMM's block (slice), all of it once (tile), or rows.",
        default_text="slice; rows on several nodes",
    ),
    Option(
        "schedule",
        check=check_schedule,
        metavar="direct|greedy|cost|exhaustive[:COMPUTExCOMM]",
        help="GEMMs and transfers as generated (direct), or lowered to operations.",
        default_text="direct",
    ),
    Option(
        "reduce",
        REDUCTIONS,
        help="replica 0 reads the other replicas of C and adds them (pull), or they accumulate "
        "(push).",
        default_text="pull",
    ),
    REPLICATE_RESULT,
)
algorithm(
    "universal",
    options=OPTIONS,
    resolve=resolve,
    signals=_pushes,
)(program)
