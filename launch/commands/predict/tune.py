"""``drbench tune``: what the layouts one has cost, which are the best, whether changing pays; then
the ranking, by a machine model or by bytes; and ``--measure`` to see whether it is so."""

import json
from itertools import zip_longest
from math import inf

import click

from drbench.errors import EXIT_CODES, UsageError
from drbench.measure.record import Record
from drbench.options import Option
from drbench.program.problem import PLANNED
from launch.cases.command_line import describe
from launch.host.files import add_records, check_csv
from launch.host.show import console, predicted_text, product_text, table
from launch.host.units import format_bytes, seconds

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
    of_case,
    option,
    pairs_option,
    ranks_option,
    take_options,
    yes_option,
)

#: Seconds of CPU that a search takes, at least; many ranks get one for so many.
EFFORT, _RANKS_A_SECOND = 5.0, 40

#: First places that are tried with other look-aheads, chunks and lowerings too.
_REFINED = 3

#: Most programs that ``--measure`` runs where it is not said how many.
_MOST_PROBED = 8


def _letters(text: str) -> str:
    """The matrices of ``--fix``, such as ``a,c`` or ``AC``, as small letters."""
    found = text.lower().replace(",", "").replace(" ", "")
    if not found or set(found) - set("abc"):
        raise UsageError(f"--fix names matrices, got {text!r}. Use some of A,B,C.")
    return found


@command("tune")
@of_case("m", "n", "k")
@of_case("transpose", "alpha", "beta")
@of_case("dtype", type=MODELLED, default=None, says="the machine's")
@ranks_option()
@of_case("a", says="open", help="Partition that A comes in.")
@of_case("b", says="open", help="Partition that B comes in.")
@of_case("c", says="open", help="Partition that C is wanted in.")
@of_case("preset", help="All three by name, see drbench list; --a, --b, --c override it.")
@option(
    "--fix",
    type=Value(Option(check=_letters)),
    metavar="A,B,C",
    group="Layout",
    help="Matrices that stay in the partitions they have. [default: all may change]",
)
@option(
    "--products",
    type=click.IntRange(1),
    default=100,
    group="Layout",
    help="Products that share the price of bringing the matrices into another layout.",
)
@option(
    "--replication",
    type=click.Choice(["none", "equal", "paired", "all"]),
    default="none",
    group="Layout",
    help="Copies of the matrices to try: none but the one that is stored, as many of A, B and C, "
    "as many of A and B, or every triple.",
)
@option(
    "--only",
    "names",
    type=TEXT,
    metavar="A,B,...",
    group="Algorithm",
    help="Algorithms to try. [default: all]",
)
@machine_option("machine")
@option(
    "--memory",
    type=BYTES,
    metavar="BYTES",
    group="Machine model",
    help="Most bytes of tiles and buffers a rank may use, as 60GiB. [default: the device's memory]",
)
@option(
    "--effort",
    type=click.FloatRange(0),
    metavar="SECONDS",
    group="Machine model",
    help="Seconds of CPU to search, about; then it is said how much faster than the first place "
    "what is left could be. 0: no end before all is known. [default: 5, or ranks/40]",
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
    help="Run those that may be fastest, or the first N, on MPI ranks of this machine: "
    "interleaved, the slower half given up again and again, until the fastest is known within 2 % "
    "or is tied.",
)
@of_case("iters", default=5, help="With --measure: rounds, at least; see --budget.")
@of_case(
    "budget",
    help="With --measure: rounds go on until the ratio to the fastest is known within 2 %, or "
    "for so long each; 0: --iters rounds.",
)
@of_case("threads", help="With --measure: BLAS threads a rank.", says="cores // ranks")
@of_case("backend", default=None, help="With --measure: where products run.", says="numpy")
@yes_option()
@csv_option()
@json_option(flag_value="json")
@brief_option()
def tune_command(
    memory,
    replication,
    effort,
    products,
    fix,
    top,
    measure,
    iters,
    budget,
    csv_path,
    as_json,
    yes,
    machine,
    ranks,
    names,
    **values,
):
    """Choose layouts, algorithm and data movement: what yours cost, which are best, and whether
    changing pays.

    \b
      drbench tune -m 8Ki -n 48Ki -k 12Ki -p 8 --a row --b column --c row --machine h100x8
      drbench tune -m 8Ki -n 48Ki -k 12Ki -p 8 --preset row --fix c --memory 60GiB
      drbench tune -m 2Ki -n 2Ki -k 2Ki -p 2 --measure

    The first line answers for your layouts, the second is the best, the third says when bringing A
    and B there, and C back, has paid; then comes the ranking. Without --machine it goes by balance
    and bytes, next to the bytes that some rank needs whatever the schedule (Kwasniewski et al.,
    SC'19; Al Daas et al., SPAA'22). A C with replicas is finished on all of them.
    """
    from launch.cases.case import Case, partition_texts
    from launch.cases.machine_models import find_machine
    from launch.models.candidates import TuneRequest
    from launch.models.predict import ranks_on
    from launch.models.tune import tune

    check_csv(csv_path)
    take_options(values)
    model = None if machine is None else find_machine(machine)
    if model is not None:
        ranks = ranks_on(model, ranks)
    elif ranks is None:
        raise UsageError("-p is missing. Say how many ranks, or name a --machine with devices.")
    values["dtype"] = values["dtype"] or (model.dtype if model else "float32")
    refuse_too_many(ranks if measure is not None else None, values["threads"], yes)
    for name in ("threads", "backend"):
        if measure is None and values[name] is not None:
            raise UsageError(f"--{name} belongs to --measure. Give both, or leave it out.")
    values["backend"] = values["backend"] or "numpy"
    if measure is not None and values["dtype"] in PLANNED:
        raise UsageError(
            f"{values['dtype']} products run on machine models only. Leave out --measure, or use "
            "--dtype float32."
        )
    if csv_path and model is None and measure is None:
        raise UsageError(
            "--csv takes times, and without a machine model there are none. Name a --machine, or "
            "measure with --measure."
        )
    today = partition_texts(values, ranks)
    for name in fix or "":
        if today[name] is None:
            raise UsageError(f"--fix {name.upper()}, and --{name} says no partition. Give it.")
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
        products=products,
        effort=effort or None,
        refine=_REFINED,
    )
    found = tune(request, model)
    how = {"iters": iters, "budget": budget}  # of the measurement, not of the command that is told
    contenders = [] if measure is None else _contenders(found.ranking, measure, products)
    measured = _measure(contenders, ranks, how, as_json) if contenders else []
    predicted = [place.record for place in found.ranking if place.record]
    add_records(csv_path, *predicted, *(each.record for each in measured))
    if as_json == "json":
        print(json.dumps(_as_json(found, measured, model, request)))
    elif as_json:
        print(_brief(found, request))
    else:
        _show(found, measured, model, request)
    return max((EXIT_CODES[each.record.status] for each in measured), default=0)


