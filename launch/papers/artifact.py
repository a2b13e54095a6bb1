"""The artifact, checked: the steps of the paper's appendix, the committed records, and the claims
that they show.

Each check says where its number is from, what was expected and found, and the command that shows
it. A claim is compared with the paper, whose number and threshold stand beside ours; the check
``R.claims`` compares its verdict and numbers with those that the documentation gives
(``results/claims.csv``).
"""

import csv
import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from drbench.errors import MissingError
from drbench.host.cores import usable_cores
from drbench.measure.record_file import read_csv
from launch.cases.launchers import load_launcher
from launch.cases.machine_models import find_machine
from launch.cases.sweep_values import shipped
from launch.host.files import ROOT
from launch.host.kernels import without_pins
from launch.models.predict import predict
from launch.peers import get_peer

from . import papers
from .accuracy import case_of
from .claims import Paper, Verdict

#: The committed verdicts.
EXPECTED = "claims.csv"
#: Numbers of a claim may differ by this share from the committed ones, or by one of the last digit.
NUMBERS_SHARE = 0.01
#: Simulated times may differ by this share: the same floating-point work on another processor.
SIMULATED_SHARE = 1e-6
#: The paper's experiments are run on as many ranks as there are cores, but no more than this.
MOST_RANKS = 4
#: The sweeps that are run: of the figures' layers, and of DTensor.
LAYERS, DTENSOR = ("mlp1", "mlp2"), "mlp1-dtensor"
#: Of each case, with ``--quick``: three repeats, of which there is a median.
QUICK = " -o iters=3 -o budget=0"
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
#: What ``python`` and ``drbench`` are in the lines of programs: those of this checkout.
_SHELL = (
    f'python() {{ {shlex.quote(sys.executable)} "$@"; }}; drbench() {{ python -m drbench "$@"; }}'
)


class Check(NamedTuple):
    """One thing that was checked.

    Attributes
    ----------
    name, about : str
        What is checked.
    verdict : str
        One of :data:`launch.papers.claims.WORDS`.
    source : str
        Where the number that was found is from: measured here, or simulated, of which committed
        records, and so on.
    expected, found : str
        What is expected, and what was found; of a claim the paper's number, and ours.
    tolerance : str
        By what a claim holds.
    command : str
        What shows it.
    see : str
        Where the documentation says that a claim does not hold, and why.
    """

    name: str
    about: str
    verdict: str
    source: str
    found: str
    expected: str
    tolerance: str = ""
    command: str = ""
    see: str = ""


class Program(NamedTuple):
    """A command that ends with exit code 0 if all is well.

    Attributes
    ----------
    line : str
        For a shell in the root of the checkout.
    missing : str
        What it needs and is not here; then it is not run.
    """

    name: str
    about: str
    line: str
    missing: str = ""

    def check(self, place: "Place") -> Check:
        """Run it."""
        found = "SKIP", "nothing was run", self.missing
        if not self.missing:
            code = place.run(self.line)
            found = passed(code == 0), HERE, f"exit code {code}"
        return Check(self.name, self.about, *found, "exit code 0", command=self.line)


#: What ran or was made just now, and what was read.
HERE, READ = "measured here", "committed records"


@dataclass(frozen=True)
class Place:
    """Where the artifact is checked.

    Attributes
    ----------
    out : Path
        Folder for what is made.
    quick : bool
        Small experiments, and only the figures' simulations again.
    results : Path
        The committed records.
    only : tuple of str
        Beginnings of the names of checks that are wanted; empty for all.
    """

    out: Path
    quick: bool = True
    results: Path = ROOT / "results"
    only: tuple[str, ...] = ()

    def wants(self, name: str) -> bool:
        """Whether a check of this name is wanted: ``P`` is all of them, ``P1`` is not P10.

        Examples
        --------
        >>> [Place(Path(), only=("P1", "R")).wants(name) for name in ("P1", "P10", "R.rows")]
        [True, False, True]
        """
        return not self.only or any(_begins(o, name) for o in self.only)

    def wants_some(self, names: Iterable[str]) -> bool:
        """Whether some check may be wanted whose name begins with one of these."""
        return any(self.wants(name) or any(_begins(name, o) for o in self.only) for name in names)

    @property
    def ranks(self) -> int:
        """Ranks that the steps start: one a core, two at least and four at most."""
        return max(2, min(MOST_RANKS, usable_cores()))

    def words(self, sweep: str) -> str:
        """What follows the name of one of the sweeps that are run here, on the command line."""
        words = ["-p", str(self.ranks), f"--out={self.out / sweep}", "--scale=1/16", "--fresh"]
        return shlex.join(words) + QUICK * self.quick

    def run(self, line: str) -> int:
        """Run a line of a shell in the checkout, which says what it does on standard error; its
        exit code."""
        command = ["bash", "-c", f"{_SHELL}; {line}"]
        about = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        return subprocess.run(command, cwd=ROOT, env=without_pins(), **about).returncode


