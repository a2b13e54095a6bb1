"""``drbench advise``: what to do with the layouts one has, in a few lines."""

import json
from math import inf

from drbench.errors import UsageError
from launch.host.files import add_records, check_csv
from launch.host.show import predicted_text, product_text
from launch.host.units import format_bytes, seconds

from ..options import command, csv_option, json_option, of_case
from .tune import layouts, place_json, search_options, searched, told


@command("advise")
@search_options()
@of_case("a", says="open", help="Partition that A comes in.")
@of_case("b", says="open", help="Partition that B comes in.")
@of_case("c", says="open", help="Partition that C is wanted in.")
@of_case("preset", help="All three by name, see drbench list; --a, --b, --c override it.")
@csv_option()
@json_option()
def advise_command(memory, replication, effort, products, csv_path, as_json, **values):
    """Say what is best for the layouts you have, and whether another layout pays.

    \b
      drbench advise -p 8 -m 8Ki -n 48Ki -k 12Ki --a row --b column --c row --machine h100x8
      drbench advise -p 4 -m 4Ki -n 4Ki -k 4Ki --preset row --memory 2GiB
      drbench advise -p 4 -m 4Ki -n 4Ki -k 4Ki

    The first line answers for your layouts, the second for the best others, with what bringing A
    and B there and C back costs; then a command to run, and how sure all that is. Without --machine
    it goes by bytes and balance. A C with replicas is finished on all of them.
    """
    from launch.cases.case import Case, partition_texts
    from launch.cases.peak_files import read_peaks
    from launch.models.advise import advise, how_sure
    from launch.models.candidates import TuneRequest

    check_csv(csv_path)
    machine = values["machine"]
    model, ranks, names = searched(values)
    if csv_path and model is None:
        raise UsageError(
            "--csv takes times, and without a machine model there are none. Name a --machine."
        )
    today = partition_texts(values, ranks)
    values |= dict.fromkeys("abc") | {"preset": None}
    request = TuneRequest(
        Case(**values),
        ranks,
        names,
        memory,
        replication,
        today=tuple(today[name] for name in "abc"),
        products=products,
        effort=effort or None,
    )
    found = advise(request, model, read_peaks(None, [request.case], machine))
    places = [place for place in (found.mine, found.better) if place]
    add_records(csv_path, *(place.record for place in places if place.record))
    told = [place.record.beyond for place in places if place.record and place.record.beyond]
    sure = how_sure(model, ranks, told[0] if told else None)
    if as_json:
        print(json.dumps(_as_json(found, model, ranks, sure)))
    else:
        for line in lines(found, request, model, sure):
            print(line)
    return 0


def _as_json(found, machine, ranks: int, sure) -> dict:
    mine, better = (place and place_json(place, ranks) for place in (found.mine, found.better))
    return {
        "ranked_by": "bytes" if machine is None else "time",
        "machine": machine and machine.name,
        "sure": sure._asdict(),
        "mine": mine,
        "why_not": found.why_not or None,
        "better": better,
        "times_better": found.times_better,
        "pays_after_products": found.pays_after,
        "gap": None if found.gap == inf else found.gap,
    }


def lines(found, request, machine, sure) -> list[str]:
    """The advice in words, the answer first."""
    from launch.cases.command_line import run_command
    from launch.cases.machine_models import CALIBRATE

    case, ranks, mine, better = request.case, request.ranks, found.mine, found.better
    out = []
    if mine:
        out.append(f"Your layouts, {_layouts(mine, ranks)}: {_what(mine, ranks)}.")
    elif any(request.today):
        out.append(f"Your layouts: {found.why_not}")
    if better:
        name = "Better" if mine else "Best"
        out.append(f"{name}, {_layouts(better, ranks)}: {_what(better, ranks)}{_gain(found)}.")
        if any(request.today):
            out.append(_price(found, request))
    else:
        within = f"{request.products} product{'s' if request.products > 1 else ''}"
        out.append(f"No other layout is better within {within}, its redistribution included.")
    out.append(f"Run: {run_command((mine or better).case, ranks)}")
    if mine and better:
        out.append(f"Better layouts: {run_command(better.case, ranks)}")
    out.append(f"How sure: {sure.text}{_searched(found)}.")
    if machine is None:
        out.append(f"For times, add --machine mine.toml after: {CALIBRATE}")
    out.append(
        f"{product_text(case)}, {case.dtype}, {ranks} "
        f"ranks{f' of {machine.name}' if machine else ''}; a C with replicas is finished on all of "
        "them."
    )
    return out


def _searched(found) -> str:
    """What the search left out could change."""
    if not found.gap:
        return ""
    most = "by how much is not known" if found.gap == inf else f"{100 * found.gap:.0f} % at most"
    return f"; layouts that --effort did not suffice for may be better, {most}"


def _layouts(place, ranks: int) -> str:
    return ", ".join(f"{name} {text}" for name, text in zip("ABC", layouts(place, ranks)))


def _what(place, ranks: int) -> str:
    """What to run, and what comes of it."""
    record, what = place.record, told(place)
    memory = f"{format_bytes(place.memory)} a rank"
    if record is None:
        found, flops = place.loads, 2 * place.case.m * place.case.n * place.case.k
        return (
            f"{what}. Its busiest rank moves {format_bytes(found.busiest_bytes)} (all "
            f"{format_bytes(found.moved_bytes)}) and multiplies "
            f"{found.busiest_flops * ranks / flops:.2f} times its share, {memory}"
        )
    peak = record.percent_of_peak
    return (
        f"{what}, {predicted_text(record)}, {record.percent_of_roof:.0f} % of the roof"
        f"{'' if peak is None else f', {peak:.0f} % of peak'}, {memory}"
    )


def _gain(found) -> str:
    if found.mine is None:
        return ""
    times = found.times_better
    if found.better.record is not None:
        return f"; {times:.2f} times as fast"
    return "" if times is None else f"; {times:.1f} times fewer bytes"


def _bringing(today: tuple) -> str:
    """What is brought where, of layouts that are named.

    Examples
    --------
    >>> (
    ...     _bringing(("row", "row", "row")),
    ...     _bringing(("row", None, None)),
    ...     _bringing((None, None, "R")),
    ... )
    ('Bringing A and B there, and C back,', 'Bringing A there', 'Bringing C back')
    """
    there = " and ".join(name for name, text in zip("AB", today) if text)
    if there and today[2]:
        return f"Bringing {there} there, and C back,"
    return f"Bringing {there} there" if there else "Bringing C back"


def _price(found, request) -> str:
    """What it costs to bring the matrices into the better layouts, and when that has paid."""
    moving, after = found.better.moving, found.pays_after
    if not moving.moved_bytes:
        return f"{_bringing(request.today)} moves nothing."
    text = f"{_bringing(request.today)} moves {format_bytes(moving.moved_bytes)}"
    if moving.seconds is not None:
        text += f" in {seconds(moving.seconds)}"
    if after is None:
        return f"{text}."
    by = "" if moving.seconds is not None else ", by bytes of the busiest rank"
    return f"{text}: it pays after {after} product{'s' if after > 1 else ''}{by}."
