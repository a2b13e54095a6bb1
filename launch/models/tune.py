"""Choosing by the model: partitions, replication, data movement, or a 2-D algorithm with its mesh
and slices, within a memory budget.

Branch and bound: every candidate gets a lower bound from the trace of one rank
(:mod:`drbench.model.bounds`), and candidates are simulated in order of it until no bound left is
below the slowest of the best so far. What is left out can therefore not be among them.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from operator import attrgetter
from typing import NamedTuple

from algorithms import algorithms, get_algorithm
from drbench.common import parse_transport
from drbench.errors import OutOfMemory, UnsupportedError
from drbench.measure.record import Record
from drbench.model.bounds import lower_bound
from drbench.model.machine import Machine
from drbench.program.steps import COUNTERS
from drbench.program.trace import no_collection
from launch.cases.case import Case, bound
from partitions.enumerate import KINDS, REPLICATIONS
from partitions.partition import replica_suffix

from .predict import predict, predict_with, reads_in_place, refuse_more_ranks

_REPLICATION = {
    "none": lambda ranks: [(1, 1, 1)],
    **REPLICATIONS,
}
#: Above this many ranks replication factors vary together unless asked otherwise: 28 · 3 · (number
#: of divisors)³ cases would take minutes.
_MANY = 16
_counters = attrgetter(*COUNTERS)


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
        ``none``, or ``equal``, ``paired`` or ``all`` factors; None for all up to 16 ranks and equal
        above.
    """

    case: Case
    ranks: int
    algorithms: tuple | None = None
    memory: int | None = None
    replication: str | None = None
    top: int = 10


class Place(NamedTuple):
    """A place of the ranking: the case, and its record.

    Attributes
    ----------
    memory : int
        Bytes of the largest rank's tiles and buffers.
    equals : int
        How many other candidates take the same time, bytes and memory: the model does not tell them
        apart.
    """

    case: Case
    record: Record
    memory: int
    equals: int


@dataclass
class Found:
    """The ranking, best first, and what was looked at.

    Attributes
    ----------
    ranking : list of Place
    tried, simulated, refused, too_large : int
        Candidates; those simulated, not supported, and beyond the memory.
    """

    ranking: list[Place] = field(default_factory=list)
    tried: int = 0
    simulated: int = 0
    refused: int = 0
    too_large: int = 0


def candidates(request: TuneRequest, cuts: tuple = ("auto",)) -> Iterator[Case]:
    """Every case to consider, each once; ``cuts`` are the values of ``chunk`` to try.

    Examples
    --------
    >>> base = Case(64, 64, 64, a="column", b="row")
    >>> cases = list(candidates(TuneRequest(base, 4, algorithms=("universal",))))
    >>> len(cases), cases[0].a, cases[0].c, cases[0].options
    (27, 'column', 'row', {'stationary': 'C', 'chunk': 'auto'})
    """
    base, ranks = request.case, request.ranks
    found = {name: get_algorithm(name) for name in request.algorithms or algorithms()}
    if found.pop("universal", None):
        replication = request.replication or ("all" if ranks <= _MANY else "equal")
        triples = [*product(KINDS, repeat=3), ("traditional",) * 3]
        texts = (
            tuple(
                fixed or _text(kind, factor, ranks)
                for fixed, kind, factor in zip((base.a, base.b, base.c), triple, factors)
            )
            for factors, triple in product(_REPLICATION[replication](ranks), triples)
        )
        for (a, b, c), stationary, chunk in product(dict.fromkeys(texts), "CBA", cuts):
            options = {"stationary": stationary, "chunk": chunk}
            yield replace(base, a=a, b=b, c=c, options=options)
    for name, algorithm in found.items():
        axes = {
            option.name: option.tried(ranks) if callable(option.tried) else option.tried
            for option in algorithm.options.values()
            if option.tried
        }
        for values in product(*axes.values()):
            yield replace(base, algorithm=name, options=dict(zip(axes, values)))


