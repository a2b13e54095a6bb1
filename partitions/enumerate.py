"""Every combination of partitionings and replication factors, for sweeps and searches.

The paper tests "all combinations of row block, column block, and rectangular 2D block
with all valid replication factors" (Brock & Golin 2025, §5.2). All functions yield
lazily: 12 ranks already have 27 · 6³ = 5832 combinations.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator

from .arithmetic import ProcessGrid, divisors
from .partition import replica_suffix

KINDS = ("row", "column", "block")


#: Name -> replication factors of A, B and C for a number of ranks.
REPLICATIONS: dict[str, Callable[[int], Iterator[tuple[int, ...]]]] = {
    "equal": lambda p: ((c, c, c) for c in divisors(p)),
    "paired": lambda p: ((ab, ab, c) for ab, c in itertools.product(divisors(p), repeat=2)),
    "all": lambda p: itertools.product(divisors(p), repeat=3),
}


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
