"""``drbench history``: cases over dates or commits, and the steps in them."""

import click

from drbench.errors import UsageError
from drbench.launch.host.files import check_output, write_output
from drbench.texts import plural, value_text

from .options import (
    PICTURE,
    command,
    csv_option,
    json_option,
    option,
    printing,
    quantity_option,
    reading,
    save_option,
    tolerance_option,
)


@command()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(exists=True))
@option("--by", type=click.Choice(["date", "commit"]), default="date", help="Order of the rows.")
@option("--case", multiple=True, metavar="KEY=VALUE", help="Only cases with this, as m=4096.")
@quantity_option()
@tolerance_option(help="Least change of a step: 0.05 for 5 %.")
@save_option(type=PICTURE, help="Draw the cases into this file.")
@csv_option(help="Write the points to this file, which is replaced.")
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

    with reading():
        records = read_history(folders)
    points = select_points(records, by, quantity, tolerance)
    points = points[[{*case} <= {*text.split()} for text in points.case]]
    if points.empty:
        raise UsageError(
            f"no row of {len(records)} is left: ok, not noisy, with a {by}, and of {case}. Leave "
            "something out, or measure again."
        )
    shown = points["label case quantity when value low high ratio changed".split()]
    if csv_path:
        write_output("--csv", csv_path, shown.to_csv(index=False))
    if as_json:
        click.echo(shown.to_json(orient="records"))
    else:
        _show(points)
    if save:
        with reading():
            drawn = draw("history", points, save)
        click.echo(f"figure: {drawn.paths[0]}", err=as_json)
    return 0


def _show(points):
    """Print how many cases have steps, then a row for each case."""
    from drbench.launch.host.show import table
    from drbench.plots.select.references import short_cases

    names, lines = short_cases(points.case), []
    for (_, case), rows in points.groupby(["label", "case"], sort=False):
        steps = rows[rows.ratio > 0]
        texts = zip(steps.ratio, steps.when, steps.changed)
        ends = rows.value.iloc[[0, -1]]
        lines.append(
            (
                names[case],
                *map(value_text, rows.quantity, ends),
                f"× {ends.iloc[1] / ends.iloc[0]:.3f}",
                str(len(rows)),
                "\n".join(f"× {ratio:.3f} on {when}: {changed}" for ratio, when, changed in texts),
            )
        )
    out, print_line = printing()
    count = sum(bool(line[-1]) for line in lines)
    print_line(
        f"{count} of {plural(len(lines), 'case')} changed in steps, {points.when.iloc[0]} to "
        f"{points.when.iloc[-1]}."
    )
    out.print(table("!~case|>!first|>!last|>ratio|>points|!~steps", lines))
