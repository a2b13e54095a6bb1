"""The options of the universal algorithm, and how those that are open are decided."""

from dataclasses import dataclass, replace
from functools import cached_property

from drbench.algorithms.lowering.lowering import check_schedule
from drbench.errors import UsageError
from drbench.model.machine import Machine
from drbench.options import Option
from drbench.program.problem import Operand, Problem
from drbench.program.replicas import REDUCTIONS

from .algorithm1 import FREE_AXIS, Share
from .arrival import PartialSums, partial_sums
from .choice import choose_offset, fewest_moved
from .distribution import cuts_rows, grid_of, has_whole_rows, result_is_local, work_of
from .fetch import FETCH
from .pushed import tile_of

#: Where tiles are not read in place the free axis is divided, so that transfers overlap with GEMMs:
#: into this many ranges, none shorter than the second number of elements. Dividing k hardly slows
#: GEMMs, dividing m or n does.
_CUTS = {"k": (16, 256), "m": (4, 1024), "n": (4, 1024)}

#: ``sums=auto`` pushes partial sums where slots need at most this multiple of the memory of a
#: rank's tiles, since an accumulate on another node waits for the target's CPU.
_SLOTS = 2

#: Options that order GEMMs themselves, as a schedule does.
_REORDER = {"pack": "always", "sums": "push"}


@dataclass(frozen=True)
class Resolved:
    """The options of one run, decided for a problem: each has a value. What stays ``auto``, the
    offset and packing, is decided by the machine model.

    Attributes
    ----------
    problem : Problem
    stationary : str
        ``"A"``, ``"B"`` or ``"C"``.
    work : str
        Of :func:`~drbench.algorithms.universal.distribution.work_of`.
    offset, fetch, pack, sums, reduce, schedule, replicate_result
        As the options of these names.
    chunk : int or None
        Elements; with pushed partial sums those of a communication tile. None cuts nothing.
    """

    problem: Problem
    stationary: str
    work: str = "own"
    offset: str = "axis"
    chunk: int | None = None
    sums: str = "accumulate"
    pack: str = "never"
    fetch: str = "slice"
    schedule: str = "direct"
    reduce: str = "pull"
    replicate_result: bool = False

    @cached_property
    def layout(self) -> Operand | None:
        """The work distribution, if it is not that of the owners of the stationary matrix."""
        return work_of(self.problem, self.stationary, self.work)

    @cached_property
    def result_is_local(self) -> bool:
        """Whether no rank accumulates into the tiles of another."""
        pushes = self.sums == "push"
        return pushes or result_is_local(self.problem, self.stationary, self.layout)

    @property
    def replicas(self) -> int:
        """Replicas of what the ranks multiply."""
        return (self.layout or self.problem.operand(self.stationary)).partition.replicas

    @property
    def may_pack(self) -> bool:
        """Whether blocks are fetched so that they can be packed."""
        whole_rows = self.fetch == "rows" and has_whole_rows(self.problem, self.stationary)
        return self.schedule == "direct" and (self.fetch == "slice" or whole_rows)

    def choose_offset(self, machine: Machine | None) -> str:
        """The offset, where it is open by the machine model."""
        if self.offset != "auto":
            return self.offset
        tiles = self.fetch == "tile"
        return choose_offset(self.problem, self.stationary, self.work, tiles, machine)

    def share(self, rank: int, machine: Machine | None = None, kind: type = Share) -> Share:
        """The share of a rank."""
        offset = self.choose_offset(machine)
        return kind(self.problem, rank, self.stationary, self.layout, offset)

    def partial_sums(self) -> PartialSums:
        """Which ranks have partial sums of which ranges of C, without a machine model."""
        return partial_sums(self.problem, self.stationary, self.work, self.choose_offset(None))

    def to_dict(self) -> dict:
        """The options as a record has them: without those that have no meaning for the problem."""
        options: dict = {
            "stationary": self.stationary,
            "replicate_result": self.replicate_result,
            "schedule": self.schedule,
        }
        if self.layout:
            options["work"] = self.work
        if self.replicas > 1 or self.offset == "off":
            options["offset"] = self.offset
        if self.reduce != "pull":
            options["reduce"] = self.reduce
        if self.sums == "push":
            tiles = {"fetch": self.fetch} if self.fetch == "tile" else {}
            return options | {"chunk": self.chunk, "sums": self.sums} | tiles
        if self.fetch != "slice" or self.problem.nodes:
            options["fetch"] = self.fetch
        options["chunk"] = self.chunk
        if self.pack == "always" or self.may_pack:
            options["pack"] = self.pack
        return options


