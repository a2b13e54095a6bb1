"""``drbench history``: cases over dates or commits, and the steps in them."""

import click

from drbench.launch.host.files import check_output
from drbench.launch.host.show import console
from drbench.texts import plural

from .options import (
    PICTURE,
    command,
    csv_option,
    json_option,
    option,
    output_frame,
    quantity_option,
    reading,
    save_option,
    tolerance_option,
)


@command()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(exists=True))
@option("--by", type=click.Choice(["date", "commit"]), default="date", help="What names a run.")
@option("--case", multiple=True, metavar="KEY=VALUE", help="Only cases with this, as m=4096.")
@quantity_option()
@tolerance_option(help="Least change of a step: 0.05 for 5 %.")
@save_option(type=PICTURE, help="Draw the cases into this file.")
@csv_option(help="Write the table to this file, which is replaced.")
@json_option()
def history(folders, by, case, quantity, tolerance, save, csv_path, as_json):
    """List how cases changed over dates or commits of drbench, and where they changed in steps.

    DIR is a result file, or a folder with those of sweeps in it or below, such as one of every
    night. A step is a change beyond the tolerance and noise that lasted for three runs; it is
    listed with what its first run ran with that the run before did not. Noisy rows do not count.

    \b
      drbench history nightly
      drbench history nightly --by commit --case m=4096 --case algorithm=summa --save summa.pdf
    """
    check_output("--save", save)
    check_output("--csv", csv_path)
    from drbench.plots.registry import draw
    from drbench.plots.select.history import read_history, select_points
    from drbench.plots.select.references import shorten_cases

    with reading():
        points = select_points(read_history(folders), by, case, quantity, tolerance)
    cases = shorten_cases(points).groupby(["case", "label", "quantity"], sort=False)
    steps = ("step", lambda texts: "\n".join(filter(None, texts)))
    frame = cases.agg(first=("value", "first"), last=("value", "last"), steps=steps).reset_index()
    answer = f"{sum(frame.steps != '')} of {plural(len(frame), 'case')} changed in steps."
    out = console(stderr=bool(as_json))
    output_frame(frame, answer, out, csv_path, as_json)
    if save:
        with reading():
            out.line(f"figure: {draw('history', points, save).paths[0]}")
    return 0
