"""Check the artifact: the steps of the paper's appendix, the committed records, and the claims that
they support.

Each check has the source of its number, the expected and the found value, and the command that
shows it. A claim is compared with the paper, whose number and threshold are shown next to ours; the
check ``R.claims`` compares its verdict and numbers with those of the documentation
(``results/claims.csv``).
"""

import csv
import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isclose
from pathlib import Path
from typing import NamedTuple

from drbench.errors import DrbenchError, MissingError
from drbench.host.cores import usable_cores
from drbench.launch.cases.launchers import load_launcher
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.cases.sweep_values import shipped
from drbench.launch.host.files import CHECKOUT
from drbench.launch.host.kernels import without_pins
from drbench.launch.libraries import get_library
from drbench.launch.models.explained import case_of
from drbench.launch.models.simulate_sweeps import predict_on
from drbench.measure.record_file import read_csv
from drbench.model.machine import Machine

from . import papers
from .claims import ClaimVerdict, Paper

#: The committed verdicts.
EXPECTED = "claims.csv"
#: Numbers of a claim may differ by this share from the committed ones, or by one of the last digit.
NUMBERS_SHARE = 0.01
#: Simulated times may differ by this share: the same floating-point work on another processor.
SIMULATED_SHARE = 1e-6
#: The paper's experiments run on one rank per core, but on no more than this.
MOST_RANKS = 4
#: The sweeps to run: of the figures' layers, and of DTensor.
LAYERS, DTENSOR = ("mlp1", "mlp2"), "mlp1-dtensor"
#: Options without and with ``--quick``: the scale of ARTIFACT.md, or half of it with three repeats,
#: the fewest with a median.
SIZES = {False: " --scale=1/16", True: " --scale=1/32 -o iters=3 -o budget=0"}
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
#: Definitions of ``python`` and ``drbench`` in shell lines: those of this checkout.
_SHELL = (
    f'python() {{ {shlex.quote(sys.executable)} "$@"; }}; drbench() {{ python -m drbench "$@"; }}'
)


class Check(NamedTuple):
    """The result of one check.

    Attributes
    ----------
    name, description : str
        What is checked.
    verdict : str
        One of :data:`drbench.launch.papers.claims.WORDS`.
    source : str
        The source of the found number: measured here, simulated, from which committed records, and
        so on.
    expected, found : str
        The expected and the found value; for a claim the paper's number and ours.
    tolerance : str
        The threshold of a claim.
    command : str
        The command that shows it.
    see : str
        Why a claim does not hold, with the place in the documentation.
    little : str
        Why it proves little that a claim holds.
    """

    name: str
    description: str
    verdict: str
    source: str
    found: str
    expected: str
    tolerance: str = ""
    command: str = ""
    see: str = ""
    little: str = ""


#: A verdict, the source of the found value, and the value.
Found = tuple[str, str, str]


class Task(NamedTuple):
    """A check that runs when :meth:`check` is called.

    Attributes
    ----------
    name, description, expected, command : str
        As of a :class:`Check`.
    judge : callable
        ``judge(place)``: the verdict, the source of the found value, and the value.
    """

    name: str
    description: str
    expected: str
    command: str
    judge: Callable[["CheckSettings"], Found]

    def check(self, place: "CheckSettings") -> Check:
        """Run the check; an exception is a FAIL."""
        try:
            outcome = self.judge(place)
        except (OSError, LookupError, ValueError, DrbenchError) as error:
            outcome = "FAIL", HERE, " ".join(str(error).split()) or type(error).__name__
        return Check(self.name, self.description, *outcome, self.expected, command=self.command)


Tasks = Iterator[Task]


def program(name: str, description: str, line: str, missing: str = "") -> Task:
    """The check of a shell line in the root of the checkout, which must end with exit code 0; it is
    not run if something that it needs is ``missing``."""

    def judge(place: CheckSettings) -> Found:
        if missing:
            return "SKIP", "nothing was run", missing
        code = place.run(line)
        return passed(code == 0), HERE, f"exit code {code}"

    return Task(name, description, "exit code 0", line, judge)


