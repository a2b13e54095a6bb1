"""The candidates of ``drbench tune``: partitions, replication, data movement, or a 2-D algorithm
with its mesh and slices."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from drbench.algorithms import algorithms, get_algorithm
from drbench.launch.cases.case import Case, bound
from drbench.partitions import LayoutError, divisors, frontier, layouts
from drbench.partitions.partition import replica_suffix
from drbench.program.problem import Problem

#: How many of A, B and C, in this order, have equal replication factors, for each value.
REPLICATION = {"none": 3, "equal": 3, "paired": 2, "all": 0}


#: CPU seconds of a search, at least; many ranks get one second per this number.
EFFORT, _RANKS_A_SECOND = 9.0, 40
#: First places that are also tried with other look-aheads, chunks and lowerings.
_REFINED = 3

#: Elements of a large communication tile.
_COARSE = 1024

#: Aligned tiles are tried with replicas up to this many ranks: each bound needs a trace.
_FEW = 16


@dataclass(frozen=True)
class TuneRequest:
    """What ``tune`` chooses for.

    Attributes
    ----------
    case : Case
        The values that all candidates share; partitions that are None are open.
    algorithms : tuple of str or None
        The algorithms to try; None for all.
    memory : int or None
        Most bytes of tiles and buffers per rank; None for the device's memory.
    replication : str or None
        ``none``, or ``equal``, ``paired`` or ``all`` factors, None for all: a key of
        :data:`REPLICATION`.
    today : tuple of three (str or None)
        The current partitions of A and B, and the wanted one of C. Redistribution to and from the
        layouts of a candidate is charged.
    multiplications : int
        Multiplications that share this charge.
    effort : float or None
        Approximate CPU seconds of the search; None to search everything.
    refine : int
        Number of first places that are also tried with other :func:`settings`.
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

    @classmethod
    def of(
        cls, case: Case, ranks: int, fix: str = "", effort: float | None = None, **more
    ) -> "TuneRequest":
        """The request of a user: the layouts of the case are the current ones, and the matrices in
        ``fix``, as ``"ac"``, keep them; ``effort`` 0 searches everything, None is the default for
        the number of ranks.

        Examples
        --------
        >>> request = TuneRequest.of(Case(8, 8, 8, "row", "column"), 400, "a", top=3)
        >>> request.case.a, request.case.b, request.today, request.effort
        ('row', None, ('row', 'column', None), 10.0)
        """
        today = case.a, case.b, case.c
        kept = {name: text if name in fix else None for name, text in zip("abc", today)}
        if effort is None:
            effort = max(EFFORT, ranks / _RANKS_A_SECOND)
        more |= {"today": today, "effort": effort or None, "refine": _REFINED}
        return cls(replace(case, preset=None, **kept), ranks, **more)


def replicated(request: TuneRequest, factors: Sequence[int]) -> bool:
    """Whether these replication factors of A, B and C are tried together; 0 for a matrix whose
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


def data_movements(pushed_sums: bool, *chunks: str) -> list[dict]:
    """The options of the universal algorithm that are tried on each triple: ``pushed_sums`` adds
    pushed partial sums, which move the same bytes.

    Examples
    --------
    >>> data_movements(True, "none")
    [{'chunk': 'none'}, {'sums': 'auto'}]
    """
    return [{"chunk": chunk} for chunk in chunks or ["auto"]] + [{"sums": "auto"}] * pushed_sums


def on_triple(base: Case, triple, stationary: str, movement: dict) -> Case:
    """The case of the universal algorithm on three layouts."""
    a, b, c = triple
    return replace(base, a=a, b=b, c=c, options={"stationary": stationary} | movement)


def texts(request: TuneRequest) -> dict[str, list[tuple[str, int]]]:
    """For each matrix the layouts that the universal algorithm is tried on, with their replication
    factors: the given one, or all (:func:`drbench.partitions.layouts`); nothing if it is not tried.

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
    """The cases other than triples of layouts: aligned tiles on each process grid, the grids of
    preset optimal, and the other algorithms.

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
            for text, stationary, movement in itertools.product(_aligned(request), "CBA", how):
                yield on_triple(base, [text] * 3, stationary, movement)
            for text, movement in itertools.product(_grids(request), how):
                yield on_triple(base, [text] * 3, "auto", movement)
            continue
        axes = {
            option.name: option.tried(request.ranks) if callable(option.tried) else option.tried
            for option in algorithm.options.values()
            if option.tried
        }
        for values in itertools.product(*axes.values()):
            yield replace(base, algorithm=name, options=dict(zip(axes, values)))


def _aligned(request: TuneRequest) -> list[str]:
    """Aligned tiles of all three matrices on each process grid, if all are open; with replicas on
    few ranks only."""
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
    """The partitions of preset optimal, if all three matrices are open: the grid that needs fewest
    bytes, and those that need more bytes but leave fewer ranks idle.

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
        with suppress(LayoutError):  # no grid fits the assumed memory
            found |= dict.fromkeys(frontier(case.m, case.n, case.k, request.ranks, elements))
    return [f"grid:{grid}" for grid in found]


