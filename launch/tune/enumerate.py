"""The candidates: layouts with their replication, a stationary matrix and how data moves; or
another algorithm with its mesh and slices. And the settings that refine the first places."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from drbench.algorithms import algorithms, get_algorithm
from drbench.launch.cases.case import Case, bind_case
from drbench.partitions import LayoutError, divisors, frontier, layouts
from drbench.partitions.partition import replica_suffix
from drbench.program.problem import Problem

from .request import REPLICATION, TuneRequest

#: Elements of a large communication tile.
_COARSE = 1024
#: Aligned tiles are tried with replicas up to this many ranks: each bound needs a trace.
_FEW = 16


def list_layouts(request: TuneRequest) -> dict[str, list[tuple[str, int]]]:
    """For each matrix the layouts that the universal algorithm is tried on, with their replication
    factors: the given one, or all (:func:`drbench.partitions.layouts`); nothing if it is not tried.

    Examples
    --------
    >>> request = TuneRequest(Case(64, 64, 64, b="tiles:4x4@2x2"), 4, replication="none")
    >>> named = list_layouts(request)
    >>> named["A"], named["B"]
    ([('row', 1), ('column', 1), ('block:2x2', 1), ('block:2x2:col', 1)], [('tiles:4x4@2x2', 0)])
    """
    case = request.case
    if "universal" not in (request.algorithms or algorithms(plain=True)):
        return {}
    every = [*layouts(request.ranks, [1] if request.replication == "none" else None)]
    given = zip("ABC", (case.a, case.b, case.c))
    return {name: [(text, 0)] if text else every for name, text in given}


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
    same = factors[: REPLICATION[request.replication]]
    return len({*same} - {0}) <= 1


def list_movements(pushed_sums: bool, *chunks: str) -> list[dict]:
    """The options of the universal algorithm that are tried on each triple: ``pushed_sums`` adds
    pushed partial sums, which move the same bytes.

    Examples
    --------
    >>> list_movements(True, "none")
    [{'chunk': 'none'}, {'sums': 'auto'}]
    """
    return [{"chunk": chunk} for chunk in chunks or ["auto"]] + [{"sums": "auto"}] * pushed_sums


def on_triple(base: Case, triple, stationary: str, movement: dict) -> Case:
    """The case of the universal algorithm on three layouts."""
    a, b, c = triple
    return replace(base, a=a, b=b, c=c, options={"stationary": stationary} | movement)


def list_others(request: TuneRequest, movements: Sequence[dict]) -> Iterator[Case]:
    """The cases other than triples of layouts: aligned tiles on each process grid, the grids of
    preset optimal, and the other algorithms.

    Examples
    --------
    >>> request = TuneRequest(Case(64, 64, 64), 2, ("universal",))
    >>> [case.a for case in list_others(request, list_movements(False))][::3]
    ['traditional:1x2', 'traditional:2x1', 'traditional:1x1/c2', 'grid:2x1x1']
    """
    base = request.case
    for name in request.algorithms or algorithms(plain=True):
        algorithm = get_algorithm(name)
        if name == "universal":
            for text, stationary, movement in itertools.product(
                _aligned(request), "CBA", movements
            ):
                yield on_triple(base, [text] * 3, stationary, movement)
            for text, movement in itertools.product(_grids(request), movements):
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
    grids = dict.fromkeys(frontier(case.m, case.n, case.k, request.ranks))
    if request.memory is not None:
        elements = request.memory // max(Problem(1, 1, 1, 1, dtype=case.dtype).itemsizes.values())
        with suppress(LayoutError):  # no grid fits the assumed memory
            grids |= dict.fromkeys(frontier(case.m, case.n, case.k, request.ranks, elements))
    return [f"grid:{grid}" for grid in grids]


def list_look_aheads(case: Case, device: bool = False) -> list[Case]:
    """The case with each look-ahead to try: also 1 if its default is "all", and on a ``device``,
    where transfers overlap GEMMs, first "all" if its default is 1; only the given one if there is
    one.

    Examples
    --------
    >>> aheads = lambda *given: [case.ahead(case.options) for case in list_look_aheads(*given)]
    >>> aheads(Case(8, 8, 8), True), aheads(Case(8, 8, 8), False)
    (['all', 1], [1])
    >>> aheads(Case(8, 8, 8, algorithm="ag_gemm"), False), aheads(Case(8, 8, 8, prefetch=0), True)
    (['all', 1], [0])
    """
    endless = case.ahead(case.options) == "all"
    if case.prefetch is not None or not (endless or device):
        return [case]
    other = replace(case, prefetch=1 if endless else "all")
    return [case, other] if endless else [other, case]


def coarsen(case: Case) -> Case:
    """The case with large communication tiles, if it pushes partial sums: few steps, and seldom far
    from the best.

    Examples
    --------
    >>> coarsen(Case(8, 8, 8, options={"sums": "push"})).options
    {'sums': 'push', 'chunk': 1024}
    """
    if case.options.get("sums") != "push" or "chunk" in case.options:
        return case
    return change(case, "chunk", _COARSE)


def list_settings(case: Case, chunk: int | None, aheads: bool = True) -> dict[str, list]:
    """Other settings of a case, by field or option: look-aheads unless one is given (``aheads``),
    and of the universal algorithm half and twice the chunk, and lowerings; only communication tiles
    if it pushes partial sums.

    Examples
    --------
    >>> settings = list_settings(Case(8, 8, 8, options={"stationary": "C", "chunk": "auto"}), 4)
    >>> for kind, values in settings.items():
    ...     print(kind, *values)
    prefetch 2 3 all
    chunk 2 8
    schedule greedy cost exhaustive
    >>> list_settings(Case(8, 8, 8, options={"sums": "push", "chunk": 1024}), None)
    {'prefetch': [1], 'chunk': [256, 4096, 'auto'], 'schedule': []}
    """
    options, ahead = case.options, case.ahead(case.options)
    settings: dict[str, list] = {"prefetch": [1] * (ahead == "all"), "chunk": [], "schedule": []}
    if options.get("sums") == "push":
        tiles = (*get_algorithm("universal").options["chunk"].tried, "auto")
        settings["chunk"] = [tile for tile in tiles if tile != options.get("chunk")]
    elif case.algorithm == "universal":
        default = replace(case, prefetch=None).ahead(options)
        others = [other for other in (2, 3, 1, "all") if other != ahead]
        settings["prefetch"] = [None if other == default else other for other in others]
        settings["chunk"] = [max(chunk // 2, 1), 2 * chunk] if chunk else ["auto"]
        settings["schedule"] = ["greedy", "cost", "exhaustive"] * ("schedule" not in options)
    return settings if aheads else settings | {"prefetch": []}


def change(case: Case, kind: str, value) -> Case:
    """The case with one of :func:`list_settings`."""
    if kind == "prefetch":
        return replace(case, prefetch=value)
    return replace(case, options=case.options | {kind: value})


def with_copies(case: Case, ranks: int) -> tuple:
    """The case with all replicas of C complete, not only the first, and the algorithm, problem and
    options of :func:`drbench.launch.cases.case.bind_case`.

    Examples
    --------
    >>> with_copies(Case(8, 8, 8, c="R"), 2)[0].options, with_copies(Case(8, 8, 8), 2)[0].options
    ({'replicate_result': True}, {})
    """
    algorithm, problem, options = bind_case(case, ranks)
    if len(problem.c.partition.copies()) > 1 and "replicate_result" in algorithm.options:
        options = options | {"replicate_result": True}
        case = replace(case, options=case.options | {"replicate_result": True})
    return case, algorithm, problem, options