#: Sources of numbers.
HERE, READ = "measured here", "committed records"


@dataclass(frozen=True)
class CheckSettings:
    """The settings of a check of the artifact.

    Attributes
    ----------
    out : Path
        Output folder.
    quick : bool
        Small experiments, and only the simulations of the figures.
    results : Path
        The committed records.
    only : tuple of str
        Prefixes of the names of wanted checks; empty for all.
    """

    out: Path
    quick: bool = True
    results: Path = CHECKOUT / "results"
    only: tuple[str, ...] = ()

    def wants(self, name: str) -> bool:
        """Whether a check of this name is wanted: ``P`` is all of them, ``P1`` is not P10.

        Examples
        --------
        >>> [
        ...     CheckSettings(Path(), only=("P1", "R")).wants(name)
        ...     for name in ("P1", "P10", "R.rows")
        ... ]
        [True, False, True]
        """
        begins = (rf"{re.escape(prefix)}(?!(?<=\d)\d)" for prefix in self.only)
        return not self.only or any(re.match(pattern, name) for pattern in begins)

    @property
    def ranks(self) -> int:
        """The number of ranks of the steps: one per core, at least two and at most four."""
        return max(2, min(MOST_RANKS, usable_cores()))

    def words(self, sweep: str) -> str:
        """The arguments after the name of a sweep, on the command line."""
        words = ["-p", str(self.ranks), f"--out={self.out / sweep}", "--fresh"]
        return shlex.join(words) + SIZES[self.quick]

    def run(self, line: str) -> int:
        """Run a shell line in the checkout, with its output on standard error, and return its exit
        code."""
        command = ["bash", "-c", f"{_SHELL}; {line}"]
        description = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        return subprocess.run(command, cwd=CHECKOUT, env=without_pins(), **description).returncode


def passed(good: bool) -> str:
    """PASS or FAIL."""
    return "PASS" if good else "FAIL"


def same_text(actual: str, expected: str) -> bool:
    """Whether two texts are the same but for numbers that differ by 1 % or one of the last digit.

    Examples
    --------
    >>> same_text("Column 80.9, Row 54.4 %", "Column 80.8, Row 54.4 %")
    True
    >>> same_text("Column 80.8", "Row 80.8"), same_text("Column 82.8", "Column 80.8")
    (False, False)
    >>> same_text("12 of 20", "12")
    False
    """
    return _NUMBER.split(actual) == _NUMBER.split(expected) and all(
        isclose(
            float(ours),
            float(other),
            rel_tol=NUMBERS_SHARE,
            abs_tol=1.001 * 10.0 ** -len(other.partition(".")[2]),
        )
        for ours, other in zip(_NUMBER.findall(actual), _NUMBER.findall(expected), strict=True)
    )


# -- the steps of the paper's artifact


def setup(place: CheckSettings) -> Tasks:
    """Step 1: drbench runs."""
    yield program("step1.doctor", "the machine can run it", "drbench doctor")
    line = f"drbench run -p {place.ranks} -m 64 -n 3072 -k 768 --preset column --stationary C"
    for transport in ("auto", "rma"):
        description = f"a verified case, transport {transport}"
        yield program(f"step1.{transport}", description, f"{line} --transport {transport}")


def launching(place: CheckSettings) -> Tasks:
    """Step 2: the launch mechanism; each shipped launcher makes a job script that bash reads."""
    for name in shipped("machines"):
        if load_launcher(name).words:
            out = shlex.quote(str(place.out / f"jobs-{name}"))
            line = f"drbench sweep mlp1-small -p 12 --launcher {name} --jobs slurm --parts 2 --yes"
            line += f" --out {out} && cat {out}/*.sbatch | bash -n"
            yield program(f"step2.{name}", f"a job script for {name}", line)


