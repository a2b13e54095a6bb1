"""Is the choice of ``drbench tune --measure`` the fastest of its candidates? 2 ranks here.

    python -m benchmarks model.tune --out results/measured/NAME/tune

Calibrates this machine. Then, for each of six problems: ``tune --measure`` chooses; every program
among its candidates runs, and again and again those that may be the fastest; and the choice runs
again with the best three of them, interleaved in 15 rounds. Ratios are of times of the same round.
``--out`` gets here.toml, the calibration, every.csv, a row a program, and again.csv, a row a run.
Half an hour; it needs a quiet machine.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pandas import DataFrame

from benchmarks.__main__ import parser_of
from benchmarks.core import write_rows
from drbench.errors import CaseFailed
from drbench.launch.cases.case import Case
from drbench.launch.cases.command_line import run_command
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.host.files import ROOT
from drbench.launch.host.kernels import without_pins
from drbench.launch.host.show import console
from drbench.launch.sweeps.experiment import run_rounds
from drbench.launch.sweeps.supervisor import Settings
from drbench.launch.tune.bound import Candidates
from drbench.launch.tune.costs import ByTime
from drbench.launch.tune.rank import tune
from drbench.launch.tune.ratios import Ratios
from drbench.launch.tune.request import EFFORT, TuneRequest
from drbench.launch.tune.result import SearchResult
from drbench.measure.decision import over, seconds_of
from drbench.measure.noise import Ratio, ratio_of
from drbench.model.machine import Machine

RANKS, THREADS = 2, 1
#: m, n, k: 50 to 300 ms on two cores.
PROBLEMS = {
    "square": (2048, 2048, 2048),
    "tall": (8192, 1024, 1024),
    "flat": (4096, 4096, 512),
    "large k": (1024, 1024, 8192),
    "MLP-1": (2048, 4096, 1024),
    "MLP-2": (2048, 1024, 4096),
}
#: Another option of ``tune``: every matrix is stored once, so that some matrix moves.
ALGORITHMS, REPLICATION = ("universal", "collective", "summa", "wang"), "none"
#: Rounds of the choice and of the best programs, and how many of these.
AGAIN, BEST = 15, 3
#: The most that the choice's time may be over the fastest's.
BAR = 1.02
CHOICE = "choice"


class ChoiceVerdict(NamedTuple):
    """The result of the choice on one problem.

    Attributes
    ----------
    fastest : str
        The contender of the smallest median time, the choice or one of the best.
    ratio : Ratio
        The choice's time over the fastest's, in pairs.
    """

    fastest: str
    ratio: Ratio

    @property
    def met(self) -> bool:
        """Whether the median ratio is within the bar, or its interval holds 1.

        Examples
        --------
        >>> [ChoiceVerdict("1", Ratio(*r)).met for r in ((1.01, 1.005, 1.02), (1.1, 0.9, 1.2))]
        [True, True]
        >>> ChoiceVerdict("1", Ratio(1.05, 1.03, 1.07)).met
        False
        """
        return self.ratio.middle <= BAR or not (self.ratio.significant or self.ratio.low is None)


def base_of(problem: str) -> Case:
    """The common fields of all candidates of a problem."""
    return Case(*PROBLEMS[problem], dtype="float32", threads=THREADS, budget=0.0)


def drbench(*words: object) -> str:
    """The output of a command, which must end with 0; its messages are shown on the terminal."""
    command = [sys.executable, "-m", "drbench", *map(str, words)]
    return subprocess.check_output(command, text=True, cwd=ROOT, env=without_pins())


def chosen(problem: str, model: Path) -> Case:
    """The case that ``tune --measure`` chooses."""
    m, n, k = PROBLEMS[problem]
    words = ["tune", "-m", m, "-n", n, "-k", k, "-p", RANKS, "--machine", model]
    words += ["--only", ",".join(ALGORITHMS), "--replication", REPLICATION]
    answer = json.loads(drbench(*words, "--threads", THREADS, "--measure", "--json"))
    place = answer["chosen"] - 1
    request = TuneRequest(
        replace(base_of(problem), budget=Case.budget),
        RANKS,
        ALGORITHMS,
        replication=REPLICATION,
        effort=EFFORT,
        refine=3,
    )
    case = tune(request, find_machine(str(model))).ranking[place].case
    command = answer["ranking"][place]["command"]
    if command != run_command(case, RANKS):
        raise CaseFailed(f"tune prints {command!r} and then {run_command(case, RANKS)!r}")
    return replace(case, budget=0.0)


def measured(cases: Sequence[Case], out: Path, **rounds) -> list[dict[int, float]]:
    """Seconds of each case by round, interleaved; empty for one that was not ok."""
    settings = Settings(environ=without_pins())
    group = [replace(case, iters=1) for case in cases]
    runs = run_rounds(group, RANKS, settings, console(), out, **rounds)
    ok = lambda run: all(record.status == "ok" for record in run.values())
    return [dict(seconds_of(run)) if ok(run) else {} for run in runs]


def every_program(request: TuneRequest, machine: Machine) -> list[Case]:
    """One case of each program among the candidates of a request: those that an unlimited search
    would judge. Candidates with the same program are one; refused and too large ones are left out.
    Communication tiles, look-aheads and other settings of a search are not included.

    Examples
    --------
    >>> request = TuneRequest(Case(64, 64, 64, "row", "row"), 2, ("universal",), replication="none")
    >>> cases = every_program(request, find_machine("h100x8"))
    >>> sorted({(case.c, case.options["stationary"]) for case in cases})
    [('column', 'A'), ('column', 'B'), ('column', 'C'), ('row', 'A'), ('row', 'B'), ('row', 'C')]
    """
    candidates, cases = Candidates(request, ByTime(request, machine), SearchResult()), []
    for source in candidates.sources:
        while source.next < inf:
            cases += [candidate.case for candidate in candidates.take(source, Ratios(), inf)]
    return cases


def run(problem: str, model: Path, work: Path) -> tuple[list[dict], list[dict]]:
    """The rows of every.csv and of again.csv of one problem."""
    sizes = dict(zip("mnk", PROBLEMS[problem]), problem=problem)
    request = TuneRequest(base_of(problem), RANKS, ALGORITHMS, replication=REPLICATION)
    cases = {
        run_command(case, RANKS): case for case in every_program(request, find_machine(str(model)))
    }
    times = dict(zip(cases, measured(list(cases.values()), work / "every", fewest=1, probe=True)))
    rows = [
        sizes
        | {
            "command": command,
            "first_s": run.get(0),
            "median_s": median(run.values()) if run else None,
        }
        for command, run in times.items()
    ]
    ran = sorted(filter(times.get, times), key=lambda name: median(times[name].values()))
    best = sorted(ran, key=lambda name: -len(times[name]))[:BEST]
    choice = chosen(problem, model)
    names = {run_command(choice, RANKS): CHOICE}
    for place, command in enumerate(best, 1):
        names[command] = f"{CHOICE}, {place}" if command in names else str(place)
    group = [cases.get(command, choice) for command in names]
    again = [
        sizes | {"contender": name, "command": command, "turn": turn, "time_s": seconds}
        for (command, name), run in zip(
            names.items(), measured(group, work / "again", fewest=AGAIN)
        )
        for turn, seconds in run.items()
    ]
    return rows, again


def verdicts(again: DataFrame) -> dict[str, ChoiceVerdict]:
    """By problem, from the rows of again.csv.

    Examples
    --------
    >>> times = {"choice": (1.0, 2.0), "1": (0.9, 1.8), "2": (1.2, 2.1)}
    >>> rows = [("tall", who, n, s) for who, own in times.items() for n, s in enumerate(own)]
    >>> columns = ["problem", "contender", "turn", "time_s"]
    >>> verdict = verdicts(DataFrame(rows, columns=columns))["tall"]
    >>> verdict.fastest, f"{verdict.ratio.middle:.3f}"
    ('1', '1.111')
    """
    verdict_of = {}
    for problem, rows in again.groupby("problem", sort=False):
        times = {
            who: own.set_index("turn").time_s for who, own in rows.groupby("contender", sort=False)
        }
        choice = next(who for who in times if who.startswith(CHOICE))
        fastest = min(times, key=lambda who: times[who].median())
        verdict_of[problem] = ChoiceVerdict(fastest, ratio_of(over(times[choice], times[fastest])))
    return verdict_of


def main() -> int:
    """Run all problems; 1 if a bar is not met."""
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the files")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    model = (out / "here.toml").resolve()
    drbench("calibrate", "-p", RANKS, "--threads", THREADS, "--save", model)
    every: list[dict] = []
    again: list[dict] = []
    for name in PROBLEMS:
        with TemporaryDirectory(prefix="drbench-tune-") as work:
            for rows, more in zip((every, again), run(name, model, Path(work))):
                rows += more
        write_rows(out / "every.csv", every)
        write_rows(out / "again.csv", again)
    verdict_of = verdicts(DataFrame(again))
    for problem, verdict in verdict_of.items():
        print(f"{problem}: choice / fastest {verdict.ratio}, {'met' if verdict.met else 'not met'}")
    return int(not all(verdict.met for verdict in verdict_of.values()))


if __name__ == "__main__":
    sys.exit(main())
