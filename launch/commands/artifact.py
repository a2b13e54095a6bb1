"""``drbench artifact``: check the artifact, PASS or FAIL."""

import json
import time
from pathlib import Path

from rich.text import Text

from drbench.errors import EXIT_CODES, UsageError
from drbench.launch.host.files import check_output, make_folder, write_table
from drbench.launch.host.show import FORM, console, table
from drbench.launch.papers import papers
from drbench.launch.papers.artifact import Check, CheckSettings, check_artifact, check_records
from drbench.launch.papers.claims import count_words, describe_word
from drbench.launch.papers.vary import Variation, vary
from drbench.mappings import grouped

from .options import command, csv_option, json_option, option, out_option, refuse_ranks

_STYLES = {"PASS": "green", "FAIL": "bold red", "KNOWN": "yellow", "SKIP": "dim"}
#: Labels of the printed fields; the second is for claims where it differs.
_CALLED = {
    "source": ("source",),
    "expected": ("expected", "paper"),
    "found": ("found", "ours"),
    "tolerance": ("holds if",),
    "command": ("command",),
    "see": ("why",),
    "little": ("little",),
}


@command(useless={"--sensitivity": "--quick --out"})
@option(
    "--quick",
    is_flag=True,
    help="Three repeats of each case, and simulate only the figures: three minutes.",
)
@option(
    "--only",
    metavar="NAMES",
    help="Only checks whose names begin like this, as step1,P7. step1 to step4 are those of the "
    "paper's artifact, R the committed records, A the accuracy of predictions, X what needs other "
    "packages or hardware; P, M, F and T are claims of papers, S claims of this suite.",
)
@option(
    "--sensitivity",
    is_flag=True,
    help="Instead, change each assumed constant of a paper's models, simulate again, and list "
    "the claims whose verdict changes. With --only P, M, F or T for that paper alone. Up to an "
    "hour.",
)
@out_option(default="results/measured/here/artifact")
@csv_option(help="Write the rows to this file.")
@json_option()
def artifact(quick, only, sensitivity, out, csv_path, as_json):
    """Check the artifact: its steps, the committed records, predictions and every claim.

    \b
      PASS                         as expected; the claim holds
      FAIL                         not as expected, or not as committed
      NOT REPRODUCED (documented)  the claim does not hold, and the documentation gives the reason
      SKIP                         hardware or a package is missing

    Each line gives the source of its number (measured here, committed records of which machine,
    simulated, arithmetic, published), the expected and the found value, and the command that shows
    it; for a claim also its threshold, and the reason if it does not hold or proves little. Exit
    code 1 if there is a FAIL.

    \b
      drbench artifact --quick
      drbench artifact --only R
    """
    refuse_ranks("artifact")
    settings = CheckSettings(Path(out), quick, only=tuple(only.split(",")) if only else ())
    check_records(settings.results)
    check_output("--csv", csv_path)
    results, print_line, start = [], console(), time.monotonic()
    if sensitivity:
        rows, show = _variations(settings), _show_variation
    else:
        make_folder(out)
        progress = console(stderr=True, soft_wrap=True)
        rows, show = check_artifact(settings, progress.print), _show
    for row in rows:
        results.append(row)
        if not as_json:
            show(print_line, row)
    if not results:
        names = "P7, M, F, T1" if sensitivity else "step1, R, A, P7, M, S, T1"
        raise UsageError(
            f"--only {only}: no check has a name that begins like this. Names: {names}."
        )
    words = [row._asdict() for row in results]
    for row in () if sensitivity else words:
        row["verdict"] = describe_word(row["verdict"])
    if csv_path:
        write_table(csv_path, words)
    if as_json:
        print(json.dumps(words))
    if FORM.get():
        print_line.print(
            table("|".join(words[0]), [map(str, row.values()) for row in words], words)
        )
    if sensitivity:
        return 0
    if not as_json:
        minutes = (time.monotonic() - start) / 60
        for name, checks in _by_kind(results).items():
            print_line.line(f"{name:21} {count_words(check.verdict for check in checks)}")
        total = count_words(check.verdict for check in results)
        print_line.line(f"{total} in {minutes:.1f} minutes")
    return EXIT_CODES["wrong" if any(check.verdict == "FAIL" for check in results) else "ok"]


def _variations(settings: CheckSettings):
    for name, paper in papers().items():
        if paper.simulate and any(settings.wants(claim.name) for claim in paper.claims):
            yield from vary(name, paper, settings.results)


def _show_variation(print_line, variation: Variation) -> None:
    """Print a changed constant and the claims whose verdict changes."""
    what = f"{variation.machine}, {variation.change}" if variation.change else "unchanged"
    text = f"{variation.paper}: {what}: {variation.changed_claims or 'no verdict changes'}"
    print_line.line(text)


def _by_kind(checks: list[Check]) -> dict[str, list[Check]]:
    """Claims by the source of our number, those that prove little, and all other checks."""

    def kind(check: Check) -> str:
        if check.tolerance and not check.little:
            return f"claims, {check.source.split()[0].strip(',')}"
        return "claims, prove little" if check.little else "all but claims"

    return grouped(checks, kind)


def _show(print_line, check: Check) -> None:
    """Print a line for a check, and one for each of its fields."""
    word = describe_word(check.verdict)
    print_line.line(
        Text.assemble((f"{word:5}", _STYLES[check.verdict]), f" {check.name} {check.description}")
    )
    for field, called in _CALLED.items():
        if text := getattr(check, field):
            name = called[-1] if check.tolerance else called[0]
            print_line.line(f"      {name:9} {text}")
