"""``drbench tune``: which partitioning, data movement or algorithm to use, by the model; and
``--measure`` to see whether it is so."""

import json
from itertools import zip_longest
from math import inf
from statistics import median_high

import click

from drbench.errors import EXIT_CODES, UsageError
from drbench.measure.record import Record
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
    arbitration_option,
    check_figure,
    command,
    csv_option,
    draw_figure,
    figure_option,
    json_option,
    modelled,
    of_case,
    option,
    pairs_option,
    ranks_option,
    take_options,
    yes_option,
)

#: Seconds of CPU that a search takes.
EFFORT = 10.0

#: Most programs that ``--measure`` runs where it is not said how many.
_MOST_PROBED = 8


def search_options():
    """What a search is told: sizes, ranks, machine, memory, and what may vary."""
    described = [
        of_case("m", "n", "k"),
        of_case("transpose", "alpha", "beta"),
        of_case(
            "dtype",
            type=MODELLED,
            default=None,
            says="the machine's",
        ),
        ranks_option(),
        option(
            "--machine",
            metavar="NAME|FILE",
            group="Machine model",
            help="Machine model to predict times with, as in drbench simulate; without one "
            "candidates are compared by bytes and balance.",
        ),
        arbitration_option(),
        option(
            "--memory",
            type=BYTES,
            metavar="BYTES",
            group="Machine model",
            help="Most bytes of tiles and buffers a rank may use, as 60GiB. [default: the "
            "device's memory]",
        ),
        option(
            "--only",
            "names",
            type=TEXT,
            metavar="A,B,...",
            group="Algorithm",
            help="Algorithms to try. [default: all]",
        ),
        option(
            "--replication",
            type=click.Choice(["none", "equal", "paired", "all"]),
            default="none",
            group="Layout",
            help="Copies of the matrices to try: none but the one that is stored, as many of A, B "
            "and C, as many of A and B, or every triple. How copies come to all ranks is not "
            "counted without --from-a and --from-b.",
        ),
        option(
            "--effort",
            type=click.FloatRange(0),
            metavar="SECONDS",
            default=EFFORT,
            group="Machine model",
            help="Seconds of CPU to search, about; then it is said how much faster than the first "
            "place what is left could be. 0: no end before all is known.",
        ),
        option(
            "--products",
            type=click.IntRange(1),
            default=100,
            group="Layout",
            help="Products that share the price of bringing the matrices into another layout.",
        ),
        of_case("transport"),
        pairs_option("prefetch", "compute", help="prefetch, or compute=tf32. Repeatable."),
    ]

    def add(command):
        for each in reversed(described):
            command = each(command)
        return command

    return add


def searched(values: dict) -> tuple:
    """(machine or None, ranks, algorithms or None) of the values of a command that searches; the
    case's element type is set."""
    from launch.models.predict import ranks_on

    machine, ranks, names = (values.pop(name) for name in ("machine", "ranks", "names"))
    model = modelled(machine, values.pop("arbitration"))
    take_options(values)
    if model is not None:
        ranks = ranks_on(model, ranks)
    elif ranks is None:
        raise UsageError("-p is missing. Say how many ranks, or name a --machine with devices.")
    values["dtype"] = values["dtype"] or (model.dtype if model else "float32")
    return model, ranks, tuple(name.strip() for name in names.split(",")) if names else None


