"""Every partitioning and replication of A, B and C: what DTensor does with it, and what drbench
does."""

from pathlib import Path

from drbench.errors import UsageError
from drbench.measure.record import Record
from launch.cases.case import Case
from launch.cases.launchers import Launcher
from launch.peers import get_peer, present
from launch.sweeps.supervisor import Settings
from partitions import exhaustive

from .bench import plain_console, run_batches

#: m, n, k: the grids of 2, 3, 4, 6, 8 and 12 ranks divide them, and no two operands have the same
#: size.
_EXTENTS = (48, 96, 72)
#: What DTensor does with a triple, from best to worst.
ACTIONS = (
    "multiplies",
    "reshards C",
    "reshards an operand",
    "reshards an operand and C",
    "refuses",
)
#: DTensor's replicated C is on every rank that should have it; so is drbench's here, though its
#: default leaves it on one replica.
_REPLICATED = {"replicate_result": True}
#: Collectives that complete a sum.
_REDUCTIONS = ("reduce_scatter", "all_reduce")


def run_triples(
    ranks: int,
    folder: Path,
    label: str,
    timeout_s: float | None,
    fresh: bool,
    launcher: Launcher,
) -> int:
    """Run all triples with DTensor and with drbench, each verified; the exit code: 0, or 1 if
    drbench refuses or fails one."""
    say = plain_console()
    present(get_peer("dtensor"))
    m, n, k = _EXTENTS
    triples = list(exhaustive(ranks))
    batches = [
        [
            (
                " | ".join((algorithm, a, b, c)),
                Case(
                    m,
                    n,
                    k,
                    a,
                    b,
                    c,
                    algorithm,
                    _REPLICATED if algorithm == "universal" and "/c" in c else {},
                    threads=1,
                    iters=1,
                    warmup=0,
                    machine=label,
                ),
            )
            for a, b, c in triples
        ]
        for algorithm in ("dtensor", "universal")
    ]

    def on_record(record: Record, at: int, total: int) -> None:
        if at % 200 == 0:
            say.print(f"{at}/{total}")

    about = (
        f"{len(triples)} triples on {ranks} ranks, C {m}x{n} = A {m}x{k} · B {k}x{n}, each with "
        "DTensor and with drbench"
    )
    settings = Settings(ranks, launcher, timeout_s)
    done = run_batches("triples", batches, settings, folder, fresh, say, about, on_record)
    failed = [
        record
        for record in done.values()
        if record.status != "ok" and record.algorithm == "universal"
    ]
    for record in failed[:10]:
        say.print(
            f"drbench: {record.a}, {record.b}, {record.c}: {record.status}: {record.reason}",
            style="red",
        )
    return 1 if failed else 0


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


def triple_rows(records) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Rows triple by triple: without replication; and over all replication factors, how often
    DTensor does what.

    Each row of the first: A, B, C, what DTensor does, its steps, its bytes, drbench's status and
    bytes. Each of the second: A, B, C, a count for each of :data:`ACTIONS`, how often ranks of
    DTensor repeat each other's products, how often drbench runs it, and, where DTensor repeats
    nothing, how often drbench moves fewer bytes, as many, and more.

    Raises
    ------
    UsageError
        If a triple is there for one of the two only.
    """
    from pandas import get_dummies

    from plots.select.records import frame, rows

    found = frame(records)
    ran = found.groupby(["a", "b", "c"], sort=False).algorithm.agg(set)
    for texts, names in ran[ran != {"dtensor", "universal"}].items():
        raise UsageError(
            f"the file has {', '.join(texts)} for {', '.join(names)} alone. Run drbench peers "
            "--triples --fresh."
        )
    found = found.drop_duplicates(["a", "b", "c", "algorithm"], keep="last")
    theirs, ours = (
        found[found.algorithm == name].set_index(["a", "b", "c"])
        for name in ("dtensor", "universal")
    )
    pairs = theirs.join(ours.add_suffix("_ours")).reset_index()
    pairs["action"] = [action(case) for case in rows(pairs)]
    repeats = pairs.dataflow.str.contains("x mm", na=False)
    more = (pairs.moved_bytes_ours - pairs.moved_bytes).where((pairs.status == "ok") & ~repeats)
    single = [
        (
            case.a,
            case.b,
            case.c,
            case.action,
            case.dataflow or case.reason or "",
            str(case.moved_bytes) if case.status == "ok" else "",
            case.status_ours,
            str(case.moved_bytes_ours),
        )
        for case in rows(pairs[~(pairs.a + pairs.b + pairs.c).str.contains("/")])
    ]
    does = (
        get_dummies(pairs.action)
        .reindex(columns=ACTIONS, fill_value=False)
        .assign(repeats=repeats, runs=pairs.status_ours == "ok", fewer=more < 0, same=more == 0)
        .assign(more=more > 0)
    )
    kinds = [pairs[name].str.split("/").str[0] for name in "abc"]
    counted = [
        (
            *texts,
            *map(str, counts[[*ACTIONS, "repeats"]]),
            f"{counts.runs} of {counts[list(ACTIONS)].sum()}",
            f"{counts.fewer} / {counts.same} / {counts.more}",
        )
        for texts, counts in does.groupby(kinds, sort=False).sum().iterrows()
    ]
    return single, counted