def _begins(beginning: str, name: str) -> bool:
    """Whether a name begins so; P10 does not begin with P1."""
    return bool(re.match(rf"{re.escape(beginning)}(?!(?<=\d)\d)", name))


def passed(good: bool) -> str:
    """PASS or FAIL."""
    return "PASS" if good else "FAIL"


def same_text(found: str, expected: str) -> bool:
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
    return _NUMBER.split(found) == _NUMBER.split(expected) and all(
        abs(float(one) - float(other))
        <= max(NUMBERS_SHARE * float(other), 1.001 * 10.0 ** -len(other.partition(".")[2]))
        for one, other in zip(_NUMBER.findall(found), _NUMBER.findall(expected), strict=True)
    )


# -- the steps of the paper's artifact


def setup(place: Place) -> Iterator[Program]:
    """Step 1: it runs."""
    yield Program("step1.doctor", "the machine can run it", "drbench doctor")
    line = f"drbench run -p {place.ranks} -m 64 -n 3072 -k 768 --preset column --stationary C"
    for transport in ("auto", "rma"):
        about = f"a verified case, transport {transport}"
        yield Program(f"step1.{transport}", about, f"{line} --transport {transport}")


def launching(place: Place) -> Iterator[Program]:
    """Step 2: the launch mechanism; each shipped launcher makes a job script that bash reads."""
    for name in shipped("machines"):
        if load_launcher(name).words:
            out = shlex.quote(str(place.out / f"jobs-{name}"))
            line = f"drbench sweep mlp1-small -p 12 --launcher {name} --jobs slurm --parts 2 --yes"
            line += f" --out {out} && cat {out}/*.sbatch | bash -n"
            yield Program(f"step2.{name}", f"a job script for {name}", line)


def experiments(place: Place) -> Iterator[Program]:
    """Steps 3 and 4: the paper's experiments, every case verified, and both figures."""
    for layer in LAYERS:
        text, figure = (shlex.quote(str(place.out / f"{name}{layer}")) for name in ("", "plot-"))
        line = f"python launch/launch_experiments_{layer}.py {place.words(layer)}"
        about = "every case ran and equals A·B exactly"
        yield Program(f"step3.{layer}", about, f"{line} > {text}.txt")
        line = f"python plots/plot_{layer}.py -o {figure} < {text}.txt"
        yield Program(f"step4.{layer}", "the figure of these cases", line)


def elsewhere(place: Place) -> Iterator[Program]:
    """What needs a package or hardware that not everyone has."""
    dtensor = get_peer("dtensor").available()
    line = f"drbench sweep {DTENSOR} {place.words(DTENSOR)}"
    yield Program("X.dtensor", "DTensor's lines", line, "" if dtensor.ok else dtensor.what)
    line = "drbench run -p 2 -m 2Ki -n 2Ki -k 2Ki --preset column --backend cupy"
    missing = "" if importlib.util.find_spec("cupy") else "CuPy is not installed"
    yield Program("X.gpu", "a verified case on a GPU", line, missing)


# -- the committed records


def measured_rows(place: Place) -> Iterator[Check]:
    """The measured rows make sense."""
    from plots.select.records import read_records

    paths = sorted((place.results / "measured").rglob("*.csv"))  # others are of benchmarks
    ours = (path for path in paths if path.read_text("utf-8").startswith("schema_version,"))
    table = read_records(ours)
    inexact = (table.fill == "integer") & (table.error.fillna(0) != 0)
    impossible = ~(table.best_s <= table.median_s * (1 + 1e-12))
    odd = (table.status == "ok") & (inexact | impossible)
    odd |= table.status.isin(["wrong", "failed"])
    yield Check(
        "R.rows",
        "every measured row was verified, none is wrong, failed, or best above its median",
        passed(len(table) > 0 and not odd.any()),
        f"{READ}: results/measured",
        f"{odd.sum()} odd rows of {len(table)}",
        "0 odd rows",
        command="drbench report results/measured/*/*",
    )


def simulations(place: Place) -> Iterator[Check]:
    """The committed simulations, made again."""
    for path in sorted((place.results / "simulated").glob("*-*.csv")):
        layer, _, machine_name = path.stem.partition("-")
        name, again = f"R.{path.stem}", (*LAYERS, *["lowering"] * (not place.quick))
        if layer not in again or not place.wants(name):
            continue
        machine, worst = find_machine(machine_name), 0.0
        records = [record for record in read_csv(path) if record.status == "ok"]
        for record in records:
            now = predict(case_of(record), machine, record.ranks)
            same = now.status == "ok" and now.moved_bytes == record.moved_bytes
            worst = max(worst, abs(now.best_s / record.best_s - 1) if same else np.inf)
        yield Check(
            name,
            "simulated again: same times, same bytes",
            passed(worst <= SIMULATED_SHARE and len(records) > 0),
            f"simulated here, compared with results/simulated/{path.name}",
            f"{len(records)} rows, times at most {worst:.1g} apart, inf where bytes differ",
            f"times within {SIMULATED_SHARE:g}, bytes exactly",
            command=f"drbench sweep {layer} --simulate --machine {machine_name} --out DIR",
        )


