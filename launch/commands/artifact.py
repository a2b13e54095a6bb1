"""``drbench artifact``: the artifact checked, PASS or FAIL."""

import csv
import json
import time
from pathlib import Path

from drbench.errors import EXIT_CODES, UsageError
from launch.host.files import made_folder
from launch.host.show import console
from launch.host.units import duration
from launch.studies.artifact import Check, Place, accept, check_artifact
from launch.studies.verdicts import counted, shown
from launch.sweeps.progress import progress_console

from .options import command, csv_option, json_option, option, out_option, refuse_ranks

_STYLES = {"PASS": "green", "FAIL": "bold red", "KNOWN": "yellow", "SKIP": "dim"}
#: What a line is called; of a claim, if that is another name.
_CALLED = {
    "source": ("source",),
    "theirs": ("paper",),
    "found": ("found", "ours"),
    "expected": ("expected", "holds if"),
    "committed": ("committed",),
    "command": ("command",),
    "see": ("why",),
}


@command()
@option(
    "--quick",
    is_flag=True,
    help="Three repeats of each case, and only the figures' simulations again: three minutes.",
)
@option(
    "--only",
    metavar="NAMES",
    help="Only checks whose names begin so, as step1,P7. step1 to step4 are those of the paper's "
    "artifact, R the committed records, X what needs other packages or hardware, P, M, F and T the "
    "claims of papers, S those of this suite.",
)
@out_option(default="results/measured/here/artifact")
@csv_option()
@json_option()
@option(
    "--accept",
    "accepts",
    is_flag=True,
    help="Check nothing: write today's verdicts and sums of results/ as the expected ones. For who "
    "changed records and the documentation with them.",
)
def artifact(quick, only, out, csv_path, as_json, accepts):
    """Check the artifact: its steps, the committed records, and every claim.

    \b
      PASS                         as expected; the claim holds
      FAIL                         not as expected, or not as committed
      NOT REPRODUCED (documented)  the claim does not hold, and the documentation says so and why
      SKIP                         hardware or a package is missing

    Each line says where its number is from (measured here, committed records of which machine,
    simulated, arithmetic, published), what was found and expected, and the command that shows it; a
    claim also the paper's number. Exit code 1 if there is a FAIL.
    """
    refuse_ranks("artifact")
    if accepts:
        accept(Place(Path(out)).results)
        return 0
    names = tuple(only.split(",")) if only else ()
    place, say, start = Place(made_folder(out), quick, only=names), console(), time.monotonic()
    found = []
    progress = progress_console(stderr=True)
    begins = lambda about, left_s: progress.print(f"{about}; {duration(left_s)} left", markup=False)
    for check in check_artifact(place, begins):
        found.append(check)
        if not as_json:
            _show(say, check)
    if not found:
        raise UsageError(
            f"--only {only}: no check's name begins so. Names are like step1, R, P7, M, S, T1."
        )
    rows = [check._replace(verdict=shown(check.verdict)) for check in found]
    if csv_path:
        with open(csv_path, "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([Check._fields, *rows])
    if as_json:
        print(json.dumps([row._asdict() for row in rows]))
    else:
        minutes = (time.monotonic() - start) / 60
        for kind, checks in _by_kind(found).items():
            say.print(f"{kind:21} {counted(check.verdict for check in checks)}", soft_wrap=True)
        total = counted(check.verdict for check in found)
        say.print(f"{total} in {minutes:.1f} minutes", soft_wrap=True)
    return EXIT_CODES["wrong" if any(check.verdict == "FAIL" for check in found) else "ok"]


def _by_kind(found: list[Check]) -> dict[str, list[Check]]:
    """Claims by how our number came about, and all else."""
    kinds: dict[str, list[Check]] = {}
    for check in found:
        kind = f"claims, {check.source.split()[0].strip(',')}" if check.theirs else "all but claims"
        kinds.setdefault(kind, []).append(check)
    return kinds


def _show(say, check: Check) -> None:
    """A line for what was checked, and one each for what is told of it."""
    word = shown(check.verdict)
    say.print(f"[{_STYLES[check.verdict]}]{word:5}[/] {check.name}", end=" ")
    say.print(check.about, markup=False, highlight=False, soft_wrap=True)
    for field, called in _CALLED.items():
        if text := getattr(check, field):
            name = called[-1] if check.theirs else called[0]
            say.print(f"      {name:9} {text}", markup=False, soft_wrap=True)
