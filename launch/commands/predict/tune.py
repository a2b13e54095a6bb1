"""``drbench tune``: the cost of the current layouts, the best ones, and whether changing pays; then
the ranking, by a machine model or by bytes; ``--measure`` runs the first places."""

import json
import re
from dataclasses import replace
from itertools import zip_longest
from math import inf
from typing import NamedTuple

import click

from drbench.errors import EXIT_CODES, UsageError
from drbench.launch.cases.command_line import run_command
from drbench.launch.host.files import add_records, check_csv
from drbench.launch.host.show import brief, multiplication_text, predicted_text
from drbench.launch.tune.request import EFFORT
from drbench.launch.views.tables import Column, Table, marks_of
from drbench.measure.decision import MARKS, Decision, decide, leaders, remedy
from drbench.measure.decision import answer as decided
from drbench.measure.noise import FEWEST
from drbench.measure.record import Record
from drbench.texts import bytes_text, layouts_text, marked, time_text

from ..completion import complete_names
from ..guards import refuse_too_many
from ..options import (
    BYTES,
    TEXT,
    checked,
    command,
    csv_option,
    form_options,
    machine_option,
    modelled,
    of_case,
    option,
    pairs_option,
    plugged,
    printing,
    ranks_option,
    take_options,
    yes_option,
)

#: Most programs that ``--measure`` runs without a number.
_MOST_PROBED = 8


def _letters(text: str) -> str:
    """The matrices of ``--fix``, such as ``a,c`` or ``AC``, as small letters."""
    letters = re.sub("[ ,]", "", text.lower())
    if not re.fullmatch("[abc]+", letters):
        raise UsageError(f"--fix names matrices, got {text!r}. Use some of A,B,C.")
    return letters


