"""Named partitionings of all three operands, from the paper and from the AI literature.

Sources are sections of Brock & Golin, "Slicing Is All You Need" (2025), unless a
preset names another. "Replicated" means a full copy on every rank.
"""

from dataclasses import dataclass
from difflib import get_close_matches

from .arithmetic import divisors, most_replicas
from .errors import LayoutError
from .partition import replica_suffix
from .text import parse_factor


@dataclass(frozen=True, slots=True)
class Preset:
    """A named triple of partitions.

    Parameters
    ----------
    name : str
        What the command line says.
    about : str
        What moves, or why one would use it: one line.
    source : str
        Where it comes from.
    operands : (str, str, str)
        Kinds of A, B and C; ``REPLICATED`` stands for a full copy on every rank.
    fixed : bool
        Whether the preset sets replication factors itself, so that it takes no ``/cN``.
    """

    name: str
    about: str
    source: str
    operands: tuple[str, str, str]
    fixed: bool = False


REPLICATED = "replicated"

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
            "2-D blocks whose tiles align along m, n and k, as SUMMA and Cannon need them",
            "§5.2, UA - Traditional",
            ("traditional", "traditional", "traditional"),
        ),
        Preset(
            "inner",
            "inner product: row panels of A times column panels of B; A moves",
            "§5.2.1, UA - Inner Prod.",
            ("row", "column", "column"),
        ),
        Preset(
            "outer",
            "outer product: column panels of A times row panels of B; C is accumulated",
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
            "replicated 2-D blocks; the factor is the largest divisor N of p with N³ <= p",
            "§2.1, 2.5D algorithms",
            ("block", "block", "block"),
            fixed=True,
        ),
    )
}


def preset(name: str, nprocs: int) -> tuple[str, str, str]:
    """Return the text forms of A, B and C of a named partitioning.

    Parameters
    ----------
    name : str
        A key of :data:`PRESETS`; those that do not fix their replication take a
        suffix ``/cN``, which sets the replication factor of all three operands.
    nprocs : int
        Number of ranks, which "replicated" and 2.5D depend on.

    Raises
    ------
    LayoutError
        If the name is unknown, the factor does not divide ``nprocs``, or the
        preset fixes its own factors.

    Examples
    --------
    >>> preset("inner/c2", 4)
    ('row/c2', 'column/c2', 'column/c2')
    >>> preset("megatron", 4)
    ('row/c4', 'column', 'column')
    >>> preset("2.5d", 8)
    ('block/c2', 'block/c2', 'block/c2')
    """
    base, slash, factor = name.strip().lower().partition("/")
    if base not in PRESETS:
        close = get_close_matches(base, PRESETS, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise LayoutError(f"unknown preset {base!r}; {hint}Presets: {', '.join(PRESETS)}.")
    chosen = PRESETS[base]
    valid = divisors(nprocs)
    if slash and chosen.fixed:
        raise LayoutError(
            f"{base} sets its own replication factors, got {name.strip()!r};"
            f" use {base} alone, or give A, B and C one by one"
        )
    replicas = parse_factor(name, factor) if slash else 1
    if replicas not in valid:
        raise LayoutError(
            f"{base}/c{replicas} needs a replication factor that divides {nprocs} ranks;"
            f" use one of {', '.join(map(str, valid))}"
        )
    if base == "2.5d":
        replicas = most_replicas(nprocs)
    a, b, c = (
        f"row{replica_suffix(nprocs)}"
        if operand == REPLICATED
        else f"{operand}{replica_suffix(replicas)}"
        for operand in chosen.operands
    )
    return a, b, c
