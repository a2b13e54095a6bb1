"""The artifact, checked: the steps of the paper's appendix, the committed records, and the claims
that they show.

Each check says where its number is from, what was expected and found, and the command that shows
it. A claim is compared with the paper, whose number and threshold stand beside ours; the check
``R.claims`` compares its verdict and numbers with those that the documentation gives
(``results/claims.csv``).
"""

import csv
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from drbench.common import shared_memory_free
from drbench.errors import MissingError
from drbench.host.cores import usable_cores
from drbench.measure.record_file import read_csv
from launch.host.files import ROOT
from launch.host.kernels import without_pins
from launch.host.memory import available_memory
from launch.peers import get_peer
from launch.sweeps.estimate import estimated
from launch.sweeps.plan import SweepRequest, plan_cases
from launch.sweeps.rounds import Job

from . import papers
from .claims import Verdict

#: The committed verdicts.
EXPECTED = "claims.csv"
#: Numbers of a claim may differ by this share from the committed ones, or by one of the last digit.
NUMBERS_SHARE = 0.01
#: Simulated times may differ by this share: the same floating-point work on another processor.
SIMULATED_SHARE = 1e-6
_LONGEST_S = 3600
#: The paper's experiments are run at the first of these scales that memory and time allow, on as
#: many ranks as there are cores, but no more than this.
SCALES, MOST_RANKS = ("1/16", "1/32", "1/64"), 4
#: The sweeps that are run: of the figures' layers, and of DTensor.
LAYERS, DTENSOR = ("mlp1", "mlp2"), "mlp1-dtensor"
#: What the experiments may take with ``--quick``, as estimated.
EXPERIMENTS_S = 60.0
#: Of each case, with ``--quick``: three repeats, of which there is a median.
QUICK = {"iters": 3, "budget": 0.0}
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


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
    scale : str
        Of the sweeps that are run, as a share of the paper's size.
    """

    out: Path
    quick: bool = True
    results: Path = ROOT / "results"
    only: tuple[str, ...] = ()
    scale: str = SCALES[0]

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
        return not self.only or any(
            _begins(o, name) or _begins(name, o) for o in self.only for name in names
        )

    @property
    def ranks(self) -> int:
        """Ranks that the steps start: one a core, two at least and four at most."""
        return max(2, min(MOST_RANKS, usable_cores()))

    def run(self, *words: str, to: Path | None = None, given: Path | None = None):
        """Run a Python program from the checkout; what it wrote, as text. With ``to`` its output
        goes into that file, and what it says of its progress to standard error."""
        with open(to or os.devnull, "w") as out, open(given or os.devnull) as source:
            return subprocess.run(
                [sys.executable, *words],
                stdin=source,
                stdout=out if to else subprocess.PIPE,
                stderr=None if to else subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env=without_pins(),
                timeout=_LONGEST_S,
            )

    def drbench(self, *words: str):
        """Run drbench, as :meth:`run` does."""
        return self.run("-m", "drbench", *words)


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


def setup(place: Place) -> Iterator[Check]:
    """Step 1: it runs."""
    yield _ran(place, "step1.doctor", "the machine can run it", "doctor")
    words = f"run -p {place.ranks} -m 64 -n 3072 -k 768 --preset column --stationary C"
    for transport in ("auto", "rma"):
        about = f"a verified case, transport {transport}"
        yield _ran(place, f"step1.{transport}", about, f"{words} --transport {transport}")


def launching(place: Place) -> Iterator[Check]:
    """Step 2: the launch mechanism; each shipped launcher makes a job script that bash reads."""
    from launch.cases.launchers import load_launcher
    from launch.cases.sweep_values import shipped

    for name in shipped("machines"):
        if not load_launcher(name).words:
            continue
        out = place.out / f"jobs-{name}"
        line = f"sweep mlp1-small -p 12 --launcher {name} --jobs slurm --parts 2 --yes --out {out}"
        done = place.drbench(*line.split())
        scripts = sorted(out.rglob("*.sbatch"))
        read = [subprocess.run(["bash", "-n", script], capture_output=True) for script in scripts]
        good = scripts and not any(each.returncode for each in [done, *read])
        expected = "written, and bash reads it"
        found = f"exit code {done.returncode}, {len(scripts)} scripts{_last_line(done)}"
        yield Check(
            f"step2.{name}",
            f"a job script for {name}",
            passed(bool(good)),
            "made here",
            expected if good else found,
            expected,
            command=f"drbench {line}",
        )


def experiments(place: Place) -> Iterator[Check]:
    """Steps 3 and 4: the paper's experiments, every case verified, and both figures."""
    from plots.select.records import read_records
    from plots.select.selection import select

    for layer in LAYERS:
        script = f"launch/launch_experiments_{layer}.py"
        words = words_of(place, layer)
        text, stem = place.out / f"{layer}.txt", place.out / f"plot-{layer}"
        done = place.run(script, *words, to=text)
        table = read_records([text])
        exact = ((table.status == "ok") & (table.error == 0)).sum()
        try:
            wanted = len(json.loads((place.out / layer / "sweep.json").read_text())["cases"])
        except (OSError, ValueError, KeyError):
            wanted = 0
        yield Check(
            f"step3.{layer}",
            "every case ran and equals A·B exactly",
            passed(done.returncode == 0 and exact == wanted == len(table) > 0),
            HERE,
            f"{exact} of {len(table)} cases ok, error 0{_last_line(done)}",
            f"{wanted} of {wanted} cases ok, error 0",
            command=f"python {script} {' '.join(words)} > {layer}.txt",
        )
        done = place.run(f"plots/plot_{layer}.py", "-o", str(stem), given=text)
        lines = [
            line for line in select(table, layer) if line.name.startswith("UA") and line.points
        ]
        batches = {len(line.points) for line in lines}
        made = [stem.with_suffix(suffix).is_file() for suffix in (".pdf", ".png")]
        yield Check(
            f"step4.{layer}",
            "the figure: six lines, a point at each batch size",
            passed(
                done.returncode == 0
                and all(made)
                and batches == {table.m.nunique()}
                and len(lines) == 6
            ),
            "drawn here of the records of step 3",
            f"{len(lines)} lines of {'/'.join(map(str, sorted(batches)))} points, "
            + ("PDF and PNG" if all(made) else f"no figure{_last_line(done)}"),
            f"6 lines of {table.m.nunique()} points, PDF and PNG",
            command=f"python plots/plot_{layer}.py -o plot-{layer} < {layer}.txt",
        )


