"""What ``drbench tune`` and ``drbench advise`` choose among: partitions, replication, data
movement, or a 2-D algorithm with its mesh and slices."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from algorithms import algorithms, get_algorithm
from launch.cases.case import Case, bound
from partitions.enumerate import KINDS, REPLICATIONS
from partitions.partition import replica_suffix

_REPLICATION = {
    "none": lambda ranks: [(1, 1, 1)],
    **REPLICATIONS,
}
#: Above this many ranks replication factors vary together unless asked otherwise: 28 · 3 · (number
#: of divisors)³ cases would take minutes.
_MANY = 16


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
    today : tuple of three (str or None)
        Partitions that A and B come in, and that C is wanted in, where those differ from a
        candidate's: bringing them there and back is charged.
    products : int
        Products that share what is charged so.
    """

    case: Case
    ranks: int
    algorithms: tuple | None = None
    memory: int | None = None
    replication: str | None = None
    top: int = 10
    today: tuple = (None, None, None)
    products: int = 1


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
    fit = algorithms(mixture=base.mixture is not None)
    found = {name: get_algorithm(name) for name in request.algorithms or fit}
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
        tried = {
            option.name: option.tried(ranks) if callable(option.tried) else option.tried
            for option in algorithm.options.values()
        }
        axes = {name: values for name, values in tried.items() if values}
        for values in product(*axes.values()):
            yield replace(base, algorithm=name, options=dict(zip(axes, values)))


def _text(kind: str, factor: int, ranks: int) -> str:
    """A partition with its factor; a full copy on every rank is the same whatever it is called."""
    return f"row/c{ranks}" if factor == ranks > 1 else kind + replica_suffix(factor)


def prefetches(case: Case) -> list[Case]:
    """A case with each look-ahead to try, its own first; that alone if it is given.

    Examples
    --------
    >>> [each.look_ahead for each in prefetches(Case(8, 8, 8, algorithm="ag_gemm"))]
    ['all', 1]
    >>> [each.look_ahead for each in prefetches(Case(8, 8, 8, prefetch=0))]
    [0]
    """
    if case.prefetch is not None:
        return [case]
    _, *others = get_algorithm(case.algorithm).prefetches(**case.options)
    return [case, *(replace(case, prefetch=each) for each in others)]


def everywhere(case: Case, ranks: int) -> tuple:
    """A case whose C, if it has copies, is finished on all of them, not on the first alone: that
    case, with the algorithm, problem and options of :func:`launch.cases.case.bound`.

    Examples
    --------
    >>> everywhere(Case(8, 8, 8, c="R"), 2)[0].options, everywhere(Case(8, 8, 8), 2)[0].options
    ({'replicate_result': True}, {})
    """
    algorithm, problem, options = bound(case, ranks)
    if len(problem.c.partition.copies()) > 1 and "replicate_result" in algorithm.options:
        options = options | {"replicate_result": True}
        case = replace(case, options=case.options | {"replicate_result": True})
    return case, algorithm, problem, options
