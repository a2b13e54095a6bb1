"""What ``drbench tune`` chooses among: partitions, replication, data movement, or a 2-D algorithm
with its mesh and slices."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product

from algorithms import algorithms, get_algorithm
from drbench.program.problem import Problem
from launch.cases.case import Case, bound
from partitions import LayoutError, divisors, frontier, layouts
from partitions.partition import replica_suffix

#: Of how many of A, B and C, in this order, the replication factors are the same, by what is asked.
REPLICATION = {"none": 3, "equal": 3, "paired": 2, "all": 0}


#: Seconds of CPU that a search takes, at least; many ranks get one for so many.
EFFORT, _RANKS_A_SECOND = 4.5, 40
#: First places that are tried with other look-aheads, chunks and lowerings too.
REFINED = 3

#: Up to so many ranks aligned tiles are tried with replicas: each takes a trace to bound.
_FEW = 16


def effort_for(ranks: int) -> float:
    """Seconds of CPU that a search takes where nobody says how many."""
    return max(EFFORT, ranks / _RANKS_A_SECOND)


@dataclass(frozen=True)
class TuneRequest:
    """What to choose for.

    Attributes
    ----------
    case : Case
        What all candidates have in common; those of its partitions that are None are open.
    algorithms : tuple of str or None
        Those to try; None for all.
    memory : int or None
        Bytes a rank may use for tiles and buffers; None for the device's memory.
    replication : str or None
        ``none``, or ``equal``, ``paired`` or ``all`` factors, None for all: a key of
        :data:`REPLICATION`.
    today : tuple of three (str or None)
        Partitions that A and B come in, and that C is wanted in, where those differ from a
        candidate's: bringing them there and back is charged.
    multiplications : int
        Products that share what is charged so.
    effort : float or None
        Seconds of CPU that the search takes, about; None for no end before all is known.
    refine : int
        First places that are tried with other :func:`settings` too.
    """

    case: Case
    ranks: int
    algorithms: tuple | None = None
    memory: int | None = None
    replication: str | None = None
    top: int = 10
    today: tuple = (None, None, None)
    multiplications: int = 1
    effort: float | None = None
    refine: int = 0


def candidates(request: TuneRequest, how: Sequence[dict]) -> Iterator[Case]:
    """Every case to consider: the universal algorithm in each of some :func:`data_movements` on
    each triple of layouts, then :func:`others`.

    Examples
    --------
    >>> base = Case(64, 64, 64, a="column", b="row")
    >>> cases = list(
    ...     candidates(TuneRequest(base, 4, algorithms=("universal",)), data_movements(False))
    ... )
    >>> len(cases), cases[0].a, cases[0].c, cases[0].options
    (21, 'column', 'row', {'stationary': 'C', 'chunk': 'auto'})
    """
    tried = texts(request)
    for triple in product(*(tried[name] for name in "ABC")) if tried else ():
        if replicated(request, [factor for _, factor in triple]):
            for stationary, movement in product("CBA", how):
                yield on_triple(request.case, [text for text, _ in triple], stationary, movement)
    yield from others(request, how)


def replicated(request: TuneRequest, factors: Sequence[int]) -> bool:
    """Whether replication factors of A, B and C are tried together; 0 is that of a matrix whose
    layout is given.

    Examples
    --------
    >>> request = TuneRequest(Case(8, 8, 8), 4, replication="paired")
    >>> (
    ...     replicated(request, (2, 2, 4)),
    ...     replicated(request, (0, 2, 4)),
    ...     replicated(request, (1, 2, 2)),
    ... )
    (True, True, False)
    """
    same = factors[: REPLICATION[request.replication or "all"]]
    return len({*same} - {0}) <= 1


def data_movements(pushed_sums: bool, in_place: bool = True) -> list[dict]:
    """How the universal algorithm is tried on each triple: with ``pushed_sums``, which move the
    same bytes, and uncut where tiles are not read in place.

    Examples
    --------
    >>> data_movements(True, False)
    [{'chunk': 'auto'}, {'chunk': 'none'}, {'sums': 'auto'}]
    """
    cut = [{"chunk": "auto"}] + [{"chunk": "none"}] * (not in_place)
    return cut + [{"sums": "auto"}] * pushed_sums


def on_triple(base: Case, triple, stationary: str, movement: dict) -> Case:
    """The universal algorithm on three layouts."""
    a, b, c = triple
    return replace(base, a=a, b=b, c=c, options={"stationary": stationary} | movement)


def texts(request: TuneRequest) -> dict[str, list[tuple[str, int]]]:
    """For each matrix the layouts that the universal algorithm is tried on, with their replication
    factors: the given one, or all (:func:`partitions.layouts`); nothing if it is not tried.

    Examples
    --------
    >>> found = texts(TuneRequest(Case(64, 64, 64, b="tiles:4x4@2x2"), 4, replication="none"))
    >>> found["A"], found["B"]
    ([('row', 1), ('column', 1), ('block:2x2', 1), ('block:2x2:col', 1)], [('tiles:4x4@2x2', 0)])
    """
    case = request.case
    tried = request.algorithms or algorithms(plain=True)
    if "universal" not in tried:
        return {}
    factors = [1] if request.replication == "none" else None
    every = [*layouts(request.ranks, factors)]
    given = zip("ABC", (case.a, case.b, case.c))
    return {name: [(text, 0)] if text else every for name, text in given}


def others(request: TuneRequest, how: Sequence[dict]) -> Iterator[Case]:
    """What is tried beside all triples: aligned tiles on each process grid, the grids of preset
    optimal, and the other algorithms.

    Examples
    --------
    >>> request = TuneRequest(Case(64, 64, 64), 2, ("universal",))
    >>> [case.a for case in others(request, data_movements(False))][::3]
    ['traditional:1x2', 'traditional:2x1', 'traditional:1x1/c2', 'grid:2x1x1']
    """
    base = request.case
    for name in request.algorithms or algorithms(plain=True):
        algorithm = get_algorithm(name)
        if name == "universal":
            for text, stationary, movement in product(_aligned(request), "CBA", how):
                yield on_triple(base, [text] * 3, stationary, movement)
            for text, movement in product(_grids(request), how):
                yield on_triple(base, [text] * 3, "auto", movement)
            continue
        axes = {
            option.name: option.tried(request.ranks) if callable(option.tried) else option.tried
            for option in algorithm.options.values()
            if option.tried
        }
        for values in product(*axes.values()):
            yield replace(base, algorithm=name, options=dict(zip(axes, values)))


def _aligned(request: TuneRequest) -> list[str]:
    """Aligned tiles of all three matrices on each process grid, all of them being open; with
    replicas on few ranks only."""
    case, alone = request.case, request.replication == "none" or request.ranks > _FEW
    if case.a or case.b or case.c:
        return []
    return [
        f"traditional:{rows}x{ranks // rows}{replica_suffix(factor)}"
        for factor in ([1] if alone else divisors(request.ranks))
        for ranks in [request.ranks // factor]
        for rows in divisors(ranks)
    ]


def _grids(request: TuneRequest) -> list[str]:
    """The partitions of preset optimal, all three matrices being open: the grid that needs fewest
    bytes, and those that need more and leave fewer ranks idle.

    Examples
    --------
    >>> _grids(TuneRequest(Case(4000, 4000, 4000), 7))
    ['grid:3x2x1', 'grid:7x1x1']
    >>> _grids(TuneRequest(Case(64, 64, 64, a="row"), 8))
    []
    """
    case = request.case
    if any((case.a, case.b, case.c, case.transpose)):
        return []
    found = dict.fromkeys(frontier(case.m, case.n, case.k, request.ranks))
    if request.memory is not None:
        elements = request.memory // max(Problem(1, 1, 1, 1, dtype=case.dtype).itemsizes.values())
        with suppress(LayoutError):  # none fits by the room that is reckoned with
            found |= dict.fromkeys(frontier(case.m, case.n, case.k, request.ranks, elements))
    return [f"grid:{grid}" for grid in found]


def look_aheads(case: Case, device: bool = False) -> list[Case]:
    """A case with the look-aheads that are tried at once: 1 where its own is without end, and on a
    ``device``, where transfers go on beside GEMMs, the other way round; that alone which is given.

    Examples
    --------
    >>> ahead = lambda case, device: [
    ...     each.ahead(each.options) for each in look_aheads(case, device)
    ... ]
    >>> ahead(Case(8, 8, 8), True), ahead(Case(8, 8, 8), False)
    ([1, 'all'], [1])
    >>> ahead(Case(8, 8, 8, algorithm="ag_gemm"), False), ahead(Case(8, 8, 8, prefetch=0), True)
    (['all', 1], [0])
    """
    endless = case.ahead(case.options) == "all"
    if case.prefetch is not None or not (endless or device):
        return [case]
    return [case, replace(case, prefetch=1 if endless else "all")]


def settings(case: Case, chunk: int | None) -> list[dict]:
    """What else the universal algorithm may be run with, as fields or options: look-aheads, half
    and twice the chunk, and lowerings; where it pushes partial sums their communication tiles
    alone. Nothing that is given.

    Examples
    --------
    >>> for each in settings(Case(8, 8, 8, options={"stationary": "C", "chunk": "auto"}), 4):
    ...     print(each)
    {'prefetch': 2}
    {'prefetch': 'all'}
    {'chunk': 2}
    {'chunk': 8}
    {'schedule': 'greedy'}
    {'schedule': 'cost'}
    {'schedule': 'exhaustive'}
    >>> settings(Case(8, 8, 8, options={"sums": "push"}), None)
    [{'chunk': 256}, {'chunk': 1024}, {'chunk': 4096}]
    """
    if case.algorithm != "universal":
        return []
    if case.options.get("sums") == "push":
        tried = get_algorithm("universal").options["chunk"].tried
        kinds = {"chunk": () if "chunk" in case.options else tried}
    else:
        kinds = {
            "prefetch": (2, "all") if case.prefetch is None else (),
            "chunk": (max(chunk // 2, 1), 2 * chunk) if chunk else (),
            "schedule": () if "schedule" in case.options else ("greedy", "cost", "exhaustive"),
        }
    return [{name: value} for name, values in kinds.items() for value in values]


def changed(case: Case, setting: dict) -> Case:
    """A case with one of :func:`settings`."""
    if "prefetch" in setting:
        return replace(case, **setting)
    return replace(case, options=case.options | setting)


def with_copies(case: Case, ranks: int) -> tuple:
    """A case whose C, if it has copies, is finished on all of them, not on the first alone: that
    case, with the algorithm, problem and options of :func:`launch.cases.case.bound`.

    Examples
    --------
    >>> with_copies(Case(8, 8, 8, c="R"), 2)[0].options, with_copies(Case(8, 8, 8), 2)[0].options
    ({'replicate_result': True}, {})
    """
    algorithm, problem, options = bound(case, ranks)
    if len(problem.c.partition.copies()) > 1 and "replicate_result" in algorithm.options:
        options = options | {"replicate_result": True}
        case = replace(case, options=case.options | {"replicate_result": True})
    return case, algorithm, problem, options
