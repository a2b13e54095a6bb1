"""``drbench ledger``: every measured or published number with its prediction, and whether
predictions became worse."""

import json
from pathlib import Path

from drbench.errors import EXIT_CODES, UsageError
from launch.host.files import ROOT, check_output
from launch.host.show import console, table

from ..options import FILE, command, json_option, option, reading, save_option


@command("ledger")
@option(
    "--ledger",
    "path",
    type=FILE,
    metavar="FILE",
    group="Problem",
    help="The ledger. [default: results/ledger.csv of this checkout]",
)
@option(
    "--results",
    type=FILE,
    metavar="DIR",
    group="Problem",
    help="Folder of the measured and published numbers. [default: results of this checkout]",
)
@option(
    "--again",
    is_flag=True,
    group="Problem",
    help="Predict every number anew, and fail (exit 1) where that is worse than the ledger.",
)
@save_option()
@option("--release", metavar="NAME", group="Output", help="The release that --save writes for.")
@option(
    "--figure",
    type=FILE,
    metavar="FILE",
    group="Output",
    help="Draw error against size; .pdf, .png, .svg or .txt say the format.",
)
@json_option()
def ledger_command(path, results, again, save, release, figure, as_json):
    """Hold every prediction against what was measured or published: errors, and how many numbers
    lie in their intervals.

    \b
      drbench ledger --figure ledger.pdf
      drbench ledger --again

    A ledger keeps what the last release predicted. --again says what became worse since: a mean
    error that grew by more than 0.5 points, fewer than 90 % of held-out numbers in their intervals,
    or intervals more than a tenth wider.
    """
    from drbench import __version__
    from launch.studies.ledger import by_group, entered, predicted_now, summed, worse
    from plots.select.ledger_rows import read_rows, write_rows

    if release and not save:
        raise UsageError("--release belongs to --save. Give both, or leave it out.")
    for flag, out in (("--save", save), ("--figure", figure)):
        check_output(flag, out)
    results = Path(results or ROOT / "results")
    path = Path(path or ROOT / "results/ledger.csv")
    if not path.exists() and not save:
        raise UsageError(f"--ledger {path}: there is none. Write one with --save {path}.")
    with reading():
        before = read_rows([path]) if path.exists() else []
        now = predicted_now(release or __version__, results) if again or save else []
    rows = now if release else entered(before, now) if save else before
    lines = worse(before, now) if again else []
    if save:
        write_rows(save, rows)
    found = {group: summed(its) for group, its in by_group(rows).items()}
    if as_json:
        told = {group: each._asdict() for group, each in found.items()}
        print(json.dumps({"groups": told, "worse": lines if again else None}))
    else:
        _show(found, lines, again)
    if figure:
        from plots.registry import draw

        drawn = draw("ledger", rows, figure)
        for line in () if as_json else [*drawn.notes, *(f"figure: {each}" for each in drawn.paths)]:
            console().print(line, markup=False)
    return EXIT_CODES["wrong"] if lines else 0


def _show(found: dict, lines: list[str], again: bool) -> None:
    percent = lambda value: "-" if value is None else f"{value:.1f}"
    cells = [
        (
            group,
            str(each.points),
            *map(percent, (each.mean, each.median, each.most)),
            f"{each.bias:+.1f}",
            percent(each.held and 100 * each.held),
            percent(each.half_width),
        )
        for group, each in found.items()
    ]
    columns = "|>points|>mean error|>median|>largest|>median, signed|>in interval|>half interval"
    out = console()
    out.print(table(columns, cells))
    out.print(
        "All in percent. Mean, median and largest are of errors without their signs; median, "
        "signed is the bias. Intervals of numbers that were not fitted.",
        markup=False,
    )
    for line in lines:
        out.print(f"worse: {line}", markup=False, soft_wrap=True)
    if again and not lines:
        out.print("Nothing is worse than the ledger.", markup=False)