def experiments(place: CheckSettings) -> Tasks:
    """Steps 3 and 4: the paper's experiments, every case verified, and both figures."""
    for layer in LAYERS:
        text, figure = (shlex.quote(str(place.out / f"{name}{layer}")) for name in ("", "plot-"))
        line = f"python launch/launch_experiments_{layer}.py {place.words(layer)}"
        description = "every case ran and equals A·B exactly"
        yield program(f"step3.{layer}", description, f"{line} > {text}.txt")
        line = f"python plots/plot_{layer}.py --save {figure} < {text}.txt"
        yield program(f"step4.{layer}", "the figure of these cases", line)


def elsewhere(place: CheckSettings) -> Tasks:
    """Checks that need an optional package or hardware."""
    dtensor = get_library("dtensor").available()
    line = f"drbench sweep {DTENSOR} {place.words(DTENSOR)}"
    yield program("X.dtensor", "DTensor's lines", line, "" if dtensor.ok else dtensor.what)
    line = "drbench run -p 2 -m 2Ki -n 2Ki -k 2Ki --preset column --backend cupy"
    missing = "" if importlib.util.find_spec("cupy") else "CuPy is not installed"
    yield program("X.gpu", "a verified case on a GPU", line, missing)


# -- the committed records


def _odd_rows(place: CheckSettings) -> Found:
    from drbench.plots.select.records import read_records

    of = place.results / "measured"  # in here are records of the reader
    paths = sorted({*of.rglob("*.csv")} - {*(of / "here").rglob("*.csv")})
    table = read_records(
        path  # others are of benchmarks
        for path in paths
        if path.read_text("utf-8").startswith("schema_version,")
    )
    odd = table.query(
        "status in ['wrong', 'failed'] or status == 'ok' and "
        "(fill == 'integer' and error.fillna(0) != 0 or not best_s <= median_s * (1 + 1e-12))"
    )
    text = f"{len(odd)} odd rows of {len(table)}"
    return passed(len(table) > len(odd) == 0), f"{READ}: results/measured", text


def measured_rows(place: CheckSettings) -> Tasks:
    """The measured rows are plausible."""
    description = "every measured row was verified, none is wrong, failed, or best above its median"
    yield Task(
        "R.rows", description, "0 odd rows", "drbench report results/measured/*/*", _odd_rows
    )


def _simulated_again(path: Path, machine: Machine, place: CheckSettings) -> Found:
    records, worst = [record for record in read_csv(path) if record.status == "ok"], 0.0
    (again,) = predict_on([machine], map(case_of, records), records[0].ranks)
    for record, now in zip(records, again):
        same = now.status == "ok" and now.moved_bytes == record.moved_bytes
        worst = max(worst, abs(now.best_s / record.best_s - 1) if same else inf)
    return (
        passed(worst <= SIMULATED_SHARE),
        f"simulated here, compared with results/simulated/{path.name}",
        f"{len(records)} rows, times at most {worst:.1g} apart, inf where bytes differ",
    )


def simulations(place: CheckSettings) -> Tasks:
    """Repeat the committed simulations."""
    for path in sorted((place.results / "simulated").glob("*-*.csv")):
        layer, _, machine = path.stem.rpartition("-")
        if layer != "lowering" or not place.quick:
            yield Task(
                f"R.{path.stem}",
                "simulated again: same times, same bytes",
                f"times within {SIMULATED_SHARE:g}, bytes exactly",
                f"drbench sweep {layer} --simulate --machine {machine} --out DIR",
                partial(_simulated_again, path, find_machine(machine)),
            )


def _made_again(paper: Paper, study: str, place: CheckSettings) -> Found:
    committed, again = Path(paper.folder) / f"{study}.csv", place.out / f"{study}.csv"
    paper.write_study(study, again)
    lines, rows = (
        file.read_text("utf-8").splitlines() for file in (place.results / committed, again)
    )
    same = sum(row == other for row, other in zip(lines, rows)) - 1
    return (
        passed(lines == rows),
        f"simulated here, compared with results/{committed}",
        f"{same} of {len(lines) - 1} rows the same",
    )