def told(place) -> str:
    """Algorithm and options of a place, short.

    Examples
    --------
    >>> from launch.cases.case import Case
    >>> from launch.models.tune import Moving, Place
    >>> case = Case(8, 8, 8, c="R", options={"stationary": "C", "replicate_result": True})
    >>> told(Place(case, 0, Moving(), None, None, 0))
    'universal S-C'
    """
    from launch.models.candidates import megatron

    layer = megatron(place.case)
    known = f" (Megatron {layer})" if layer else ""
    if place.record is not None:
        return describe(place.record) + known
    from launch.cases.case import case_keys, recorded

    options = {
        name: value for name, value in place.case.options.items() if name != "replicate_result"
    }
    keys = case_keys(place.case) | recorded(options)
    return describe(Record(**keys, mode="simulated", status="failed", reason="-")) + known


def place_json(place, ranks: int) -> dict:
    """What there is to say of one place."""
    from launch.cases.command_line import run_command

    told = {
        "command": run_command(place.case, ranks),
        "memory_bytes": place.memory,
        "equal": place.equals,
        "moved_bytes": place.moved_bytes,
        "redistribution": place.moving._asdict(),
    }
    if place.record is None:
        loads = {
            "busiest_bytes": place.loads.busiest_bytes,
            "busiest_flops": place.loads.busiest_flops,
            "needed_bytes": place.needed,
        }
        return told | loads | {"layouts": layouts(place, ranks)}
    return told | {
        "bound": place.bound._asdict(),
        "record": place.record.to_json_dict(),
    }


def layouts(place, ranks: int) -> list[str]:
    """Text forms of the partitions of A, B and C of a place."""
    from launch.cases.case import bound

    _, problem, _ = bound(place.case, ranks)
    return list(problem.texts.values())