@command(
    "tune",
    needs={
        **dict.fromkeys(("--iters", "--budget", "--threads", "--backend"), "--measure"),
        **dict.fromkeys(
            ("--transport", "-o prefetch", "-o compute", "--csv"), "--machine --measure"
        ),
        "--multiplications": "--preset --a --b --c",
    },
)
@of_case("m", "n", "k")
@of_case("transpose", "alpha", "beta")
@of_case("dtype", default=None, default_text="the machine's")
@ranks_option()
@of_case("a", default_text="open", help="Current partition of A.")
@of_case("b", default_text="open", help="Current partition of B.")
@of_case("c", default_text="open", help="Wanted partition of C.")
@of_case("preset", help="A, B and C by name (drbench list presets); --a, --b, --c override it.")
@option(
    "--fix",
    type=checked(_letters),
    metavar="A,B,C",
    group="Layout",
    help="Matrices that keep their partitions. [default: all may change]",
)
@option(
    "--multiplications",
    type=click.IntRange(1),
    default=100,
    group="Layout",
    help="Multiplications that share the cost of changing the layouts.",
)
@option(
    "--replication",
    type=click.Choice(["none", "equal", "paired", "all"]),
    default="none",
    group="Layout",
    help="Replication factors to try: none, equal ones of A, B and C, equal ones of A and B, or "
    "every triple.",
)
@option(
    "--only",
    "names",
    type=TEXT,
    metavar="A,B,...",
    group="Algorithm",
    help="Algorithms to try. [default: all]",
    shell_complete=complete_names("algorithms"),
)
@machine_option("machine")
@option(
    "--memory",
    type=BYTES,
    metavar="BYTES",
    group="Machine model",
    help="Most bytes of tiles and buffers per rank, as 60GiB. [default: the device's memory]",
)
@option(
    "--effort",
    type=click.FloatRange(0),
    metavar="SECONDS",
    group="Machine model",
    help="Approximate CPU seconds of the search. "
    f"0: search everything. [default: {EFFORT:g}, or ranks/40]",
)
@of_case("transport")
@pairs_option("prefetch", "compute", help="prefetch=N, or compute=tf32. Repeatable.")
@option(
    "--top", type=click.IntRange(1), default=10, group="Output", help="Most rows of the ranking."
)
@option(
    "--measure",
    is_flag=False,
    flag_value=0,
    type=click.IntRange(0),
    metavar="[N]",
    group="Measurement",
    help="Run the candidates that may be fastest, or the first N, on MPI ranks of this machine, "
    "interleaved, and drop slower ones until the fastest is known.",
)
@of_case("iters", default=FEWEST, help="With --measure: least number of rounds; see --budget.")
@of_case(
    "budget",
    help="With --measure: repeat until the fastest is known, or for this time each; 0: --iters "
    "rounds.",
)
@of_case("threads", help="With --measure: BLAS threads a rank.", default_text="cores // ranks")
@of_case("backend", help="With --measure: numpy or cupy.")
@yes_option()
@csv_option()
@form_options
def tune_command(
    memory,
    replication,
    effort,
    multiplications,
    fix,
    top,
    measure,
    iters,
    budget,
    csv_path,
    as_json,
    yes,
    ranks,
    names,
    **values,
):
    """Choose layouts and algorithm: shows what your layouts cost, which are best, and whether
    changing pays.

    \b
      drbench tune -m 8Ki -n 48Ki -k 12Ki --preset row --machine h100x8
      drbench tune -m 8Ki -n 48Ki -k 12Ki -p 8 --preset row --fix c --memory 60GiB
      drbench tune -m 2Ki -n 2Ki -k 2Ki -p 2 --measure

    The first lines say what your layouts cost, which are best, and after how many multiplications
    it pays to redistribute A and B, and C back. Then comes the ranking. Without --machine it counts
    bytes and load balance instead of times. All replicas of C are complete.
    """
    from drbench.launch.cases.case import Case, check_case, partition_texts
    from drbench.launch.tune.rank import tune
    from drbench.launch.tune.report import answer
    from drbench.launch.tune.request import TuneRequest

    check_csv(csv_path)
    take_options(values)
    model, ranks = modelled(values, ranks)
    refuse_too_many(ranks if measure is not None else None, values["threads"], yes)
    if measure is not None:
        check_case(Case(8, 8, 8, dtype=values["dtype"], backend=values["backend"]))
    today = partition_texts(values, ranks)
    fix = fix or ""
    for name in fix:
        if today[name] is None:
            raise UsageError(f"--fix {name.upper()}, and --{name} gives no partition. Give it.")
    request = TuneRequest.of(
        Case(**values | today),
        ranks,
        fix,
        effort,
        algorithms=tuple(name.strip() for name in names.split(",")) if names else None,
        memory=memory,
        replication=replication,
        top=max(top, measure or 0),
        multiplications=multiplications,
    )
    result = tune(request, model)
    how = {"iters": iters, "budget": budget}  # for the measurement, not for the shown command
    measured = (
        []
        if measure is None
        else _measure(result, request, measure, how, as_json in ("json", "brief"))
    )
    predicted = [place.record for place in result.ranking if place.record]
    add_records(csv_path, *predicted, *(run.record for run in measured))
    rows = [
        row_of(place, request, result.least_bytes) | {"place": at} | _measured_values(ran)
        for at, (place, ran) in enumerate(zip_longest(result.ranking, measured), 1)
    ]
    chosen, decisions = _chosen(measured), [run.decision for run in measured]
    verbose = as_json == "verbose"
    if as_json == "json":
        print(json.dumps(_as_json(result, rows, chosen, model, request)))
    elif as_json == "brief":
        print(_brief(result, request))
    else:
        out, print_line = printing()
        if measured:
            names = [f"{row['what']} on {_layouts(row)}" for row in rows]
            more = f" ({needs})" if (needs := remedy(decisions)) else ""
            print_line(f"Measured here: {decided(decisions, names)}{more}.")
        for line in answer(result, request):
            print_line(line)
        shown = merged(rows, result, request)[:top]
        Table("", _COLUMNS, shown).show(out, limit=len(shown), verbose=verbose)
        for line in _notes(result, chosen, model, request, verbose):
            print_line(line)
    return max((EXIT_CODES[run.record.status] for run in measured), default=0)


def row_of(place, request, least_bytes: float) -> dict:
    """The values of one place: a row of the table, and of the JSON."""
    from drbench.launch.tune.report import name_of, redistribution_text

    record, moving = place.record, place.moving
    row = {
        "what": name_of(place),
        "command": plugged(run_command(place.case, request.ranks)),
        "layouts": list(place.layouts),
        "memory_bytes": place.memory,
        "moved_bytes": place.moved_bytes,
        "redistribution": moving._asdict(),
        "brought": redistribution_text(moving) if any(request.today) else None,
    }
    if record is not None:
        links = place.bound.links_s > place.bound.gemms_s
        return row | {
            "time": predicted_text(record),
            "time_s": record.best_s,
            "least": f"{time_text(place.bound.seconds)}{' (link)' if links else ''}",
            "percent_of_gemm_only": record.percent_of_gemm_only,
            "bound": place.bound._asdict(),
            "record": record.to_json_dict(),
        }
    counts = place.counts
    return row | {
        "busiest_bytes": counts.loads.busiest_bytes,
        "busiest_flops": counts.loads.busiest_flops,
        "share_of_flops": counts.share,
        "needed_bytes": counts.needed,
        "over_bound": counts.needed / least_bytes,
    }