@command("tune")
@search_options()
@of_case("a", says="", help="A is partitioned so, and not otherwise.")
@of_case("b", help="B, likewise.")
@of_case("c", help="C, likewise.")
@option(
    "--from-a",
    type=TEXT,
    metavar="PARTITION",
    group="Layout",
    help="A is partitioned so today: bringing it into another layout is charged.",
)
@option("--from-b", type=TEXT, metavar="PARTITION", group="Layout", help="B, likewise.")
@option(
    "--from-c",
    type=TEXT,
    metavar="PARTITION",
    group="Layout",
    help="C is wanted so: bringing it there is charged.",
)
@option("--top", type=click.IntRange(1), default=10, group="Output", help="Places of the ranking.")
@option(
    "--refine",
    type=click.IntRange(0),
    metavar="N",
    default=3,
    group="Machine model",
    help="Try the first N places with other look-aheads and chunks, and lowered (-o schedule) if "
    "they are small.",
)
@option(
    "--measure",
    "--measure-top",
    "measure",
    is_flag=False,
    flag_value=0,
    type=click.IntRange(0),
    metavar="[N]",
    group="Measurement",
    help="Run those that may be fastest, or the first N, on MPI ranks of this machine: in turn, "
    "the slower half given up again and again, until the fastest is known within 2 % or is tied.",
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
@figure_option()
@json_option()
def tune_command(
    memory,
    replication,
    effort,
    products,
    from_a,
    from_b,
    from_c,
    top,
    refine,
    measure,
    iters,
    budget,
    csv_path,
    figure,
    as_json,
    yes,
    **values,
):
    """Choose partitions, replication and data movement, or a 2-D algorithm, mesh and slices: by a
    machine model's times, or without one by bytes and balance.

    \b
      drbench tune -m 8192 -n 48Ki -k 12Ki -p 8 --machine h100x8 --memory 60GiB --b column
      drbench tune -m 8192 -n 48Ki -k 12Ki -p 8 --from-a row --from-b column --products 100
      drbench tune -m 2048 -n 2048 -k 2048 -p 2 --replication none --measure

    Each matrix is stored once unless --replication says otherwise: within the memory, copies of A
    and B mean less to move, and how they get there is charged only from where --from-a, --from-b
    and --from-c say that they are. A C with copies is finished on all of them.
    """
    from launch.cases.case import Case
    from launch.models.candidates import TuneRequest
    from launch.models.tune import tune

    check_csv(csv_path)
    check_figure(figure)
    model, ranks, names = searched(values)
    if figure and model is None:
        raise UsageError(
            "--figure draws times, and without a machine model there are none. Name a --machine."
        )
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
    today, top = (from_a, from_b, from_c), max(top, _MOST_PROBED if measure == 0 else measure or 0)
    request = TuneRequest(
        Case(**values),
        ranks,
        names,
        memory,
        replication,
        top,
        today=today,
        products=products,
        effort=effort or None,
        refine=refine,
    )
    found = tune(request, model)
    how = {"iters": iters, "budget": budget}  # of the measurement, not of the command that is told
    contenders = [] if measure is None else _contenders(found.ranking, measure, products)
    measured = _measure(contenders, ranks, how, as_json) if contenders else []
    predicted = [place.record for place in found.ranking if place.record]
    add_records(csv_path, *predicted, *(each.record for each in measured))
    rows = choice_rows(found, measured, model, request) if figure else []
    drawn = draw_figure("choice", rows, figure) if figure else []
    if as_json:
        print(json.dumps(_as_json(found, measured, model, request)))
    else:
        _show(found, measured, model, request)
        for line in drawn:
            console().print(line, markup=False, soft_wrap=True)
    return max((EXIT_CODES[each.record.status] for each in measured), default=0)


def choice_rows(found, measured, machine, request) -> list:
    """:class:`plots.select.choice_rows.ChoiceRow` of the figure ``choice``: the times of the places
    with their intervals, what is brought here included, and their layouts."""
    from plots.select.choice_rows import ChoiceRow

    case, ranks = request.case, request.ranks
    title = f"{product_text(case)}, {case.dtype}, on {ranks} ranks of {machine.name}"
    times, drawn = [], []
    for at, (place, ran) in enumerate(zip_longest(found.ranking, measured), 1):
        record, moving_s = place.record, place.moving.seconds / request.products
        plus = lambda seconds, moving_s=moving_s: None if seconds is None else seconds + moving_s
        name = f"{at} {told(place)}"
        run_s = ran.record.time_s if ran is not None and ran.record.status == "ok" else None
        ends = plus(record.median_low_s), plus(record.median_high_s)
        times.append(ChoiceRow(title, ranks, "time", name, plus(record.best_s), *ends, run_s))
        texts = "; ".join(f"{x} {text}" for x, text in zip("ABC", layouts(place, ranks)))
        memory = f"{format_bytes(place.memory)} a rank"
        drawn.append(
            ChoiceRow(
                title,
                ranks,
                "layout",
                " ".join(name.split()[:3]),
                layouts=texts,
                how=memory,
                moved_bytes=place.moved_bytes,
            )
        )
    return times + drawn


def searched_text(found, request, machine) -> str:
    """What was searched, and what is not known of it."""
    fixed = [name for name in "abc" if getattr(request.case, name)]
    copies = {"none": "one copy of each matrix", "equal": "as many copies of A, B and C",
              "paired": "as many copies of A and B"}  # fmt: skip
    what = "all process grids, row- and column-major, of " + copies.get(
        request.replication, "all numbers of copies"
    )
    if fixed:
        what += f" ({', '.join(name.upper() for name in fixed)} as given)"
    what += ", Stationary A, B and C, aligned tiles"
    what += " without replicas, preset optimal" if request.ranks > 16 else ", preset optimal"
    if machine is not None:
        what += ", chunks auto and none, pushed sums"
    if request.algorithms:
        what = f"{', '.join(request.algorithms)}; universal on {what}"
    else:
        what += ", and the other algorithms"
    text = f"searched: {what}"
    if found.refined:
        text += (
            f"; the first {request.refine} places with other look-aheads, chunks and lowerings: "
            f"{found.refined} simulated"
        )
    if found.left:
        text += f"; {found.left} candidates were left when the effort was spent"
    return text


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


def efficiency(record) -> float:
    """Percent: time of the best local product over the mean time of a rank's own products."""
    return 100 * record.local_gemm_s / record.phase_gemm_s if record.phase_gemm_s else 100.0


def exposed(record) -> float:
    """Seconds in which the mean rank does not multiply; what is left of rounding is none.

    Examples
    --------
    >>> run = dict(mode="simulated", status="ok", best_s=0.3)
    >>> (
    ...     exposed(Record(**run, phase_gemm_s=0.1 * 3 - 1e-17)),
    ...     exposed(Record(**run, phase_gemm_s=0.25)),
    ... )
    (0.0, 0.04999999999999999)
    """
    found = record.best_s - record.phase_gemm_s
    return found if found > 1e-9 * record.best_s else 0.0


def reasons(record, other) -> str:
    """Why one case is faster than another: the shares of products and of what is exposed in the
    difference.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> make = lambda seconds, gemm, gets: Record(
    ...     mode="simulated",
    ...     algorithm="universal",
    ...     status="ok",
    ...     best_s=seconds,
    ...     phase_gemm_s=gemm,
    ...     local_gemm_s=1.0,
    ...     get_bytes=gets,
    ... )
    >>> for line in reasons(make(1.5, 1.0, 2**20), make(2.0, 1.25, 2**21)).split(", "):
    ...     print(line)
    33.3 % faster: exposed time 500 ms instead of 750 ms
    products 1 s instead of 1.25 s (100.0 % against 80.0 % of the best local product)
    1 MiB moved instead of 2 MiB
    """
    gains = [
        (
            exposed(other) - exposed(record),
            f"exposed time {seconds(exposed(record))} instead of {seconds(exposed(other))}",
        ),
        (
            other.phase_gemm_s - record.phase_gemm_s,
            f"products {seconds(record.phase_gemm_s)} instead of {seconds(other.phase_gemm_s)} "
            f"({efficiency(record):.1f} % against {efficiency(other):.1f} % of the best local "
            "product)",
        ),
    ]
    least = 1e-3 * record.best_s
    words = [text for gain, text in sorted(gains, key=lambda each: -each[0]) if abs(gain) >= least]
    moved, others = record.moved_bytes or 0, other.moved_bytes or 0
    words.append(
        f"{format_bytes(moved)} moved instead of {format_bytes(others)}"
        if moved != others
        else f"{format_bytes(moved)} moved by both"
    )
    gain = 100 * (other.best_s / record.best_s - 1)
    return (
        f"{f'{gain:.1f} % faster' if gain >= 0.05 else 'as fast within 0.05 %'}: {', '.join(words)}"
    )


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
        }
        return told | loads | {"layouts": layouts(place, ranks)}
    return told | {
        "gemm_efficiency_percent": efficiency(place.record),
        "bound": place.bound._asdict(),
        "exposed_s": exposed(place.record),
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


def _outcome(ran) -> list[str]:
    """Time of what was measured, or what became of it; and how it compares with the fastest."""
    if ran is None or ran.ratio is None:
        return ["-" if ran is None else ran.record.status, ""]
    return [f"{seconds(ran.record.time_s)}{' (noisy)' if ran.record.noisy else ''}", str(ran)]


def _show(found, measured, machine, request) -> None:
    from launch.cases.command_line import run_command
    from launch.cases.machine_models import CALIBRATE
    from launch.models.tune import EVEN

    out, case, ranks = console(), request.case, request.ranks
    say = lambda text: out.print(text, markup=False, soft_wrap=True)
    worse = "slower" if machine else "behind"
    judged = f"{found.judged} simulated" if machine else f"{found.judged} counted on all ranks"
    if machine is not None:
        say(_answer(found, request))
    say(
        f"{product_text(case)}, {case.dtype}, {ranks} "
        f"ranks{f' of {machine.name}' if machine else ''}: {found.tried} candidates, "
        f"{found.merged} of them the same as others, {found.refused} refused, {found.too_large} "
        f"too large, {judged}"
        f"{'' if found.left else f', the others {worse} by their lower bound'}"
    )
    say(searched_text(found, request, machine))
    if machine is None:
        say(
            "No machine model, so no times: ranked by the bytes that the busiest rank sends or "
            f"receives; who gives a rank over {EVEN:g} times its share of the FLOPs comes last."
        )
    charged = any(request.today)
    brief = charged or measured
    rows = []
    for at, (place, ran) in enumerate(zip_longest(found.ranking, measured), 1):
        record, moving = place.record, place.moving
        after = [f"+{place.equals}" if place.equals else ""]
        if charged:
            price = [format_bytes(moving.moved_bytes)]
            after = price + ([] if machine is None else [seconds(moving.seconds)]) + after
        numbers = (
            _counted(place, ranks, _outcome(ran) if measured else [])
            if record is None
            else [
                predicted_text(record),
                _bound(place),
                *(_outcome(ran) if measured else []),
                f"{record.percent_of_roof:.1f}",
                *([] if brief else [f"{efficiency(record):.1f} %", seconds(exposed(record))]),
                format_bytes(place.moved_bytes),
            ]
        )
        rows.append(
            (
                str(at),
                told(place),
                *layouts(place, ranks),
                *numbers,
                format_bytes(place.memory),
                *after,
            )
        )
    ran = ">measured|>to the fastest|" if measured else ""
    columns = (
        f"|algorithm|A|B|C|>busiest moves|{ran}>all move|>FLOPs of busiest|>memory"
        if machine is None
        else f"|algorithm|A|B|C|>time|>bound|{ran}>% of roof|"
        f"{'' if brief else '>GEMM eff.|>exposed|'}>moved|>memory"
    )
    columns += "|>brought here" + ("|>takes" if machine else "") if charged else ""
    out.print(table(f"{columns}|>equal", rows))
    best = found.ranking[0]
    for at, place in enumerate(found.ranking, 1):
        if place.record is not None and place.record.beyond:
            say(f"Beyond the calibration, place {at}: {place.record.beyond}")
    if machine is not None:
        say("bound: no run of the program is faster than its products, or than its busiest link")
        for at, place in enumerate(found.ranking[1:3], 2):
            say(f"1 against {at}: {reasons(best.record, place.record)}")
    if measured and measured[0].ratio is not None:
        _compare(found, measured, say)
    if any(place.case.options.get("replicate_result") for place in found.ranking):
        say("A C with replicas is finished on all of them, and that is counted.")
    if not charged:
        say(
            "How the matrices come into these layouts is not counted: say where they are today "
            "with --from-a, --from-b and --from-c, and over how many --products that is shared."
        )
    elif request.products > 1:
        say(f"What is brought here is shared by {request.products} products.")
    chosen = _chosen(measured)
    name = "the first" if chosen == 1 else f"place {chosen}"
    say(f"Run {name}: {run_command(found.ranking[chosen - 1].case, ranks)}")
    if machine is None:
        say(f"For times, add --machine mine.toml after: {CALIBRATE}")


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


def _answer(found, request) -> str:
    """Which is fastest, or the best that was found and how far off it may be; how sure that is, and
    which others it may be."""
    from launch.models.tune import within

    best, others, unknown = found.ranking[0], within(found.ranking, request.products), off(found)
    what = f"Best found, {unknown}" if unknown else "Fastest by the model"
    said = f"{what}: {told(best)}, {', '.join(_layouts(best, request.ranks))}, "
    said += predicted_text(best.record)
    if unknown:
        said += f"; --effort {4 * request.effort:g} searches longer"
    if best.record.median_high_s is None:
        return f"{said}; how sure that is, the machine file does not say: calibrate again"
    if not others:
        return f"{said}; no other place is within its interval"
    *some, last = map(str, others)
    named = f"places {', '.join(some)} and {last} are" if some else f"place {last} is"
    return f"{said}; {named} within its interval: --measure decides"


def _layouts(place, ranks: int) -> list[str]:
    return [f"{name} {text}" for name, text in zip("ABC", layouts(place, ranks))]


def _bound(place) -> str:
    """What no run of a place can be faster than, and why."""
    products = place.bound.products_s >= place.bound.links_s
    return f"{seconds(place.bound.seconds)}{'' if products else ' (link)'}"


def _counted(place, ranks: int, measured: list[str]) -> list[str]:
    """Cells of a place without times."""
    loads, case = place.loads, place.case
    flops = 2 * case.m * case.n * case.k
    return [
        format_bytes(loads.busiest_bytes),
        *measured,
        format_bytes(loads.moved_bytes),
        f"{loads.busiest_flops * ranks / flops:.2f} x share",
    ]


def _chosen(measured) -> int:
    """The place to run: what was measured to be fastest, or the first where nothing was, or that is
    not told apart from the fastest."""
    first = measured[0] if measured else None
    if first and first.ratio is not None and not (first.given_up or first.ratio.apart):
        return 1
    fastest = (at for at, each in enumerate(measured, 1) if each.fastest)
    return next(fastest, 1)


def _compare(found, measured, say) -> None:
    """Say how the pick fared among those measured, and how far off predictions were."""
    ok = [
        (place.record, standing)
        for place, standing in zip(found.ranking, measured)
        if standing.ratio is not None
    ]
    text = f"measured: the pick's time over that of the fastest of {len(ok)}: {measured[0]}"
    if measured[0].fastest:
        text = f"measured: the pick is the fastest of {len(ok)}"
        tied = [each for _, each in ok if not (each.fastest or each.given_up or each.ratio.apart)]
        as_fast = len(tied)
        text += f", {as_fast} of them not told apart from it" if as_fast else ""
    if ok[0][0] is not None:
        error = median_high(abs(record.time_s / each.record.time_s - 1) for record, each in ok)
        text += f"; median error of the predictions {100 * error:.1f} %"
    say(text)


def _measure(places, ranks: int, how: dict, quiet: bool) -> list:
    """Run the cases of these places in rounds, in a folder that is not kept; how they fared."""
    from dataclasses import replace

    from launch.sweeps.progress import progress_console
    from launch.sweeps.rounds import standings
    from launch.sweeps.run_rounds import run_rounds
    from launch.sweeps.supervisor import Settings

    cases = [replace(place.case, **how) for place in places]
    say = progress_console(stderr=quiet)
    (runs,) = run_rounds([cases], "tune", Settings(ranks), say, probe=True)
    return standings(runs)


def _contenders(ranking: list, measure: int, products: int) -> list:
    """The first places, as many as are asked for; with 0 those up to the last that may be as fast
    as the first for all that is known, at least two."""
    from launch.models.tune import within

    if measure:
        return ranking[:measure]
    last = max(within(ranking, products), default=2)
    return ranking[: min(_MOST_PROBED, last)]