def _as_json(found, measured, machine, request) -> dict:
    from launch.models.tune import within

    places = []
    for at, (each, ran) in enumerate(zip_longest(found.ranking, measured), 1):
        place = {"place": at} | place_json(each, request.ranks)
        if ran is not None:
            place["measured"] = ran.record.to_json_dict()
            place["measured_to_fastest"] = ran.to_json_dict()
        places.append(place)
    return {
        "ranked_by": "bytes" if machine is None else "time",
        "machine": machine and machine.name,
        "mine": found.mine and place_json(found.mine, request.ranks),
        "why_not": found.why_not or None,
        "times_better": found.times_better,
        "pays_after_products": found.pays_after,
        "sure": _sure(found, machine, request)._asdict(),
        "least_bytes": _least(request),
        "tried": found.tried,
        "merged": found.merged,
        "refined": found.refined,
        "left": found.left,
        "gap": None if found.gap == inf else found.gap,
        "simulated" if machine else "counted": found.judged,
        "refused": found.refused,
        "too_large": found.too_large,
        "chosen": _chosen(measured),
        "within_interval": within(found.ranking, request.products),
        "ranking": places,
    }


def _brief(found, request) -> str:
    """The line that ``--brief`` prints: the first place next to the layouts of today."""
    from launch.host.show import brief

    first, mine = found.ranking[0], found.mine
    counts = [(place and place.loads and place.loads.busiest_bytes) for place in (first, mine)]
    times = [(place and place.record and place.record.best_s) for place in (first, mine)]
    values = {
        **dict(zip(("time_s", "your_time_s"), times)),
        **dict(zip(("busiest_bytes", "your_busiest_bytes"), counts)),
        "moved_bytes": first.moved_bytes,
        "memory_bytes": first.memory,
        "redistribution_bytes": first.moving.moved_bytes,
        "redistribution_s": first.moving.seconds,
        "pays_after_products": found.pays_after,
    }
    values |= dict(zip("abc", layouts(first, request.ranks)))
    return brief(values | {"algorithm": first.case.algorithm} | first.case.options)


def _outcome(ran) -> list[str]:
    """Time of what was measured, or what became of it; and how it compares with the fastest."""
    if ran is None or ran.ratio is None:
        return ["-" if ran is None else ran.record.status, ""]
    return [f"{seconds(ran.record.time_s)}{' (noisy)' if ran.record.noisy else ''}", str(ran)]


def _sure(found, machine, request):
    """How far the answer can be trusted (:func:`launch.models.sure.how_sure`)."""
    from launch.models.sure import how_sure

    records = [place.record for place in (found.mine, *found.ranking) if place and place.record]
    needed = next((each.beyond for each in records if each.beyond), None)
    return how_sure(machine, request.ranks, needed)


def _least(request) -> float | None:
    """Bytes that some rank needs whatever the schedule, within the memory; None if all matrices
    together do not fit it."""
    from launch.models.counts import least_bytes

    try:
        return least_bytes(request.case, request.ranks, request.memory)
    except UsageError:
        return None


def _show(found, measured, machine, request) -> None:
    out = console()
    say = lambda text: out.print(text, markup=False, soft_wrap=True)
    for line in answer(found, request):
        say(line)
    rows = [
        _cells(at, place, ran, measured, request)
        for at, (place, ran) in enumerate(zip_longest(found.ranking, measured), 1)
    ]
    out.print(table("|".join(rows[0]), [row.values() for row in rows]))
    for line in _notes(found, measured, machine, request):
        say(line)


def answer(found, request) -> list[str]:
    """The three lines that answer: what the layouts of today cost, the best, and when bringing the
    matrices there has paid."""
    ranks, best, lines = request.ranks, found.ranking[0], []
    if found.mine:
        lines.append(f"Your layouts, {_named(found.mine, ranks)}: {_costs(found.mine, request)}.")
    elif found.why_not:
        lines.append(f"Your layouts: {found.why_not}")
    unknown = off(found)
    name = f"Best found, {unknown}" if unknown else "Best by the model" if best.record else "Best"
    times = found.times_better
    gain = f"; {times:.2f} times {'as fast' if best.record else 'fewer bytes'}" if times else ""
    if found.mine and not found.better:
        shared = f"{request.products} product{'s' if request.products > 1 else ''}"
        name += f", nothing else is better within {shared}"
    lines.append(f"{name}: {_named(best, ranks)}, {_costs(best, request)}{gain}.")
    if found.why_not or found.better:
        lines.append(_price(found, request))
    elif not any(request.today):
        lines.append(
            "Say where your matrices are (--a, --b, --c or --preset), and it says whether changing "
            "pays."
        )
    return lines