def look_aheads(case: Case, device: bool = False) -> list[Case]:
    """The case with each look-ahead to try: also 1 if its default is "all", and on a ``device``,
    where transfers overlap GEMMs, first "all" if its default is 1; only the given one if there is
    one.

    Examples
    --------
    >>> ahead = lambda case, device: [
    ...     each.ahead(each.options) for each in look_aheads(case, device)
    ... ]
    >>> ahead(Case(8, 8, 8), True), ahead(Case(8, 8, 8), False)
    (['all', 1], [1])
    >>> ahead(Case(8, 8, 8, algorithm="ag_gemm"), False), ahead(Case(8, 8, 8, prefetch=0), True)
    (['all', 1], [0])
    """
    endless = case.ahead(case.options) == "all"
    if case.prefetch is not None or not (endless or device):
        return [case]
    other = replace(case, prefetch=1 if endless else "all")
    return [case, other] if endless else [other, case]


def coarse(case: Case) -> Case:
    """The case with large communication tiles, if it pushes partial sums: few steps, and seldom far
    from the best.

    Examples
    --------
    >>> coarse(Case(8, 8, 8, options={"sums": "push"})).options
    {'sums': 'push', 'chunk': 1024}
    """
    if case.options.get("sums") != "push" or "chunk" in case.options:
        return case
    return changed(case, {"chunk": _COARSE})


def settings(case: Case, chunk: int | None, aheads: bool = True) -> list[dict]:
    """Other settings of a case, as fields or options: look-aheads unless one is given (``aheads``),
    and of the universal algorithm half and twice the chunk, and lowerings; only communication tiles
    if it pushes partial sums.

    Examples
    --------
    >>> for each in settings(Case(8, 8, 8, options={"stationary": "C", "chunk": "auto"}), 4):
    ...     print(each)
    {'prefetch': 2}
    {'prefetch': 3}
    {'prefetch': 'all'}
    {'chunk': 2}
    {'chunk': 8}
    {'schedule': 'greedy'}
    {'schedule': 'cost'}
    {'schedule': 'exhaustive'}
    >>> settings(Case(8, 8, 8, options={"sums": "push", "chunk": 1024}), None)
    [{'chunk': 256}, {'chunk': 4096}, {'chunk': 'auto'}, {'prefetch': 1}]
    """
    ahead, of = case.ahead(case.options), case.options
    if case.algorithm != "universal" or of.get("sums") == "push":
        kinds: dict = {"prefetch": (1,) if case.ahead(of) == "all" and aheads else ()}
        if case.algorithm == "universal":
            tried = get_algorithm("universal").options["chunk"].tried
            kinds = {
                "chunk": [each for each in (*tried, "auto") if each != of.get("chunk")]
            } | kinds
    else:
        default = replace(case, prefetch=None).ahead(of)
        tried = [each for each in (2, 3, 1, "all") if each != ahead]
        others = [None if each == default else each for each in tried]
        kinds = {
            "prefetch": others if aheads else (),
            "chunk": (max(chunk // 2, 1), 2 * chunk) if chunk else ("auto",),
            "schedule": () if "schedule" in of else ("greedy", "cost", "exhaustive"),
        }
    return [{name: value} for name, values in kinds.items() for value in values]


def changed(case: Case, setting: dict) -> Case:
    """The case with one of :func:`settings`."""
    if "prefetch" in setting:
        return replace(case, **setting)
    return replace(case, options=case.options | setting)


def with_copies(case: Case, ranks: int) -> tuple:
    """The case with all replicas of C complete, not only the first, and the algorithm, problem and
    options of :func:`drbench.launch.cases.case.bound`.

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