def _text(kind: str, factor: int, ranks: int) -> str:
    """A partition with its factor; a full copy on every rank is the same whatever it is called."""
    return f"row/c{ranks}" if factor == ranks > 1 else kind + replica_suffix(factor)


def tune(request: TuneRequest, machine: Machine) -> Found:
    """Rank the candidates by the model.

    Raises
    ------
    UsageError
        If the request makes no sense.
    OutOfMemory
        If candidates were refused for memory alone.
    UnsupportedError
        If no candidate fits the fixed partitions.
    """
    refuse_more_ranks(machine, request.ranks)
    if request.memory is not None:
        machine = machine.with_value("memory_bytes", min(request.memory, machine.memory_bytes))
    seen = machine.for_transport(parse_transport(request.case.transport))
    in_place, found, open_cases = reads_in_place(seen), Found(), []
    with no_collection():
        for case in candidates(request, ("auto",) if in_place else ("auto", "none")):
            found.tried += 1
            try:
                least, tiles = _bound(case, seen, request.ranks, in_place)
            except UnsupportedError:
                found.refused += 1
                continue
            if tiles > seen.memory_bytes:
                found.too_large += 1
                continue
            open_cases.append((least, tiles, found.tried, case))
        ranked: list = []  # (seconds, bytes, number of the candidate, ...), the best first
        equals = Counter()  # of what the model tells apart
        for least, tiles, number, case in sorted(open_cases):
            if len(ranked) >= request.top and least > ranked[request.top - 1][0]:
                break
            record, _ = predict_with(case, machine, request.ranks, pool=True)
            found.simulated += 1
            if record.status == "ok":
                needs = record.best_s, tiles + record.pool_bytes
                known = *needs, *_counters(record)
                equals[known] += 1
                if equals[known] == 1:
                    insort(ranked, (*needs, number, known, case, record))
            else:
                found.too_large += record.status == "out_of_memory"
                found.refused += record.status != "out_of_memory"
    if not ranked:
        if found.too_large:
            raise OutOfMemory(
                f"none of {found.tried} candidates fits {seen.memory_bytes:.4g} bytes a rank. "
                "Use more ranks, or a larger --memory."
            )
        raise UnsupportedError(
            f"none of {found.tried} candidates takes these partitions. Fix fewer of them, or add "
            "universal to --only."
        )
    found.ranking = [
        Place(case, record, memory, equals[known] - 1)
        for _, memory, _, known, case, record in ranked[: request.top]
    ]
    return found


def _bound(case: Case, machine: Machine, ranks: int, in_place: bool) -> tuple[float, int]:
    """Lower bound of the time, and bytes of the largest rank's tiles."""
    algorithm, problem, options = bound(case, ranks)
    settled = algorithm.settle(problem, in_place, **options)
    tiles = max(sum(problem.tile_bytes(rank).values()) for rank in range(ranks))
    if tiles > machine.memory_bytes:
        return 0.0, tiles
    return lower_bound(algorithm.trace(problem, 0, **settled), machine), tiles


def choose_stationary(case: Case, machine: Machine, ranks: int) -> str:
    """``--stationary auto:model``: the data movement with the smallest predicted time; on a tie C,
    then B.

    Examples
    --------
    A small batch in row blocks: B moves, and the result stays.

    >>> from launch.cases.machine_models import find_machine
    >>> choose_stationary(Case(1024, 4096, 1024, "row", "row", "row"), find_machine("pvc12"), 12)
    'C'
    """
    found = {}
    for stationary in "CBA":
        options = {**case.options, "stationary": stationary}
        record = predict(replace(case, options=options), machine, ranks)
        if record.status == "ok":
            found[stationary] = record.best_s
    if not found:
        raise UnsupportedError(
            f"machine {machine.name} can run none of Stationary A, B and C: {record.reason} Use "
            "--stationary auto."
        )
    return min(found, key=found.get)