def merged(rows: list[dict], result, request) -> list[dict]:
    """The rows of places, with one for the variants of an algorithm on the same layouts that look
    alike, that may be as fast as the first, or that were measured: the fastest of these."""
    alike: dict = {}
    near = {*result.within(request.multiplications)}
    for row, place in zip(rows, result.ranking):
        ran, first = "ran" in row, row["place"] in {1, *near}
        name = place.case.algorithm if ran or first else row["what"]
        mark = row["marks"] if ran else "=" * (bool(near) and first)
        alike.setdefault((ran, name, place.layouts), []).append(row | {"marks": mark})
    return [
        first | {"what": first["what"] + f", {len(more)} more" * bool(more), "place": at}
        for at, (first, *more) in enumerate(
            (sorted(variants, key=_order) for variants in alike.values()), 1
        )
    ]


def _order(row: dict) -> tuple[float, float]:
    """What sorts the variants of a row that was measured: the ratio of its time to the best in the
    same rounds, as the decision has it, and its time where there is none."""
    if "ran" not in row:
        return 0.0, 0.0
    return row["measured_to_best"]["ratio"] or inf, row["measured"]["median_s"] or inf


def _measured_values(ran: "Measured | None") -> dict:
    """The values of a row that were measured."""
    if ran is None:
        return {}
    record, decision, dropped = ran
    ratio = decision.ranked and decision.ratio
    is_timed = record.status == "ok"
    marks = marks_of(record) + MARKS.get(decision.state, "") * is_timed
    return {
        "ran": marked(time_text(record.time_s), marks) if is_timed else record.status,
        "to_the_best": f"{ratio.middle:.2f}" if ratio else "",
        "interval": str(decision),
        "marks": marks,
        "needs": decision.needs,
        "measured": record.to_json_dict(),
        "measured_to_best": decision.to_json_dict() | {"dropped": dropped},
    }


def _marked(row: dict, text: str) -> str:
    """A predicted cost with its mark; a measured time has its own."""
    return text if "ran" in row else marked(text, row["marks"])


def _layouts(row: dict) -> str:
    return layouts_text(row["layouts"])


_COLUMNS = (
    Column("place", ">!"),
    Column("time_s", ">!time", lambda row: _marked(row, time_text(row["time_s"]))),
    Column(
        "busiest_bytes", ">!busiest", lambda row: _marked(row, bytes_text(row["busiest_bytes"]))
    ),
    Column("ran", ">!measured"),
    Column("to_the_best", ">!ratio"),
    Column("interval", ">95 % interval", detail=True),
    Column("layouts", "!~layouts", _layouts),
    Column("what", "!~algorithm"),
    Column(
        "percent_of_gemm_only", ">GEMM-only", lambda row: f"{row['percent_of_gemm_only']:.0f} %"
    ),
    Column("time", ">interval", detail=True),
    Column("over_bound", ">over bound", lambda row: f"{row['over_bound']:.3f}", True),
    Column("brought", ">redistribution", detail=True),
    Column("least", ">least time", detail=True),
    Column("moved_bytes", ">moved", lambda row: bytes_text(row["moved_bytes"]), True),
    Column("share_of_flops", ">work", lambda row: f"{row['share_of_flops']:.2f}", True),
    Column("memory_bytes", ">memory", lambda row: bytes_text(row["memory_bytes"]), True),
)


#: Attributes of the search's result in the JSON.
_FOUND = "times_better least_bytes tried left refused too_large".split()


def _as_json(result, rows: list[dict], chosen: int, machine, request) -> dict:
    return {
        "ranked_by": "bytes" if machine is None else "time",
        "machine": machine and machine.name,
        "mine": result.mine and row_of(result.mine, request, result.least_bytes),
        "why_not": result.why_not or None,
        "pays_after_multiplications": result.pays_after,
        "gap": None if result.gap == inf else result.gap,
        "simulated" if machine else "counted": result.judged,
        **{name: getattr(result, name) for name in _FOUND},
        "chosen": chosen,
        "within_interval": result.within(request.multiplications),
        "ranking": rows,
    }