def _name(paper: Paper, study: str) -> str:
    """As R.overlap-flux8, and R.ledger."""
    return f"R.{'-'.join([*Path(paper.folder).parts[1:], study])}"


def studies(place: Place) -> Iterator[Check]:
    """The studies of papers, made again; those that are quick if it is to be quick."""
    for paper in papers().values():
        for study in paper.quick if place.quick else paper.studies:
            name = _name(paper, study)
            if not place.wants(name):
                continue
            path, again = place.results / paper.folder / f"{study}.csv", place.out / f"{study}.csv"
            paper.write_study(study, again)
            lines, found = (each.read_text().splitlines() for each in (path, again))
            same = sum(one == other for one, other in zip(lines, found)) - 1
            yield Check(
                name,
                "made again: the same rows",
                passed(lines == found),
                f"simulated here, compared with results/{path.relative_to(place.results)}",
                f"{same} rows the same",
                f"{len(lines) - 1} rows the same",
                command=f"python -m launch.papers DIR {study}",
            )


def pages(place: Place) -> Iterator[Program]:
    """The tables of the pages and the figures are those of the records."""
    about = "every table of README, ARTIFACT and docs/ is what its records give"
    yield Program("R.numbers", about, "python -m benchmarks pages")
    about = "every committed figure, drawn again, draws the same"
    yield Program("R.figures", about, "python -m plots.committed --check")


# -- claims


def claims(place: Place) -> Iterator[Check]:
    """Every claim that committed records can check."""
    with open(place.results / EXPECTED, newline="") as file:
        expected = {row["claim"]: row for row in csv.DictReader(file) if place.wants(row["claim"])}
    differ, found = [], 0
    for paper in papers().values():
        for verdict in paper.verdicts(place.results, place.wants):
            found += 1
            yield of_claim(verdict)
            row = expected.pop(verdict.claim.name, {"verdict": "none", "ours": ""})
            was = f"{row['verdict']}: {row['ours']}"
            if not same_text(f"{verdict.word}: {verdict.ours}", was):
                differ.append(f"{verdict.claim.name} was {was}")
    differ += [f"there is no {name}" for name in expected]
    if found or differ:
        yield Check(
            "R.claims",
            "verdicts and numbers of these claims are those that the documentation gives",
            passed(not differ),
            READ,
            "; ".join(differ) or f"{found} the same",
            f"as in results/{EXPECTED}, numbers within {NUMBERS_SHARE:.0%} or one of the last "
            "digit",
            command="drbench artifact --only P,M,F,T,S",
        )


def of_claim(verdict: Verdict) -> Check:
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
        claim.see,
    )


def steps() -> dict[Callable[[Place], Iterator[Check | Program]], list[str]]:
    """What is checked, in order, and beginnings of the names of its checks."""
    every = papers().values()
    return {
        setup: ["step1"],
        launching: ["step2"],
        experiments: ["step3", "step4"],
        measured_rows: ["R.rows"],
        simulations: ["R.mlp", "R.lowering"],
        studies: [_name(paper, study) for paper in every for study in paper.studies],
        pages: ["R.numbers", "R.figures"],
        elsewhere: ["X"],
        claims: [claim.name for paper in every for claim in paper.claims],
    }


def check_records(results: Path) -> None:
    """A MissingError if the committed records are not there, as in a wheel."""
    if not (results / EXPECTED).is_file():
        raise MissingError(
            f"no {results / EXPECTED}: the artifact is checked in a checkout with its results/. "
            "Clone the repository of drbench, and run it there."
        )


def check_artifact(
    place: Place, begins: Callable[[str], None] = lambda about: None
) -> Iterator[Check]:
    """Check all that is wanted; a step that breaks is a FAIL of its own. Before each step
    ``begins`` is called with what it checks.

    Raises
    ------
    MissingError
        If the committed records are not there.
    """
    check_records(place.results)
    place = replace(place, out=place.out.resolve())  # programs run in the checkout
    for step, names in steps().items():
        if not place.wants_some(names):
            continue
        about = (step.__doc__ or "").partition("\n")[0].rstrip(".")
        begins(about)
        try:
            for check in step(place):
                if step is claims or place.wants(check.name):
                    yield check.check(place) if isinstance(check, Program) else check
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            what = " ".join(str(error).split()) or type(error).__name__
            yield Check(names[0], about, "FAIL", HERE, what, "it can be checked")