def request_of(place: Place, sweep: str, scale: str) -> SweepRequest:
    """One of the sweeps that are run here, at a scale."""
    repeats = tuple(QUICK.items()) if place.quick else ()
    return SweepRequest(sweep, place.ranks, str(place.out / sweep), scale, repeats)


def words_of(place: Place, sweep: str) -> list[str]:
    """What follows the name of one of the sweeps that are run here, on the command line."""
    return [*request_of(place, sweep, place.scale).arguments()[3:], "--fresh"]


def jobs_of(place: Place, scale: str) -> list[Job]:
    """The jobs that are run here at a scale; those of DTensor only where it is."""
    sweeps = [*LAYERS, *[DTENSOR] * get_peer("dtensor").available().ok]
    return [job for name in sweeps for job in plan_cases(request_of(place, name, scale)).jobs]


def fitting_scale(place: Place) -> str:
    """The first of :data:`SCALES` at which matrices fit into the memory of this machine, stored
    whole on every rank, and ``--quick`` into :data:`EXPERIMENTS_S` at the rate of its cores; the
    last if none does."""
    shared = shared_memory_free()
    room = min(available_memory() // 4, *([] if shared is None else [shared]))
    for scale in SCALES[:-1]:
        jobs = jobs_of(place, scale)
        shapes = [(job.case.m, job.case.n, job.case.k) for job in jobs]
        elements = max(m * k + k * n + m * n for m, n, k in shapes)
        short = not place.quick or estimated(jobs).time_s <= EXPERIMENTS_S
        if short and place.ranks * elements * np.dtype("float32").itemsize <= room:
            return scale
    return SCALES[-1]


# -- the committed records


def measured_rows(place: Place) -> Iterator[Check]:
    """The measured rows make sense."""
    read, odd = 0, []
    for path in sorted((place.results / "measured").rglob("*.csv")):
        if not path.read_text(encoding="utf-8").startswith("schema_version,"):
            continue  # a table of a benchmark
        try:
            table = frame_of(path)
        except ValueError as error:
            odd.append(f"{path.relative_to(place.results)}: {error}")
            continue
        ok = table[table.status == "ok"]
        read += len(table)
        inexact = ok[(ok.fill == "integer") & ~(ok.error.fillna(0) == 0)]
        wrong = table[table.status.isin(["wrong", "failed"])]
        impossible = ok[~(ok.best_s <= ok.median_s * (1 + 1e-12))]
        odd += [
            f"{path.relative_to(place.results)}: {len(found)} rows {what}"
            for found, what in (
                (inexact, "with an error"),
                (wrong, "wrong or failed"),
                (impossible, "whose best is above their median"),
            )
            if len(found)
        ]
    yield Check(
        "R.rows",
        "every measured row was verified, none is wrong or failed",
        passed(not odd and read > 0),
        f"{READ}: results/measured",
        "; ".join(odd) if odd else f"0 odd rows of {read}",
        "0 odd rows",
        command="drbench report results/measured/*/*",
    )


def frame_of(*paths):
    """The table of some result files."""
    from plots.select.records import read_records

    return read_records(paths)


def simulations(place: Place) -> Iterator[Check]:
    """The committed simulations, made again."""
    from launch.cases.machine_models import find_machine
    from launch.models.predict import predict

    from .accuracy import case_of

    for path in sorted((place.results / "simulated").glob("*-*.csv")):
        layer, _, machine_name = path.stem.partition("-")
        if layer not in (LAYERS if place.quick else (*LAYERS, "lowering")):
            continue
        if not place.wants(f"R.{path.stem}"):
            continue
        machine, worst, off, records = find_machine(machine_name), 0.0, 0, read_csv(path)
        for record in records:
            if record.status != "ok":
                continue
            again = predict(case_of(record), machine, record.ranks)
            share = abs((again.best_s or 0) / record.best_s - 1)
            off += share > SIMULATED_SHARE or again.moved_bytes != record.moved_bytes
            worst = max(worst, share)
        yield Check(
            f"R.{path.stem}",
            "simulated again: same times, same bytes",
            passed(off == 0 and len(records) > 0),
            f"simulated here, compared with results/simulated/{path.name}",
            f"{len(records) - off} rows the same, times at most {worst:.1g} apart",
            f"{len(records)} rows the same, times within {SIMULATED_SHARE:g}, bytes exactly",
            command=f"drbench sweep {layer} --simulate --machine {machine_name} --out DIR",
        )


def studies(place: Place) -> Iterator[Check]:
    """The studies of papers, simulated again; those that are quick if it is to be quick."""
    for paper in papers().values():
        for study in paper.quick if place.quick else paper.studies:
            name = f"R.{paper.folder}-{study}"
            if not place.wants(name):
                continue
            again = place.out / f"{study}.csv"
            paper.write_study(study, again)
            path = place.results / "simulated" / paper.folder / again.name
            lines, found = (each.read_text().splitlines() for each in (path, again))
            same = sum(one == other for one, other in zip(lines, found)) - 1
            yield Check(
                name,
                "simulated again: the same rows",
                passed(lines == found),
                f"simulated here, compared with results/simulated/{paper.folder}/{path.name}",
                f"{same} rows the same",
                f"{len(lines) - 1} rows the same",
                command=f"python -m launch.papers DIR {study}",
            )


def documentation(place: Place) -> Iterator[Check]:
    """The tables of the pages are those of the records."""
    done = place.run("-m", "benchmarks", "pages")
    said = (done.stdout or "").strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
    yield Check(
        "R.numbers",
        "every table of README, ARTIFACT and docs/ is what its records give",
        passed(done.returncode == 0),
        READ,
        said[0].rpartition("; ")[2],
        "0 to mend",
        command="make docs-check",
    )


def drawings(place: Place) -> Iterator[Check]:
    """The committed figures draw what the records say."""
    from plots.committed import committed, differences

    odd = list(differences())
    count = len(committed())
    yield Check(
        "R.figures",
        "every committed figure, drawn again, draws the same",
        passed(not odd and count > 0),
        f"drawn here of {READ}",
        f"{count} figures the same" if not odd else f"{len(odd)} lines differ: {odd[0]}",
        f"{count} figures the same: series, points, labels and limits",
        command="python -m plots.committed --check",
    )


def elsewhere(place: Place) -> Iterator[Check]:
    """What needs a package or hardware that not everyone has."""
    dtensor = get_peer("dtensor").available()
    line = " ".join(["sweep", DTENSOR, *words_of(place, DTENSOR)])
    yield _ran(place, "X.dtensor", "DTensor's lines", line, "" if dtensor.ok else dtensor.what)
    missing = "" if importlib.util.find_spec("cupy") else "CuPy is not installed"
    line = "run -p 2 -m 2Ki -n 2Ki -k 2Ki --preset column --backend cupy"
    yield _ran(place, "X.gpu", "a verified case on a GPU", line, missing)


def _ran(place: Place, name: str, about: str, line: str, missing: str = "") -> Check:
    """A command that verifies what it runs; SKIP if something is missing."""
    done = None if missing else place.drbench(*line.split())
    code = done and done.returncode
    return Check(
        name,
        about,
        "SKIP" if missing else passed(code == 0),
        "nothing was run" if missing else HERE,
        missing or f"exit code {code}{_last_line(done)}",
        "exit code 0",
        command=f"drbench {line}",
    )


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


def _last_line(done) -> str:
    """What a command that failed said last, after a colon; its exit code if that was shown."""
    if not done.returncode:
        return ""
    said = (done.stderr or f"exit code {done.returncode}").strip().splitlines()
    return f": {said[-1].strip()}" if said else ""


#: What is checked, in order: beginnings of the names of its checks, of none those of claims.
STEPS: dict[Callable[[Place], Iterator[Check]], tuple[str, ...]] = {
    setup: ("step1",),
    launching: ("step2",),
    experiments: ("step3", "step4"),
    measured_rows: ("R.rows",),
    simulations: ("R.mlp", "R.lowering"),
    studies: ("R.tpuv4-llm", "R.overlap"),
    documentation: ("R.numbers",),
    drawings: ("R.figures",),
    elsewhere: ("X",),
    claims: (),
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
    claimed = [claim.name for paper in papers().values() for claim in paper.claims]
    steps = [step for step, names in STEPS.items() if place.wants_some(names or claimed)]
    if {experiments, elsewhere} & {*steps}:
        place = replace(place, scale=fitting_scale(place))
    for step in steps:
        about = (step.__doc__ or "").partition("\n")[0].rstrip(".")
        begins(about)
        try:
            yield from (check for check in step(place) if place.wants(check.name) or step is claims)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            what = " ".join(str(error).split()) or type(error).__name__
            name = (*STEPS[step], "R.claims")[0]
            yield Check(name, about, "FAIL", HERE, what, "it can be checked")
