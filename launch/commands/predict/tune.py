"""``drbench tune``: the cost of the current layouts, the best ones, and whether changing pays; then
the ranking, by a machine model or by bytes; ``--measure`` runs the first places."""

import json
from dataclasses import replace
from itertools import zip_longest
from math import inf
from operator import itemgetter

import click

from drbench.errors import EXIT_CODES, UsageError
from drbench.measure.record import Record
from drbench.options import Option
from drbench.program.problem import PLANNED
from launch.cases.command_line import describe, run_command
from launch.host.files import add_records, check_csv
from launch.host.show import brief, multiplication_text, predicted_text
from launch.host.units import format_bytes, plural, seconds
from launch.views.tables import Column, Table

from ..completion import complete_names
from ..guards import refuse_too_many
from ..options import (
    BYTES,
    MODELLED,
    TEXT,
    Value,
    brief_option,
    command,
    csv_option,
    json_option,
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

#: CPU seconds of a search, at least; many ranks get one second per this number.
EFFORT, _RANKS_A_SECOND = 4.5, 40

#: First places that are also tried with other look-aheads, chunks and lowerings.
_REFINED = 3

#: Most programs that ``--measure`` runs without a number.
_MOST_PROBED = 8


#: The linear layers of Megatron's sequence-parallel MLP, by strategy and layouts of A, B and C.
_MEGATRON = {
    ("columns", ("row", "column", "column")): "column-parallel",
    ("partial", ("column", "row", "row")): "row-parallel",
}


def _letters(text: str) -> str:
    """The matrices of ``--fix``, such as ``a,c`` or ``AC``, as small letters."""
    found = text.lower().replace(",", "").replace(" ", "")
    if not found or set(found) - set("abc"):
        raise UsageError(f"--fix names matrices, got {text!r}. Use some of A,B,C.")
    return found


@command(
    "tune",
    needs={
        **dict.fromkeys(("--iters", "--budget", "--threads", "--backend"), "--measure"),
        **dict.fromkeys(("--transport", "-o prefetch", "-o compute"), "--machine --measure"),
        "--multiplications": "--preset --a --b --c",
    },
)
@of_case("m", "n", "k")
@of_case("transpose", "alpha", "beta")
@of_case("dtype", type=MODELLED, default=None, default_text="the machine's")
@ranks_option()
@of_case("a", default_text="open", help="Current partition of A.")
@of_case("b", default_text="open", help="Current partition of B.")
@of_case("c", default_text="open", help="Wanted partition of C.")
@of_case("preset", help="All three by name, see drbench list; --a, --b, --c override it.")
@option(
    "--fix",
    type=Value(Option(check=_letters)),
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
    help="Approximate CPU seconds of the search; then it reports how much faster than the first "
    f"place the rest could be. 0: search everything. [default: {EFFORT:g}, or ranks/40]",
)
@of_case("transport")
@pairs_option("prefetch", "compute", help="prefetch, or compute=tf32. Repeatable.")
@option("--top", type=click.IntRange(1), default=10, group="Output", help="Places of the ranking.")
@option(
    "--measure",
    is_flag=False,
    flag_value=0,
    type=click.IntRange(0),
    metavar="[N]",
    group="Measurement",
    help="Run those that may be fastest, or the first N, on MPI ranks of this machine, "
    "interleaved. Drops the slower half repeatedly until the fastest is known within 2 % or is "
    "tied.",
)
@of_case("iters", default=5, help="With --measure: rounds, at least; see --budget.")
@of_case(
    "budget",
    help="With --measure: repeat until the ratio to the fastest is known within 2 %, or for this "
    "time each; 0: --iters rounds.",
)
@of_case("threads", help="With --measure: BLAS threads a rank.", default_text="cores // ranks")
@of_case("backend", default=None, help="With --measure: numpy or cupy.", default_text="numpy")
@yes_option()
@csv_option()
@json_option(flag_value="json")
@brief_option()
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
    """Choose layouts, algorithm and data movement: shows the cost of yours, the best ones, and
    whether changing pays.

    \b
      drbench tune -m 8Ki -n 48Ki -k 12Ki --preset row --machine h100x8
      drbench tune -m 8Ki -n 48Ki -k 12Ki -p 8 --preset row --fix c --memory 60GiB
      drbench tune -m 2Ki -n 2Ki -k 2Ki -p 2 --measure

    The first line shows your layouts, the second the best, the third after how many multiplications
    it pays to redistribute A and B, and C back; then the ranking. Without --machine it is by load
    balance and bytes, and shows the bytes that some rank needs with any schedule (Kwasniewski et
    al., SC'19; Al Daas et al., SPAA'22). All replicas of C are complete.
    """
    from launch.cases.case import Case, partition_texts
    from launch.models.candidates import TuneRequest
    from launch.models.tune import tune

    check_csv(csv_path)
    take_options(values)
    model, ranks = modelled(values, ranks)
    refuse_too_many(ranks if measure is not None else None, values["threads"], yes)
    values["backend"] = values["backend"] or "numpy"
    if measure is not None and values["dtype"] in PLANNED:
        raise UsageError(
            f"{values['dtype']} multiplications run on machine models only. Leave out --measure, "
            "or use --dtype float32."
        )
    if csv_path and model is None and measure is None:
        raise UsageError(
            "--csv writes times, which need a machine model. Give a --machine, or "
            "measure with --measure."
        )
    today = partition_texts(values, ranks)
    for name in fix or "":
        if today[name] is None:
            raise UsageError(f"--fix {name.upper()}, and --{name} gives no partition. Give it.")
    values |= {
        "preset": None,
        **{name: today[name] if name in (fix or "") else None for name in "abc"},
    }
    if effort is None:
        effort = max(EFFORT, ranks / _RANKS_A_SECOND)
    request = TuneRequest(
        Case(**values),
        ranks,
        tuple(name.strip() for name in names.split(",")) if names else None,
        memory,
        replication,
        max(top, _MOST_PROBED if measure == 0 else measure or 0),
        today=tuple(today[name] for name in "abc"),
        multiplications=multiplications,
        effort=effort or None,
        refine=_REFINED,
    )
    found = tune(request, model)
    how = {"iters": iters, "budget": budget}  # for the measurement, not for the shown command
    measured = [] if measure is None else _measure(found, request, measure, how, bool(as_json))
    predicted = [place.record for place in found.ranking if place.record]
    add_records(csv_path, *predicted, *(each.record for each in measured))
    rows = [
        row_of(place, request, found.least_bytes) | {"place": at} | _measured_values(ran)
        for at, (place, ran) in enumerate(zip_longest(found.ranking, measured), 1)
    ]
    chosen = _chosen(measured)
    if as_json == "json":
        print(json.dumps(_as_json(found, rows, chosen, model, request)))
    elif as_json:
        print(_brief(found, request))
    else:
        out, print_line = printing()
        for line in answer(found, request):
            print_line(line)
        Table("", _COLUMNS, rows).show(out, len(rows))
        for line in _notes(found, chosen, model, request):
            print_line(line)
    return max((EXIT_CODES[each.record.status] for each in measured), default=0)


def place_text(place) -> str:
    """The algorithm and options of a place, in short.

    Examples
    --------
    >>> from launch.cases.case import Case
    >>> from launch.models.tune import Moving, Place
    >>> case = Case(8, 8, 8, c="R", options={"stationary": "C", "replicate_result": True})
    >>> place_text(Place(case, 0, Moving(), ("row", "column", "R")))
    'universal S-C'
    """
    from launch.cases.case import case_keys, recorded

    record, layer = place.record, None
    if place.case.algorithm == "dtensor_mm":
        layer = _MEGATRON.get((place.case.options.get("strategy"), place.layouts))
    if record is None:
        options = place.case.options | {"replicate_result": None}
        keys = case_keys(place.case) | recorded(options)
        record = Record(**keys, mode="simulated", status="failed", reason="-")
    return describe(record) + (f" (Megatron {layer})" if layer else "")


def row_of(place, request, least_bytes: float | None = None) -> dict:
    """The values of one place: a row of the table, and of the JSON."""
    record, case, moving = place.record, place.case, place.moving
    row = {
        "what": place_text(place),
        "command": plugged(run_command(case, request.ranks)),
        "layouts": list(place.layouts),
        "memory_bytes": place.memory,
        "moved_bytes": place.moved_bytes,
        "redistribution": moving._asdict(),
        "brought": _redistribution(moving) if any(request.today) else None,
    }
    if record is not None:
        links = place.bound.links_s > place.bound.gemms_s
        return row | {
            "time": predicted_text(record),
            "least": f"{seconds(place.bound.seconds)}{' (link)' if links else ''}",
            "percent_of_roof": record.percent_of_roof,
            "bound": place.bound._asdict(),
            "record": record.to_json_dict(),
        }
    even = 2 * case.m * case.n * case.k / request.ranks
    return row | {
        "busiest_bytes": place.loads.busiest_bytes,
        "busiest_flops": place.loads.busiest_flops,
        "share_of_flops": place.loads.busiest_flops / even,
        "needed_bytes": place.needed,
        "over_bound": place.needed / least_bytes if least_bytes else None,
    }


def _measured_values(place) -> dict:
    """The values of a row that were measured."""
    if place is None:
        return {}
    time = place.record.status
    if place.ratio is not None:
        time = f"{seconds(place.record.time_s)}{' (noisy)' if place.record.noisy else ''}"
    return {
        "ran": time,
        "to_the_fastest": str(place),
        "measured": place.record.to_json_dict(),
        "measured_to_fastest": place.to_json_dict(),
    }


def _layouts(row: dict) -> str:
    texts = row["layouts"]
    return f"all {texts[0]}" if len({*texts}) == 1 else ", ".join(texts)


def _redistribution(moving) -> str:
    """The bytes that redistribution to a place moves, and its time."""
    time = "" if moving.seconds is None else f" in {seconds(moving.seconds)}"
    return f"{format_bytes(moving.moved_bytes)}{time}"


_COLUMNS = (
    Column("place", "", lambda row: str(row["place"])),
    Column("time", ">time", itemgetter("time")),
    Column("busiest_bytes", ">busiest moves", lambda row: format_bytes(row["busiest_bytes"])),
    Column("over_bound", ">over bound", lambda row: f"{row['over_bound']:.3f}"),
    Column("ran", ">measured", itemgetter("ran")),
    Column("to_the_fastest", ">to the fastest", itemgetter("to_the_fastest")),
    Column("layouts", "~A, B, C", _layouts),
    Column("what", "~algorithm", itemgetter("what")),
    Column("brought", ">brought here", itemgetter("brought")),
    Column("least", ">bound", itemgetter("least")),
    Column("percent_of_roof", ">% of roof", lambda row: f"{row['percent_of_roof']:.1f}"),
    Column("moved_bytes", ">moved", lambda row: format_bytes(row["moved_bytes"])),
    Column("share_of_flops", ">busiest FLOPs", lambda row: f"{row['share_of_flops']:.2f}"),
    Column("memory_bytes", ">memory", lambda row: format_bytes(row["memory_bytes"])),
)


#: Attributes of the search's result in the JSON.
_FOUND = "times_better least_bytes tried left refused too_large".split()


def _as_json(found, rows: list[dict], chosen: int, machine, request) -> dict:
    return {
        "ranked_by": "bytes" if machine is None else "time",
        "machine": machine and machine.name,
        "mine": found.mine and row_of(found.mine, request, found.least_bytes),
        "why_not": found.why_not or None,
        "pays_after_multiplications": found.pays_after,
        "sure": found.sure._asdict(),
        "gap": None if found.gap == inf else found.gap,
        "simulated" if machine else "counted": found.judged,
        **{name: getattr(found, name) for name in _FOUND},
        "chosen": chosen,
        "within_interval": found.within(request.multiplications),
        "ranking": rows,
    }


def _brief(found, request) -> str:
    """The line that ``--brief`` prints: the first place next to the current layouts."""
    first, values = found.ranking[0], {}
    for name in ("time_s", "busiest_bytes"):
        known = (first.record is None) == (name == "busiest_bytes")
        values[name] = first.cost if known else None
        values[f"your_{name}"] = found.mine.cost if known and found.mine else None
    values |= {
        "moved_bytes": first.moved_bytes,
        "memory_bytes": first.memory,
        "redistribution_bytes": first.moving.moved_bytes,
        "redistribution_s": first.moving.seconds,
        "pays_after_multiplications": found.pays_after,
    }
    values |= {name: getattr(request.case, name) for name in ("m", "n", "k", "dtype")}
    values |= {"ranks": request.ranks} | dict(zip("abc", first.layouts))
    return brief(values | {"algorithm": first.case.algorithm} | first.case.options)


def answer(found, request) -> list[str]:
    """The three lines of the answer: the cost of the current layouts, the best, and after how many
    multiplications changing pays."""
    best, lines = found.ranking[0], []
    if found.mine:
        lines.append(f"Your layouts, {_costs(found.mine, request)}.")
    elif found.why_not:
        lines.append(f"Your layouts: {found.why_not}")
    unknown, times = off(found), found.times_better
    name = f"Best found, {unknown}" if unknown else "Best by the model" if best.record else "Best"
    gain = f"; {times:.2f} times {'as fast' if best.record else 'fewer bytes'}" if times else ""
    if found.mine and not found.better:
        name += (
            f", nothing else is better within {plural(request.multiplications, 'multiplication')}"
        )
    lines.append(f"{name}: {_costs(best, request)}{gain}.")
    if found.why_not or found.better:
        lines.append(_price(found, request))
    elif not any(request.today):
        lines.append(
            "Give the current layouts (--a, --b, --c or --preset) to see whether changing pays."
        )
    return lines


def _costs(place, request) -> str:
    """The layouts of a place, its program, and its cost."""
    row = row_of(place, request)
    named = ", ".join(f"{name} {text}" for name, text in zip("ABC", place.layouts))
    if place.record is not None:
        return f"{named}: {row['what']}, {row['time']}, {row['percent_of_roof']:.0f} % of the roof"
    return (
        f"{named}: {row['what']}, its busiest rank moves {format_bytes(row['busiest_bytes'])} and "
        f"does {row['share_of_flops']:.2f} times its share of the FLOPs"
    )


def _price(found, request) -> str:
    """The cost of redistributing the matrices to the first place, and when that pays."""
    moving, after = found.ranking[0].moving, found.pays_after
    inputs = " and ".join(name for name, text in zip("AB", request.today) if text)
    parts = [inputs] * bool(inputs) + ["C back"] * bool(request.today[2])
    redistributing = f"redistributing {', and '.join(parts)}" + "," * (len(parts) - 1)
    if not moving.moved_bytes:
        return f"Changing is free: {redistributing} moves nothing."
    price = f"moves {_redistribution(moving)}"
    if after is None:
        return f"{redistributing[0].upper()}{redistributing[1:]} {price}."
    by = "" if moving.seconds is not None else ", by bytes of the busiest rank"
    return f"Changing pays after {plural(after, 'multiplication')}{by}: {redistributing} {price}."


def _notes(found, chosen: int, machine, request) -> list[str]:
    """The lines below the ranking."""
    from launch.cases.machine_models import CALIBRATE
    from launch.models.tune import EVEN

    case, ranks = request.case, request.ranks
    if machine is None:
        lines = [
            "No machine model, so no times: ranked by the bytes that the busiest rank sends or "
            f"receives; layouts that give a rank over {EVEN:g} times its share of the FLOPs are "
            "last."
        ]
        if found.least_bytes:
            least = format_bytes(round(found.least_bytes))
            lines.append(
                f"bound: some rank stores or moves at least {least} of A, B and C, with any "
                "schedule"
            )
    else:
        lines = [
            _within(found, request),
            "bound: no run of the program is faster than its local GEMMs, or its busiest link",
        ]
    name = "the first" if chosen == 1 else f"place {chosen}"
    lines.append(f"Run {name}: {plugged(run_command(found.ranking[chosen - 1].case, ranks))}")
    if found.better:
        lines.append(f"Run your layouts: {plugged(run_command(found.mine.case, ranks))}")
    lines.append(f"How sure: {found.sure.text}.")
    if machine is None:
        lines.append(f"For times, add --machine mine.toml after: {CALIBRATE}")
    judged = "simulated" if machine else "counted on all ranks"
    rest = f"{found.left} left" if found.left else "the others excluded by their lower bound"
    where = f" of {machine.name}" if machine else ""
    lines.append(
        f"{multiplication_text(case)}, {case.dtype}, {ranks} ranks{where}: {found.tried} "
        f"candidates, {found.refused} refused, {found.too_large} too large, {found.judged} "
        f"{judged}, {rest}"
    )
    return lines


def off(found) -> str:
    """How much faster than the first place an unsearched one could be, in words; empty if that is
    within the interval of the first, or if everything was searched.

    Examples
    --------
    >>> from launch.models.tune import Found, Moving, Place
    >>> record = Record(mode="simulated", status="ok", best_s=1.0, median_low_s=0.8)
    >>> ranking = [Place(None, 0, Moving(), (), record)]
    >>> [off(Found(ranking, left=9, gap=gap)) for gap in (0.5, 0.2, float("inf"))]
    ['may be 50 % off', '', 'how far off is not known']
    """
    if not found.in_doubt:
        return ""
    return "how far off is not known" if found.gap == inf else f"may be {100 * found.gap:.0f} % off"


def _within(found, request) -> str:
    """The line with the places that may be as fast as the first, and what decides."""
    longer = f"; --effort {4 * request.effort:g} searches longer" if off(found) else ""
    if found.ranking[0].record.median_high_s is None:
        return f"The machine file has no interval for the first: calibrate again{longer}"
    others = ", ".join(map(str, found.within(request.multiplications)))
    decides = f"{others}; --measure decides" if others else "none"
    return f"Places within the interval of the first: {decides}{longer}"


def _chosen(measured) -> int:
    """The place to run: the one measured fastest, or the first if none was, or if it is not
    distinguishable from the fastest."""
    first = measured[0] if measured else None
    if first and first.ratio is not None and not (first.given_up or first.ratio.apart):
        return 1
    fastest = (at for at, each in enumerate(measured, 1) if each.fastest)
    return next(fastest, 1)


def _measure(found, request, count: int, how: dict, quiet: bool) -> list:
    """Run the first ``count`` places in rounds, in a temporary folder, and rank them by time. With
    ``count`` 0: up to the last place whose interval overlaps that of the first, at least two."""
    from launch.host.show import console
    from launch.sweeps.experiment import run_rounds
    from launch.sweeps.rounds import rank_cases
    from launch.sweeps.supervisor import Settings

    likely = min(_MOST_PROBED, max(found.within(request.multiplications), default=2))
    cases = [replace(place.case, **how) for place in found.ranking[: count or likely]]
    print_line = console(stderr=quiet, soft_wrap=True)
    return rank_cases(run_rounds(cases, request.ranks, Settings(), print_line, probe=True))