def decide(
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
) -> Resolved:
    """Decide ``auto`` options, the same on every rank.

    If all matrices are stored once on a grid over m, n and k, that grid distributes the work and C
    is stationary; otherwise each rank multiplies its own tiles. The stationary matrix is the one
    for which ranks move the fewest elements. The free axis is divided only where tiles are not read
    in place. If ranks are on several nodes (:attr:`Problem.nodes`), whole rows are fetched and
    partial sums are pushed: MPI moves both without involving the target CPU. Each rank decides
    packing for itself. Decided options are decided alike again, so that :func:`program
    <drbench.algorithms.universal.program.program>` accepts either.

    Raises
    ------
    UsageError
        If options exclude each other.
    """
    schedule = check_schedule(schedule)
    clash = {f"{key}={word}": moves.get(key) == word for key, word in _REORDER.items()}
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
    if work_of(problem, stationary, work) is None:
        work = "own"
    base = Resolved(
        problem,
        stationary,
        work,
        schedule=schedule,
        reduce=reduce,
        replicate_result=replicate_result,
    )
    if base.replicas > 1 or offset == "off":
        base = replace(base, offset=offset)
    return _decide_moves(base, in_place, **moves)


def _decide_moves(
    base: Resolved,
    in_place: bool,
    *,
    chunk: int | str | None = "auto",
    sums: str | None = None,
    pack: str = "auto",
    fetch: str = "auto",
) -> Resolved:
    """Decide how blocks and partial sums move, after the other options."""
    problem, stationary = base.problem, base.stationary
    if sums is None:
        sums = "auto" if problem.nodes else "accumulate"
    if sums == "auto" and pack != "always" and not why_accumulated(base, in_place):
        sums = "push"
    size = chunk if type(chunk) is int else None
    if sums == "push":
        uncut = chunk in ("none", None) or (in_place and not size)
        tile = None if uncut else tile_of(problem, stationary, size, base.work)
        fetch = "tile" if fetch == "tile" else "slice"
        return replace(base, chunk=tile, sums="push", fetch=fetch)
    if fetch == "auto":
        fetch = "rows" if problem.nodes else "slice"
    if chunk == "auto" and not (
        in_place or fetch == "tile" or (fetch == "rows" and cuts_rows(problem, stationary))
    ):
        free = FREE_AXIS[stationary]
        cuts, shortest = _CUTS[free]
        size = max(shortest, -(-(problem.extent(free) // base.replicas) // cuts))
    base = replace(base, fetch=fetch, chunk=size)
    return replace(base, pack=pack if pack == "always" or base.may_pack else "never")


def resolve(problem: Problem, in_place: bool = True, **options) -> dict:
    """The decided options as a record has them (:func:`decide`).

    Examples
    --------
    >>> problem = Problem(8, 8, 8, 2)
    >>> resolve(problem, stationary="C", pack="never")["pack"]
    'never'
    """
    return decide(problem, in_place, **options).to_dict()


def why_accumulated(resolved: Resolved, in_place: bool) -> str | None:
    """The reason why ``sums=auto`` accumulates partial sums; None if it pushes them.

    Examples
    --------
    >>> problem = Problem(8, 8, 8, 2, a="row", b="row", c="row")
    >>> for stationary in "CB":
    ...     print(why_accumulated(Resolved(problem, stationary), in_place=False))
    no rank adds to the tiles of another
    None
    """
    problem = resolved.problem
    if resolved.schedule != "direct":
        return f"the schedule {resolved.schedule} has operations"
    if result_is_local(problem, resolved.stationary, resolved.layout):
        return "no rank adds to the tiles of another"
    if in_place:
        return "every tile is read and added to in place"
    slots = resolved.partial_sums().slots
    needed, rank = max((size * problem.itemsizes["C"], rank) for rank, size in enumerate(slots))
    tiles = sum(problem.tile_bytes(rank).values())
    if needed > _SLOTS * tiles:
        return (
            f"the slots of rank {rank} would take {needed} bytes, more than {_SLOTS} times the "
            f"{tiles} of its tiles"
        )
    return None


def pushes(*, sums: str = "accumulate", **options) -> bool:
    """Whether ranks push partial sums with decided options."""
    return sums == "push"


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
        ("auto", "axis", "interval", "off"),
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