def _brief(result, request) -> str:
    """The line that ``--brief`` prints: the first place next to the current layouts."""
    first, mine = result.ranking[0], result.mine
    cost = "busiest_bytes" if first.record is None else "time_s"
    values = {
        cost: first.cost,
        f"your_{cost}": mine and mine.cost,
        "moved_bytes": first.moved_bytes,
        "memory_bytes": first.memory,
        "redistribution_bytes": first.moving.moved_bytes,
        "redistribution_s": first.moving.seconds,
        "pays_after_multiplications": result.pays_after,
    }
    values |= {name: getattr(request.case, name) for name in ("m", "n", "k", "dtype")}
    values |= {"ranks": request.ranks} | dict(zip("abc", first.layouts))
    return brief(values | {"algorithm": first.case.algorithm} | first.case.options)


def _notes(result, chosen: int, machine, request, verbose: bool) -> list[str]:
    """The lines below the ranking: what to run, and with ``verbose`` how the answer was found."""
    from drbench.launch.cases.machine_models import CALIBRATE
    from drbench.launch.tune.costs import EVEN
    from drbench.launch.tune.report import tell_doubt

    case, ranks, lines = request.case, request.ranks, []
    name = "the best" if chosen == 1 else "the fastest measured one"
    lines.append(f"Run {name}: {plugged(run_command(result.ranking[chosen - 1].case, ranks))}")
    if result.better and verbose:
        lines.append(f"Run yours: {plugged(run_command(result.mine.case, ranks))}")
    if machine is None:
        lines.append(f"Ranked by bytes. For times: {CALIBRATE}, then --machine mine.toml")
    elif result.ranking[0].record.median_high_s is None:
        lines.append(f"{machine.name} has no intervals: calibrate it again.")
    if tell_doubt(result):
        lines.append(f"Search longer: --effort {4 * request.effort:g}")
    if not verbose:
        return lines
    if machine is None:
        lines.append(
            "busiest: the most bytes that a rank sends or receives; layouts that give a rank "
            f"over {EVEN:g} times its share of the FLOPs are last"
        )
        least = bytes_text(round(result.least_bytes))
        lines.append(
            f"bound: some rank stores or moves at least {least} of A, B and C, with any schedule"
        )
    else:
        lines.append(
            "least time: no run of the program is faster than its local GEMMs, or its busiest link"
        )
        if needed := result.ranking[0].record.beyond:
            lines.append(f"outside the calibration of {machine.name}: {needed}")
    judged = "simulated" if machine else "counted on all ranks"
    rest = f"{result.left} left" if result.left else "the others excluded by their lower bound"
    where = f" of {machine.name}" if machine else ""
    lines.append(
        f"{multiplication_text(case)}, {case.dtype}, {ranks} ranks{where}: {result.tried} "
        f"candidates, {result.refused} refused, {result.too_large} too large, {result.judged} "
        f"{judged}, {rest}"
    )
    return lines


class Measured(NamedTuple):
    """A place that ran: its record over all rounds, the decision on it, and whether it was dropped
    because it was slower."""

    record: Record
    decision: Decision
    dropped: bool


def _chosen(measured: list[Measured]) -> int:
    """The place to run: the first of those that may be the fastest as measured, or of all if none
    was."""
    near = leaders([run.decision for run in measured])
    return 1 + min((at for at in near if not measured[at].dropped), default=0)


def _measure(result, request, count: int, how: dict, quiet: bool) -> list[Measured]:
    """Run the first ``count`` places in rounds, in a temporary folder. With ``count`` 0: up to the
    last place whose interval overlaps that of the first, at least two."""
    from drbench.launch.host.show import console
    from drbench.launch.sweeps.experiment import run_rounds
    from drbench.launch.sweeps.rounds import pool_records
    from drbench.launch.sweeps.supervisor import Settings

    likely = min(_MOST_PROBED, max(result.within(request.multiplications), default=2))
    # with the GEMM-only speed, which shows the drift of the machine
    places = result.ranking[: count or likely]
    cases = [replace(place.case, **how, gemm_only=True) for place in places]
    print_line = console(stderr=quiet, soft_wrap=True)
    runs = run_rounds(cases, request.ranks, Settings(), print_line, probe=True)
    records = [pool_records(run.values()) for run in runs]
    most = max(map(len, runs))
    dropped = [len(run) < most and row.status == "ok" for run, row in zip(runs, records)]
    decisions = decide(runs, [at for at, is_dropped in enumerate(dropped) if is_dropped])
    return list(map(Measured, records, decisions, dropped))