def _named(place, ranks: int) -> str:
    return ", ".join(f"{x} {text}" for x, text in zip("ABC", layouts(place, ranks)))


def _costs(place, request) -> str:
    """What to run, and what it costs."""
    record, what = place.record, told(place)
    if record is not None:
        return f"{what}, {predicted_text(record)}, {record.percent_of_roof:.0f} % of the roof"
    return (
        f"{what}, its busiest rank moves {format_bytes(place.loads.busiest_bytes)} and does "
        f"{_share(place, request.ranks)} times its share of the FLOPs"
    )


def _share(place, ranks: int) -> str:
    case = place.case
    return f"{place.loads.busiest_flops * ranks / (2 * case.m * case.n * case.k):.2f}"


def _price(found, request) -> str:
    """What it costs to bring the matrices to the first place, and when that has paid."""
    moving, after = found.ranking[0].moving, found.pays_after
    there = " and ".join(name for name, text in zip("AB", request.today) if text)
    back = "C back" if request.today[2] else ""
    bringing = f"bringing {' there, and '.join(filter(None, (there, back)))}"
    bringing += "" if back else " there"
    bringing += "," if there and back else ""
    if not moving.moved_bytes:
        return f"Changing is free: {bringing} moves nothing."
    price = f"moves {format_bytes(moving.moved_bytes)}"
    price += "" if moving.seconds is None else f" in {seconds(moving.seconds)}"
    if after is None:
        return f"{bringing.capitalize()} {price}."
    by = "" if moving.seconds is not None else ", by bytes of the busiest rank"
    return f"Changing pays after {after} product{'s' if after > 1 else ''}{by}: {bringing} {price}."


def _cells(at: int, place, ran, measured, request) -> dict[str, str]:
    """Cells of a place by the names of their columns, the answer first."""
    record, ranks, moving = place.record, request.ranks, place.moving
    outcome = dict(zip((">measured", ">to the fastest"), _outcome(ran))) if measured else {}
    texts = layouts(place, ranks)
    alike = f"all {texts[0]}" if len({*texts}) == 1 else ", ".join(texts)
    what = {"~A, B, C": alike, "~algorithm": told(place)}
    charged = {}
    if any(request.today):
        charged = {">brought here": format_bytes(moving.moved_bytes)}
        charged |= {">takes": seconds(moving.seconds)} if record is not None else {}
    if record is None:
        loads, least = place.loads, _least(request)
        over = {">over bound": f"{place.needed / least:.3f}"} if least else {}
        costs = {">busiest moves": format_bytes(loads.busiest_bytes)} | over
        more = {
            ">all move": format_bytes(loads.moved_bytes),
            ">busiest FLOPs": _share(place, ranks),
        }
    else:
        costs = {">time": predicted_text(record)}
        more = {
            ">bound": _bound(place),
            ">% of roof": f"{record.percent_of_roof:.1f}",
            ">moved": format_bytes(place.moved_bytes),
        }
    rest = {
        ">memory": format_bytes(place.memory),
        ">equal": f"+{place.equals}" * bool(place.equals),
    }
    return {"": str(at)} | costs | outcome | what | charged | more | rest


