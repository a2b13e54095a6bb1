"""Named partitionings of all three operands, from the paper and from the AI literature;
:func:`drbench.partitions.preset` reads their names.

Sources are sections of Brock & Golin, "Slicing Is All You Need" (2025), unless a
preset names another. "Replicated" means a full copy on every rank.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Preset:
    """A named triple of partitions.

    Parameters
    ----------
    name : str
        For the command line.
    description : str
        The layouts and the operands that move: one line.
    source : str
        Paper and section.
    operands : (str, str, str)
        Kinds of A, B and C; ``REPLICATED`` is a full copy on every rank, ``GRID`` a matrix stored
        once on a grid over m, n and k.
    fixed : bool
        Whether the preset sets replication factors itself, so that it takes no ``/cN``.
    """

    name: str
    description: str
    source: str
    operands: tuple[str, str, str]
    fixed: bool = False


REPLICATED = "replicated"
GRID = "grid"

PRESETS: dict[str, Preset] = {
    entry.name: entry
    for entry in (
        Preset(
            "row",
            "row blocks of all three; B moves",
            "§5.2, UA - Row",
            ("row", "row", "row"),
        ),
        Preset(
            "column",
            "column blocks of all three; A moves",
            "§5.2, UA - Column",
            ("column", "column", "column"),
        ),
        Preset(
            "block",
            "2-D blocks of all three on near-square grids; two operands move",
            "§5.2, UA - Block",
            ("block", "block", "block"),
        ),
        Preset(
            "traditional",
            "2-D blocks aligned along m, n and k, as SUMMA and Cannon need; two operands move",
            "§5.2, UA - Traditional",
            ("traditional", "traditional", "traditional"),
        ),
        Preset(
            "inner",
            "inner product: row blocks of A times column blocks of B; A moves",
            "§5.2.1, UA - Inner Prod.",
            ("row", "column", "column"),
        ),
        Preset(
            "outer",
            "outer product: column blocks of A times row blocks of B; C is accumulated",
            "§5.2.1, UA - Outer Prod.",
            ("column", "row", "row"),
        ),
        Preset(
            "megatron",
            "first MLP layer: input on every rank, weights by columns; nothing moves",
            "§2.2, Megatron-LM-style parallelism",
            (REPLICATED, "column", "column"),
            fixed=True,
        ),
        Preset(
            "megatron-2",
            "second MLP layer: an outer product into a C on every rank, reduced at the end",
            "§2.2, Megatron-LM-style parallelism",
            ("column", "row", REPLICATED),
            fixed=True,
        ),
        Preset(
            "sequence",
            "input by rows, weights on every rank; nothing moves in the forward pass",
            "§2.2, sequence parallelism",
            ("row", REPLICATED, "row"),
            fixed=True,
        ),
        Preset(
            "fsdp",
            "input by rows, weights sharded by columns; each rank gathers the weights",
            "§2.2, FSDP-style parallelism",
            ("row", "column", "row"),
        ),
        Preset(
            "2.5d",
            "N copies of 2-D blocks, N the largest divisor of p with N³ <= p; C is reduced",
            "§2.1, 2.5D algorithms",
            ("block", "block", "block"),
            fixed=True,
        ),
        Preset(
            "optimal",
            "stored once on the grid over m, n, k with fewest bytes, or optimal:2x2x2; all move",
            "COSMA (SC'19); Agarwal et al., 1995",
            (GRID, GRID, GRID),
            fixed=True,
        ),
    )
}