def studies(place: CheckSettings) -> Tasks:
    """Repeat the studies of papers; with ``quick`` only the fast ones."""
    for paper in papers().values():
        for study in paper.quick if place.quick else paper.studies:
            yield Task(
                f"R.{'-'.join([*Path(paper.folder).parts[1:], study])}",
                "made again: the same rows",
                "the same rows",
                f"python -m drbench.launch.papers DIR {study}",
                partial(_made_again, paper, study),
            )


def pages(place: CheckSettings) -> Tasks:
    """The tables of the pages and the figures match the records."""
    description = "every table of README, ARTIFACT and docs/ is what its records give"
    yield program("R.numbers", description, "python -m benchmarks pages")
    description = "every committed figure, drawn again, draws the same"
    yield program("R.figures", description, "python -m benchmarks figures --check")


# -- claims


def claims(place: CheckSettings) -> Iterator[Check]:
    """Every claim that committed records can check."""
    every = place.wants("R.claims")
    wants = lambda name: every or place.wants(name)
    with open(place.results / EXPECTED, newline="", encoding="utf-8") as file:
        expected = {row["claim"]: row for row in csv.DictReader(file) if wants(row["claim"])}
    differ, count = [], 0
    for paper in papers().values():
        for verdict in paper.verdicts(place.results, wants):
            count += 1
            if place.wants(verdict.claim.name):
                yield of_claim(verdict)
            row = expected.pop(verdict.claim.name, {"verdict": "none", "ours": ""})
            was = f"{row['verdict']}: {row['ours']}"
            if not same_text(f"{verdict.word}: {verdict.ours}", was):
                differ.append(f"{verdict.claim.name} was {was}")
    differ += [f"there is no {name}" for name in expected]
    if count or differ:
        yield Check(
            "R.claims",
            "verdicts and numbers of these claims are those that the documentation gives",
            passed(not differ),
            READ,
            "; ".join(differ) or f"{count} the same",
            f"as in results/{EXPECTED}, numbers within {NUMBERS_SHARE:.0%} or one of the last "
            "digit",
            command="drbench artifact --only P,M,F,T,S",
        )


def of_claim(verdict: ClaimVerdict) -> Check:
    """A claim as a check."""
    claim = verdict.claim
    return Check(
        claim.name,
        claim.text,
        verdict.word if verdict.word != "SKIP" else "FAIL",  # its records are committed
        f"{claim.source}, committed: {claim.records}",
        verdict.ours,
        claim.theirs,
        claim.threshold,
        f"drbench artifact --only {claim.name}",
        f"{verdict.reason} {claim.see}".strip() if claim.see else "",
        "" if claim.see else verdict.reason,
    )


#: What is checked, in order.
STEPS = (
    setup,
    launching,
    experiments,
    measured_rows,
    simulations,
    studies,
    pages,
    elsewhere,
    claims,
)


def check_records(results: Path) -> None:
    """Raise a MissingError without the committed records, as in a wheel."""
    if not (results / EXPECTED).is_file():
        raise MissingError(
            f"no {results / EXPECTED}: an installed wheel has no results/. In a clone: make "
            "install, or pip install --editable '.[mpich]', then the drbench of that environment."
        )


def check_artifact(
    place: CheckSettings, begins: Callable[[str], None] = lambda description: None
) -> Iterator[Check]:
    """Run the wanted checks. ``begins`` is called before each step with its description.

    Raises
    ------
    MissingError
        Without the committed records.
    """
    check_records(place.results)
    place = replace(place, out=place.out.resolve())  # programs run in the checkout
    for step in STEPS:
        wanted = (check for check in step(place) if step is claims or place.wants(check.name))
        for number, check in enumerate(wanted):
            if not number:
                begins((step.__doc__ or "").partition("\n")[0].rstrip("."))
            yield check.check(place) if isinstance(check, Task) else check
