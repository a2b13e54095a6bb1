"""Names of a case: its layer, its line in a legend, its source, its configuration.

Pure functions of one case: a :class:`drbench.measure.record.Record`, or a row of the table that
:mod:`drbench.plots.select.records` reads.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Real
from typing import NamedTuple

from drbench.measure.record import Record, RecordError, read_options
from drbench.texts import layouts_text, plural, shape_text

LAYERS = ("mlp1", "mlp2")
_HIDDEN = 12288  # the width of the paper's layers
UNIVERSAL = "universal"
Shape = tuple[int, int, int]

QUANTITIES = {"peak": "percent_of_peak", "gemm_only": "percent_of_gemm_only"}
#: Columns for the names of a case.
NAMING = "mode algorithm a b c preset stationary dataflow n k transpose alpha beta".split()
NAMING += "experts topk routing".split()
#: Texts of more names than this end in "and 12 more".
NAMED = 8


class SelectionError(RecordError):
    """Records that do not belong in one figure: the requirement, the records, and a fix."""


#: The rows of the MLP figures' legend: name -> the partitionings of A, B and C, or none for a
#: baseline, whose cases are those of the algorithm of this name, or of DTensor, measured or
#: simulated, by rows or columns.
LEGEND = {
    "UA - Row": ("row", "row", "row"),
    "UA - Column": ("column", "column", "column"),
    "UA - Block": ("block", "block", "block"),
    "UA - Inner Prod.": ("row", "column", "column"),
    "UA - Outer Prod.": ("column", "row", "row"),
    "UA - Traditional": ("traditional", "traditional", "traditional"),
    **dict.fromkeys(("DT - Row", "DT - Column", "COSMA-NCCL")),
}


@dataclass(frozen=True)
class Options:
    """Options of figures; each figure lists those that it has.

    Attributes
    ----------
    moving_only : bool
        Leave out cases that move no bytes at all, as the paper's figures do.
    quantity : str
        ``peak``, ``gemm_only``, or ``auto``: percent of peak if every case has it and none was
        measured with GEMM-only speed.
    shape : (m, n, k), optional
        Only this shape.
    axis : str
        ``paper``: 0 to 100, or ``fitted`` to the data.
    height : float, optional
        Inches of each panel.
    """

    moving_only: bool = False
    quantity: str = "auto"
    shape: Shape | None = None
    axis: str = "paper"
    height: float | None = None


class Source(NamedTuple):
    """The source of numbers; one panel has those of one source."""

    mode: str | None
    label: str | None
    machine: str | None
    ranks: int | None
    nodes: int | None
    threads: int | None
    dtype: str | None

    @property
    def family(self) -> str | None:
        """The label, without the number of devices.

        Examples
        --------
        >>> Source("published", "h100x8", None, 8, 1, 1, "float32").family
        'h100'
        """
        return re.sub("x[0-9]+$", "", self.label) if self.label else None

    def on_known_nodes(self) -> "Source":
        """The same, on one node if the number is unknown: a library that is a separate program does
        not report its nodes.

        Examples
        --------
        >>> Source("measured", "here", None, 4, None, 1, "float32").on_known_nodes().nodes
        1
        """
        return self._replace(nodes=self.nodes or 1)

    @property
    def text(self) -> str:
        """The source in one line, e.g. ``4 ranks, spr-2core, float32, measured``."""
        ranks = None if self.ranks is None else plural(self.ranks, "rank")
        nodes = f"{self.nodes} nodes" if (self.nodes or 1) > 1 else None
        threads = f"{self.threads} threads a rank" if (self.threads or 1) > 1 else None
        on = f"on {self.machine}" if self.machine != self.label and self.machine else None
        of = ranks, nodes, threads, self.label, on, self.dtype, self.mode
        return ", ".join(part for part in of if part)


def form(record: Record) -> str:
    """Return the form of a multiplication that is not A·B; empty for A·B.

    Examples
    --------
    >>> def case(**values):
    ...     return Record(mode="measured", status="ok", best_s=1.0, **values)
    >>> form(case()), form(case(transpose="ab")), form(case(transpose="b", alpha=2, beta=1))
    ('', 'Aᵀ·Bᵀ', '2·A·Bᵀ + C')
    """
    names = [f"{name.upper()}{'ᵀ' * (name in (record.transpose or ''))}" for name in "ab"]
    alpha, beta = (
        "" if number is None or number == 1 or math.isnan(number) else f"{number:g}·"
        for number in (record.alpha, record.beta)
    )
    known = record.beta is not None and not math.isnan(record.beta) and record.beta != 0
    text = f"{alpha}{'·'.join(names)}" + f" + {beta}C" * known
    return "" if text == "A·B" else text


def layer_of(record: Record) -> str | None:
    """Return the layer of a case by its sizes: ``n = 4k`` is mlp1, ``k = 4n`` is mlp2. A
    multiplication of another form than A·B is none.

    Examples
    --------
    >>> def case(n, k):
    ...     return Record(mode="simulated", status="ok", best_s=1.0, m=64, n=n, k=k)
    >>> layer_of(case(49152, 12288)), layer_of(case(12288, 49152)), layer_of(case(64, 64))
    ('mlp1', 'mlp2', None)
    """
    return _layer(record.n, record.k) if record.n and record.k and not form(record) else None


def _layer(n: int, k: int) -> str | None:
    return "mlp1" if n == 4 * k else "mlp2" if k == 4 * n else None


def line_of(record: Record) -> str | None:
    """Return the row of the MLP figures' legend for a case: of universal by its partitioning, with
    a preset also where its grids are explicit, else by its algorithm, for DTensor, measured or
    simulated, by its sharding.

    Examples
    --------
    >>> def case(mode="measured", **values):
    ...     return Record(mode=mode, status="ok", best_s=1.0, **values)
    >>> line_of(case(algorithm="COSMA-NCCL")), line_of(case(algorithm="dtensor", preset="row"))
    ('COSMA-NCCL', 'DT - Row')
    >>> (
    ...     line_of(case(algorithm="dtensor", a="column", b="column", c="column")),
    ...     line_of(case(algorithm="universal", a="row", b="row/c2", c="row")),
    ...     line_of(case(algorithm="summa")),
    ... )
    ('DT - Column', 'UA - Row', None)
    >>> [
    ...     line_of(case(mode, algorithm="dtensor_mm", preset="row"))
    ...     for mode in ("simulated", "measured")
    ... ]
    ['DT - Row', None]
    >>> tall = {name: "block:4x3" for name in "abc"} | {"algorithm": "universal"}
    >>> line_of(case(**tall)), line_of(case(**tall, preset="block"))
    (None, 'UA - Block')
    """
    name = record.algorithm
    if name == UNIVERSAL:
        return _of_universal(record)
    if name == "dtensor" or (name == "dtensor_mm" and record.mode == "simulated"):
        sharded = {record.preset} if record.preset else {record.a, record.b, record.c}
        name = {"row": "DT - Row", "column": "DT - Column"}.get("|".join(map(str, sharded)))
    return name if name in LEGEND and not LEGEND[name] else None


def _of_universal(record: Record) -> str | None:
    texts = forms(record)
    if record.preset:
        texts = tuple(text.partition(":")[0] for text in texts)
    return next((name for name, own in LEGEND.items() if own == texts), None)


@cache
def split_factor(text: str) -> tuple[str, int]:
    """Split the text of a partition into its form and its replication factor.

    Examples
    --------
    >>> split_factor("block:2x3/c2"), split_factor("row")
    (('block:2x3', 2), ('row', 1))
    """
    form, _, factor = text.partition("/c")
    return form, int(factor) if re.fullmatch("[0-9]+", factor) else 1


def forms(record: Record) -> tuple[str, str, str]:
    """Return the forms of the partitions of A, B and C, without their factors."""
    return tuple(split_factor(text or "?")[0] for text in (record.a, record.b, record.c))


def factors(record: Record) -> tuple[int, int, int]:
    """Return the replication factors of A, B and C."""
    return tuple(split_factor(text or "")[1] for text in (record.a, record.b, record.c))


def factor_text(record: Record) -> str:
    """Format a replication factor; a mixed one as the A, B factor, a dash, the C factor.

    Examples
    --------
    >>> case = Record(mode="simulated", status="ok", best_s=1.0, a="row/c4", b="row/c4", c="row/c2")
    >>> factor_text(case)
    '4-2'
    """
    a, b, c = factors(record)
    return f"{a}" if a == b == c else f"{a}-{c}"


def series(record: Record) -> str:
    """The line a case belongs to: a partitioning of the universal algorithm as in the paper's
    legend, else its preset; or an algorithm.

    Examples
    --------
    >>> def case(**values):
    ...     return Record(mode="measured", status="ok", best_s=1.0, **values)
    >>> (
    ...     series(case(algorithm="universal", a="row/c2", b="column", c="column")),
    ...     series(case(algorithm="summa", mesh="2x2")),
    ... )
    ('UA - Inner Prod.', 'summa')
    """
    name = record.algorithm or "unnamed"
    if record.algorithm == UNIVERSAL:
        name = _of_universal(record) or (f"UA - {record.preset}" if record.preset else name)
    return " ".join(filter(None, (name, form(record))))


def variant(record: Record) -> str:
    """An algorithm with its data movement, e.g. ``universal S-C`` or ``summa OS``."""
    movement = f"S-{record.stationary}" if record.stationary else record.dataflow
    parts = record.algorithm or "unnamed", movement, form(record)
    return " ".join(part for part in parts if part)


def configuration(record: Record) -> str:
    """The choices of a case that are not in its name: mesh, slices, partitions.

    Examples
    --------
    >>> configuration(Record(mode="measured", status="ok", best_s=1.0, mesh="2x2", slices=8))
    '2x2, slices 8'
    >>> configuration(
    ...     Record(mode="measured", status="ok", best_s=1.0, a="row", b="row", c="row/c2")
    ... )
    'AB row · C row/c2'
    """
    parts = [record.mesh] if record.mesh else []
    parts += [
        f"{name} {getattr(record, name)}"
        for name in ("slices", "panel", "block", "unroll")
        if getattr(record, name)
    ]
    parts += [f"{name} {value}" for name, value in read_options(record.options).items()]
    if not parts and (record.a or record.b or record.c):
        parts = [layouts_text((record.a, record.b, record.c))]
    return ", ".join(parts)


def shape_name(shape: Shape) -> str:
    """The name of a problem: a layer of the paper at a batch size, else its sizes. (A smaller layer
    is the paper's only in a sweep of that name, which records do not hold.)

    Examples
    --------
    >>> shape_name((256, 8192, 2048)), shape_name((8, 49152, 12288))
    ('256 × 8192 × 2048', 'MLP-1, m = 8')
    """
    m, n, k = shape
    layer = _layer(n, k) if min(n, k) == _HIDDEN else None
    return f"MLP-{layer[-1]}, m = {m}" if layer else shape_text(*shape)


def case_name(record: Record) -> str:
    """The algorithm of a case with its data movement, and its configuration.

    Examples
    --------
    >>> row = dict(mode="measured", status="ok", best_s=1.0, a="row", b="row", c="row/c2")
    >>> case_name(Record(algorithm="universal", stationary="C", **row))
    'universal S-C AB row · C row/c2'
    """
    return " ".join(filter(None, (variant(record), configuration(record))))


def by_name(shape: Shape) -> tuple:
    """A sort key of shapes: square ones, then the layers by size, then others.

    Examples
    --------
    >>> sorted([(8, 9, 10), (64, 32, 128), (256, 64, 16), (64, 64, 16), (7, 7, 7)], key=by_name)
    [(7, 7, 7), (64, 64, 16), (256, 64, 16), (64, 32, 128), (8, 9, 10)]
    """
    m, n, k = shape
    return m != n or n != k, _layer(n, k) or "others", n, k, m


def rising(value) -> tuple:
    """A sort key for mixed tuples: nothing first, then numbers, then texts."""
    if isinstance(value, tuple):
        return tuple(map(rising, value))
    if value is None:
        return 0, 0, ""
    return (1, value, "") if isinstance(value, Real) else (2, 0, str(value))


def cases(count: int, word: str = "case") -> str:
    """``1 case``, ``2 cases``."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def names(texts: Sequence[str], most: int = NAMED) -> str:
    """List names, at most some of them.

    Examples
    --------
    >>> names(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    described = ", ".join(texts[:most])
    return described if len(texts) <= most else f"{described} and {len(texts) - most} more"


def shorten(text: str, most: int) -> str:
    """Shorten a text in its middle; unprintable characters become a replacement character.

    Examples
    --------
    >>> shorten("abcdefgh", 5), shorten("abc", 5)
    ('ab…gh', 'abc')
    """
    # no font has those
    text = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"
