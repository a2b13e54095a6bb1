"""Every combination of partitionings and replication factors, for sweeps and searches.

The paper tests "all combinations of row block, column block, and rectangular 2D block
with all valid replication factors" (Brock & Golin 2025, §5.2). All functions yield
lazily: 12 ranks already have 27 · 6³ = 5832 combinations.
"""

from collections.abc import Iterable, Iterator
from itertools import product

from .arithmetic import ProcessGrid, divisors
from .partition import replica_suffix

KINDS = ("row", "column", "block")


def replication_triples(p: int) -> Iterator[tuple[int, int, int]]:
    """Yield every ``(c_A, c_B, c_C)`` of factors that divide ``p`` ranks.

    Examples
    --------
    >>> list(replication_triples(2))[:3]
    [(1, 1, 1), (1, 1, 2), (1, 2, 1)]
    >>> sum(1 for _ in replication_triples(12))
    216
    """
    yield from product(divisors(p), repeat=3)


def equal_replication(p: int) -> Iterator[tuple[int, int, int]]:
    """Yield the triples with one factor for A, B and C, as for the paper's MLP-1.

    Examples
    --------
    >>> list(equal_replication(4))
    [(1, 1, 1), (2, 2, 2), (4, 4, 4)]
    """
    for c in divisors(p):
        yield c, c, c


def paired_replication(p: int) -> Iterator[tuple[int, int, int]]:
    """Yield the triples with one factor for A and B and any for C, as for the paper's MLP-2.

    Examples
    --------
    >>> list(paired_replication(2))
    [(1, 1, 1), (1, 1, 2), (2, 2, 1), (2, 2, 2)]
    """
    for c_ab, c_c in product(divisors(p), repeat=2):
        yield c_ab, c_ab, c_c


#: Which replication factors of A, B and C vary together, by name.
REPLICATIONS = {
    "equal": equal_replication,
    "paired": paired_replication,
    "all": replication_triples,
}


def partition_triples(kinds: Iterable[str] = KINDS) -> Iterator[tuple[str, str, str]]:
    """Yield every choice of one kind each for A, B and C.

    Examples
    --------
    >>> list(partition_triples(["row", "column"]))[:3]
    [('row', 'row', 'row'), ('row', 'row', 'column'), ('row', 'column', 'row')]
    """
    yield from product(tuple(kinds), repeat=3)


def layouts(p: int, factors: Iterable[int] | None = None) -> Iterator[tuple[str, int]]:
    """Yield every layout of a matrix with one tile a rank and its replication factor: all process
    grids, row- and column-major, each once.

    Examples
    --------
    >>> [text for text, _ in layouts(8, [1])]
    ['row', 'column', 'block:2x4', 'block:2x4:col', 'block:4x2', 'block:4x2:col']
    >>> list(layouts(8, [4, 8]))
    [('row/c4', 4), ('column/c4', 4), ('row/c8', 8)]
    >>> sum(1 for _ in layouts(512))
    91
    """
    for factor in divisors(p) if factors is None else factors:
        ranks, suffix = p // factor, replica_suffix(factor)
        yield f"row{suffix}", factor
        if ranks == 1:
            continue
        yield f"column{suffix}", factor
        for rows in divisors(ranks)[1:-1]:
            for order in ("row", "col"):
                yield f"block:{ProcessGrid(rows, ranks // rows, order)}{suffix}", factor


def placements(mesh: str, words: Iterable[str] = ("S(0)", "S(1)", "R", "P")) -> Iterator[str]:
    """Yield every way to place a matrix on a mesh, one placement a mesh dimension.

    Examples
    --------
    >>> list(placements("2x2", ["S(0)", "R"]))
    ['S(0),S(0)@2x2', 'S(0),R@2x2', 'R,S(0)@2x2', 'R,R@2x2']
    >>> len(list(placements("2x2"))) ** 3
    4096
    """
    for chosen in product(tuple(words), repeat=mesh.count("x") + 1):
        yield f"{','.join(chosen)}@{mesh}"


def exhaustive(
    p: int,
    kinds: Iterable[str] = KINDS,
    factors: Iterable[tuple[int, int, int]] | None = None,
) -> Iterator[tuple[str, str, str]]:
    """Yield the text forms of A, B and C for every partitioning and replication.

    Parameters
    ----------
    p : int
        Number of ranks.
    kinds : iterable of str
        Text forms without ``/cN`` to combine.
    factors : iterable of (int, int, int), optional
        Replication factors to combine them with; by default every valid triple.

    Examples
    --------
    >>> list(exhaustive(2, kinds=["row"], factors=equal_replication(2)))
    [('row', 'row', 'row'), ('row/c2', 'row/c2', 'row/c2')]
    >>> sum(1 for _ in exhaustive(4))
    729
    """
    triples = tuple(replication_triples(p) if factors is None else factors)
    for (a, b, c), (c_a, c_b, c_c) in product(partition_triples(kinds), triples):
        yield a + replica_suffix(c_a), b + replica_suffix(c_b), c + replica_suffix(c_c)
