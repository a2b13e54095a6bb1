"""``drbench paper overlap-study``: FLUX and Triton-distributed on machine models."""

from pathlib import Path

import click

from drbench.errors import UsageError
from launch.host.units import plural

from ..options import (
    TEXT,
    arbitration_option,
    command,
    option,
    out_option,
    reading,
)


@command("overlap-study")
@click.argument("studies", nargs=-1, metavar="[STUDY]...")
@out_option(
    default="results/simulated/overlap",
)
@option(
    "--sensitivity",
    "factors",
    type=TEXT,
    metavar="X,Y,...",
    help="Simulate again with each assumed constant so many times as large, as 0.5,0.8,1.25,2, "
    "say which claims change, and write that to the folder sensitivity in --out; no other rows are "
    "written. Half an hour.",
)
@option(
    "--machine",
    "only",
    metavar="NAME",
    help="With --sensitivity: vary this machine's constants only. [default: all]",
)
@arbitration_option()
@option(
    "--claims/--no-claims",
    default=True,
    help="Say beside each number of the papers what the rows of the folder say.",
)
def overlap_study_command(studies, out, factors, only, arbitration, claims):
    """Simulate the figures of FLUX and Triton-distributed and write their rows: flux8 to flux15,
    td11 to td14, td17, td18, td-table4, td-table5, order, headroom, split.

    \b
      drbench paper overlap-study                             # all of them, minutes
      drbench paper overlap-study flux13 td11 --out DIR
      drbench paper overlap-study --sensitivity 0.5,2 --machine h800 --out DIR
      drbench plot overlap-td11 results/simulated/overlap results/published/overlap/speedups.csv
    """
    from launch.studies.overlap.claims import committed, show_claims
    from launch.studies.overlap.study import STUDIES, Benches, check_studies, run_study
    from plots.select.overlap_rows import write_rows

    check_studies(studies)
    if only and not factors:
        raise UsageError("--machine belongs to --sensitivity. Give both, or leave it out.")
    if arbitration and factors:
        raise UsageError("--arbitration is for rows, and --sensitivity writes none. Leave one out.")
    folder, benches = Path(out), Benches(arbitration=arbitration)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if factors:
            from launch.studies.overlap.sensitivity import write_sensitivity

            write_sensitivity(factors, only, studies or tuple(STUDIES), folder, click.echo)
            return 0
        for name in studies or STUDIES:
            rows = run_study(name, benches)
            write_rows(folder / f"{name}.csv", rows)
            click.echo(f"{folder / f'{name}.csv'}: {plural(len(rows), 'row')}")
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}. Use another --out.") from None
    if claims:
        with reading():
            show_claims(*committed(folder))
    return 0
