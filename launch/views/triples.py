"""What DTensor does with every partitioning and replication of A, B and C, and what drbench moves
there."""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter

from drbench.measure.record import Record

from .tables import Column, Table

#: What DTensor does with a triple, from best to worst.
ACTIONS = (
    "multiplies",
    "reshards C",
    "reshards an operand",
    "reshards an operand and C",
    "refuses",
)
#: Collectives that complete a sum.
_REDUCTIONS = ("reduce_scatter", "all_reduce")


def action(record: Record) -> str:
    """What DTensor did, one of :data:`ACTIONS`, from the steps of its record.

    Examples
    --------
    >>> def steps(text):
    ...     return action(Record(mode="measured", status="ok", best_s=1.0, dataflow=text))
    >>> (
    ...     steps("2x mm"),
    ...     steps("mm, reduce_scatter"),
    ...     steps("all_gather, mm, reduce_scatter"),
    ...     steps("mm, all_gather"),
    ... )
    ('multiplies', 'multiplies', 'reshards an operand', 'reshards C')
    """
    if record.status != "ok":
        return "refuses"
    steps = (record.dataflow or "").split(", ")
    at = next((place for place, step in enumerate(steps) if step.endswith("mm")), 0)
    resharded = ["an operand"] * (at > 0) + ["C"] * (not {*steps[at + 1 :]} <= {*_REDUCTIONS})
    return f"reshards {' and '.join(resharded)}" if resharded else "multiplies"


def triple_tables(runs: Sequence[Mapping[int, Record]]) -> list[Table]:
    """Triple by triple without replication; and over all replication factors of each how often
    DTensor does what, how often its ranks repeat each other's products, and, where they repeat
    none, how often drbench moves fewer bytes, as many, and more."""
    pairs: dict[tuple, dict[str, Record]] = {}
    for run in filter(None, runs):
        record = run[max(run)]
        pairs.setdefault((record.a, record.b, record.c), {})[record.algorithm] = record
    single, counts = [], {}
    for texts, both in pairs.items():
        theirs, ours = both.get("dtensor"), both.get("universal")
        if theirs is None or ours is None:
            continue
        did = action(theirs)
        if not any("/" in text for text in texts):
            row = {"does": did, "steps": theirs.dataflow or theirs.reason}
            row |= {"moved_bytes": theirs.moved_bytes, "drbench_bytes": ours.moved_bytes}
            single.append(dict(zip("abc", texts)) | row)
        count = counts.setdefault(tuple(text.split("/")[0] for text in texts), Counter())
        repeats = "x mm" in (theirs.dataflow or "")
        count.update([did, *["repeats"] * repeats, *["runs"] * (ours.status == "ok")])
        if theirs.status == ours.status == "ok" and not repeats:
            more = ours.moved_bytes - theirs.moved_bytes
            count["fewer" if more < 0 else "more" if more else "same"] += 1
    keys = (*ACTIONS, "repeats", "runs", "fewer", "same", "more")
    counted = [
        dict(zip("abc", texts)) | {key: count[key] for key in keys}
        for texts, count in counts.items()
    ]
    return [
        Table("Without replication (bytes: all ranks together)", _SINGLE, single),
        Table("Over all replication factors: how often", _COUNTED, counted),
    ]


def _plain(key: str, heading: str) -> Column:
    return Column(key, heading, lambda row: str(row[key]))


_TRIPLE = tuple(Column(name, name.upper(), itemgetter(name)) for name in "abc")
_SINGLE = (
    *_TRIPLE,
    _plain("does", "DTensor"),
    _plain("moved_bytes", ">bytes"),
    _plain("drbench_bytes", ">drbench"),
    _plain("steps", "its steps"),
)
_COUNTED = (
    *_TRIPLE,
    *(_plain(name, f">{name}") for name in (*ACTIONS, "repeats")),
    Column(
        "fewer",
        ">drbench fewer / same / more",
        lambda row: f"{row['fewer']} / {row['same']} / {row['more']}",
    ),
)
