"""``drbench scaling``: strong or weak scaling, one command, one table, one figure."""

import json
from pathlib import Path

import click

from drbench.errors import UsageError
from launch.host.files import check_output, made_folder

from .guards import default_ranks, go_on, refuse_too_many
from .options import (
    arbitration_option,
    case_of,
    command,
    json_option,
    label_option,
    launcher_option,
    modelled,
    of_case,
    option,
    out_option,
    peak_option,
    problem_options,
    ranks_list_option,
    ranks_option,
    reading,
    refuse_ranks,
    take_options,
    timeout_option,
    yes_option,
)

#: What the JSON calls the middle, low and high of a prediction.
_PREDICTED = ("predicted_s", "predicted_low_s", "predicted_high_s")


@command("scaling")
@option(
    "--strong/--weak",
    default=True,
    group="Problem",
    help="The same problem on more ranks, or one that grows with them.",
)
@option(
    "--grow",
    type=click.Choice(["m", "n", "k"]),
    group="Problem",
    help="With --weak: the extent that grows; what is given is that of one rank. [default: m]",
)
@problem_options(
    "prefetch",
    type=("float32", "float64", "bfloat16:float32", "bfloat16"),
    default=None,
    says="float32; with --simulate the machine's",
)
@ranks_option()
@ranks_list_option()
@of_case("threads", default=1, says="")
@of_case("transport", "backend")
@option(
    "--rounds",
    type=click.IntRange(1),
    default=3,
    group="Measurement",
    help="How often all numbers of ranks are run, in turn.",
)
@of_case("iters", default=5, help="Timed repeats of each round, at least; see --budget.")
@of_case("budget")
@option(
    "--machine",
    "model",
    metavar="NAME|FILE",
    group="Machine model",
    help="Machine model whose predictions are shown beside what is measured.",
)
@arbitration_option()
@option(
    "--simulate",
    is_flag=True,
    group="Machine model",
    help="Predict on --machine only; run nothing.",
)
@launcher_option()
@label_option(default=None, says="the launcher file's, or here")
@peak_option()
@timeout_option(
    type=click.FloatRange(0),
    default=300.0,
    group="Ranks and data movement",
)
@out_option(
    group="Output",
)
@option("--fresh", is_flag=True, group="Output", help="Move what is there aside and begin anew.")
@option(
    "--figure",
    type=click.Path(),
    metavar="FILE",
    group="Output",
    help="The figure; .pdf, .png, .svg or .txt say the format. [default: strong or weak in the "
    "folder, .pdf and .png]",
)
@json_option()
@yes_option()
def scaling_command(
    strong,
    grow,
    ranks,
    counts,
    rounds,
    model,
    arbitration,
    simulate,
    launcher,
    peak,
    timeout,
    out,
    fresh,
    figure,
    as_json,
    yes,
    **values,
):
    """Measure strong or weak scaling, or predict it on a machine model: a table with speed-up and
    efficiency, and a figure.

    \b
      drbench scaling -m 4Ki -n 4Ki -k 4Ki --preset column
      drbench scaling --weak -m 1Ki -n 4Ki -k 4Ki --preset row -p 8
      drbench scaling -m 64Ki -n 64Ki -k 64Ki -p 256 --machine tpuv4-16x16 --simulate

    All numbers of ranks run in turn, several rounds of them, so that a drifting machine hurts all
    alike; each result is verified. More ranks than cores are marked as oversubscribed. The same
    command again goes on where a killed one stopped.
    """
    refuse_ranks("scaling")
    from launch.cases.launchers import load_launcher
    from launch.cases.peak_files import read_peaks
    from launch.models.predict import ranks_on, refuse_more_ranks
    from launch.models.scaling import POINTS, doubling, fitting, run, worst
    from launch.sweeps.progress import progress_console
    from plots.registry import suffixes

    if simulate and not model:
        raise UsageError("--simulate needs a machine model. Name a --machine.")
    if grow and strong:
        raise UsageError("--grow belongs to --weak. Give both, or leave it out.")
    model, where = modelled(model, arbitration), load_launcher(launcher)
    grow = None if strong else grow or "m"
    if counts and ranks:
        raise UsageError("--ranks-list and -p both say how many ranks. Leave one of them out.")
    if counts is None:
        if ranks is None:
            threads, backend = values["threads"], values["backend"]
            ranks = ranks_on(model) if simulate else default_ranks(threads, backend, where.words)
        counts = doubling(ranks)
        if len(counts) < 2:
            raise UsageError("scaling needs two numbers of ranks, and this is one. Use -p 2.")
    values["dtype"] = values["dtype"] or (model.dtype if simulate else "float32")
    values["machine"] = model.name if simulate else values["machine"] or where.name
    values |= {"options": take_options(values), "roof": True}
    name = "strong" if strong else "weak"
    kind = "simulated" if simulate else "measured"
    folder = Path(out or f"results/{kind}/here/scaling-{name}")
    drawn = Path(figure) if figure else folder / name
    check_output("--figure", figure)
    with reading():
        formats = suffixes(drawn)
    say = progress_console(stderr=as_json)
    if simulate:
        refuse_more_ranks(model, max(counts))
    cases, refused = fitting(lambda count: case_of(dict(values), count), counts, grow)
    for line in refused:
        say.print(line, markup=False)
    if not simulate:
        if where.words == ():
            refuse_too_many(max(cases), values["threads"], yes)
        if values["backend"] == "numpy":
            long = _long(cases, rounds)
            go_on(long, "drbench scaling", yes, "fewer --rounds, or a smaller problem")
    made_folder(folder)
    found = run(
        cases,
        folder,
        say,
        machine=model,
        simulate=simulate,
        rounds=rounds,
        fresh=fresh,
        launcher=where,
        timeout_s=timeout or None,
        peaks=read_peaks(peak, cases.values(), launcher),
    )
    if as_json:
        print(json.dumps(_as_json(found)))
    if sum(point.speedup is not None for point in found) > 1:
        _draw(name, folder / POINTS, drawn, formats, say)
    say.print(f"records: {folder / POINTS}", markup=False)
    return worst(found)


def _long(cases: dict, rounds: int) -> float:
    """Seconds of all rounds, if that is long enough to be asked about; else 0."""
    from launch.sweeps.estimate import LONG_S, estimated

    for measure in (False, True):  # what is short at the rate of any core needs no measurement
        time_s = sum(
            estimated([case] * rounds, ranks, case.threads, measure=measure).time_s
            for ranks, case in cases.items()
        )
        if time_s <= LONG_S:
            return 0.0
    return time_s


def _as_json(found) -> dict:
    names = ("middle", "low", "high")
    spread = lambda values: values and dict(zip(names, values))
    return {
        "points": [
            {
                "ranks": point.record.ranks,
                "speedup": spread(point.speedup),
                "efficiency_percent": spread(point.efficiency),
                **dict(zip(_PREDICTED, point.predicted or (None,) * 3)),
                "record": point.record.to_json_dict(),
            }
            for point in found
        ]
    }


def _draw(name: str, path, figure: Path, formats, say) -> None:
    from plots.registry import draw

    drawn = draw(name, [path], figure, formats)
    for line in drawn.notes:
        say.print(line, markup=False)
    for each in drawn.paths:
        say.print(f"figure: {each}", markup=False)