def _notes(found, measured, machine, request) -> list[str]:
    """What is said below the ranking."""
    from launch.cases.command_line import run_command
    from launch.cases.machine_models import CALIBRATE
    from launch.models.tune import EVEN

    case, ranks, lines = request.case, request.ranks, []
    if machine is None:
        least = _least(request)
        if least:
            lines.append(
                f"bound: some rank stores or moves at least {format_bytes(round(least))} of A, B "
                "and C, whatever the schedule"
            )
        lines.append(
            "No machine model, so no times: ranked by the bytes that the busiest rank sends or "
            f"receives; who gives a rank over {EVEN:g} times its share of the FLOPs comes last."
        )
    else:
        lines.append(_within(found, request))
        for at, place in enumerate(found.ranking, 1):
            if place.record.beyond:
                lines.append(f"Beyond the calibration, place {at}: {place.record.beyond}")
        lines.append(
            "bound: no run of the program is faster than its products, or its busiest link"
        )
    if any(place.case.options.get("replicate_result") for place in found.ranking):
        lines.append("A C with replicas is finished on all of them, and that is counted.")
    chosen = _chosen(measured)
    name = "the first" if chosen == 1 else f"place {chosen}"
    lines.append(f"Run {name}: {run_command(found.ranking[chosen - 1].case, ranks)}")
    if found.better:
        lines.append(f"Run your layouts: {run_command(found.mine.case, ranks)}")
    lines.append(f"How sure: {_sure(found, machine, request).text}.")
    if machine is None:
        lines.append(f"For times, add --machine mine.toml after: {CALIBRATE}")
    judged = "simulated" if machine else "counted on all ranks"
    rest = f"{found.left} left" if found.left else "the others excluded by their lower bound"
    where = f" of {machine.name}" if machine else ""
    lines.append(
        f"{product_text(case)}, {case.dtype}, {ranks} ranks{where}: {found.tried} candidates, "
        f"{found.merged} the same as others, {found.refused} refused, {found.too_large} too large, "
        f"{found.judged} {judged}, {found.refined} more with other settings, {rest}"
    )
    return lines


def off(found) -> str:
    """How much faster what was not searched could be than the first place, in words; empty where
    that is within the interval of the first, or everything was searched.

    Examples
    --------
    >>> from launch.models.tune import Found, Moving, Place
    >>> record = Record(mode="simulated", status="ok", best_s=1.0, median_low_s=0.8)
    >>> ranking = [Place(None, 0, Moving(), record, None, 0)]
    >>> [off(Found(ranking, left=9, gap=gap)) for gap in (0.5, 0.2, float("inf"))]
    ['may be 50 % off', '', 'how far off is not known']
    """
    from launch.models.tune import beyond_interval

    if not beyond_interval(found):
        return ""
    return "how far off is not known" if found.gap == inf else f"may be {100 * found.gap:.0f} % off"


def _within(found, request) -> str:
    """Which places may be as fast as the first for all that is known, and what decides."""
    from launch.models.tune import within

    others = within(found.ranking, request.products)
    longer = f"; --effort {4 * request.effort:g} searches longer" if off(found) else ""
    if found.ranking[0].record.median_high_s is None:
        return f"How sure the first is, the machine file does not say: calibrate again{longer}"
    if not others:
        return f"No other place is within the interval of the first{longer}"
    *some, last = map(str, others)
    named = f"places {', '.join(some)} and {last} are" if some else f"place {last} is"
    return f"{named.capitalize()} within the interval of the first: --measure decides{longer}"


def _bound(place) -> str:
    """What no run of a place can be faster than, and why."""
    products = place.bound.products_s >= place.bound.links_s
    return f"{seconds(place.bound.seconds)}{'' if products else ' (link)'}"


def _chosen(measured) -> int:
    """The place to run: what was measured to be fastest, or the first where nothing was, or that is
    not told apart from the fastest."""
    first = measured[0] if measured else None
    if first and first.ratio is not None and not (first.given_up or first.ratio.apart):
        return 1
    fastest = (at for at, each in enumerate(measured, 1) if each.fastest)
    return next(fastest, 1)


def _measure(places, ranks: int, how: dict, quiet: bool) -> list:
    """Run the cases of these places in rounds, in a folder that is not kept; how they fared."""
    from dataclasses import replace

    from launch.sweeps.experiment import run_rounds
    from launch.sweeps.progress import progress_console
    from launch.sweeps.rounds import standings
    from launch.sweeps.supervisor import Settings

    cases = [replace(place.case, **how) for place in places]
    say = progress_console(stderr=quiet)
    (runs,) = run_rounds([cases], ranks, "tune", Settings(), say, probe=True)
    return standings(runs)


def _contenders(ranking: list, measure: int, products: int) -> list:
    """The first places, as many as are asked for; with 0 those up to the last that may be as fast
    as the first for all that is known, at least two."""
    from launch.models.tune import within

    if measure:
        return ranking[:measure]
    last = max(within(ranking, products), default=2)
    return ranking[: min(_MOST_PROBED, last)]
