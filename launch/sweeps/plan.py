"""The request of a sweep, and its plan: an experiment of jobs."""

import os
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import NamedTuple

from drbench.errors import DrbenchError
from drbench.launch.cases.case import Case, bind_case
from drbench.launch.cases.launchers import Launcher, load_launcher
from drbench.launch.cases.machine_models import find_machine, model_version
from drbench.launch.cases.sweep_file import CONCURRENT, Sweep, load_sweep, ranks_of
from drbench.mappings import grouped
from drbench.partitions import LayoutError

from .rounds import Experiment, Job
from .store import case_id

#: Attributes that a command to resume does not repeat, or that are not its options.
_ONCE = ("fresh", "retry", "plugins")
#: Fields of the problem: cases that differ in one are not compared.
_PROBLEM = ("m", "n", "k", "dtype", "compute", "transpose", "alpha", "beta")


@dataclass(frozen=True)
class SweepRequest:
    """The request of a sweep; names and values as on the command line.

    Attributes
    ----------
    ranks : int
        For a sweep with several numbers of ranks, the largest.
    override : tuple of (str, str)
        Keys of the file, and replacements of their values.
    part : str
        ``i/n``: every n-th case, from the i-th.
    machine : str or None
        With ``simulate``, the machine model on which times are predicted.
    """

    sweep: str
    ranks: int
    out: str
    scale: str | None = None
    override: tuple[tuple[str, str], ...] = ()
    label: str | None = None
    launcher: str | None = None
    timeout: float = 120.0
    mem_limit: int | None = None
    max_cases: int | None = None
    part: str = "1/1"
    fresh: bool = False
    retry: bool = False
    peak: str | None = None
    stream: bool = False
    simulate: bool = False
    machine: str | None = None
    yes: bool = False
    plugins: tuple[str, ...] = ()
    environ: dict = field(default_factory=lambda: dict(os.environ))

    def arguments(self) -> list[str]:
        """The command line that resumes this sweep."""
        sweep = f"./{self.sweep}" if self.sweep.startswith("-") else self.sweep
        words = ["drbench", *(f"--plugin={plugin}" for plugin in self.plugins), "sweep", sweep]
        words += ["-p", str(self.ranks), f"--out={self.out}"]
        for option in fields(self):
            value, flag = getattr(self, option.name), f"--{option.name.replace('_', '-')}"
            if option.default in (MISSING, value) or option.name in _ONCE:
                continue
            if option.name == "override":
                words += [word for pair in value for word in ("-o", "=".join(map(str, pair)))]
                continue
            words.append(flag if value is True else f"{flag}={value}")
        return words


class SweepPlan(NamedTuple):
    """The plan of a request: the sweep, its launcher, and its jobs in the order of the file, all of
    them and those of the requested part."""

    sweep: Sweep
    launcher: Launcher
    jobs: list[Job]
    mine: list[Job]

    @property
    def counts(self) -> list[int]:
        """The numbers of ranks."""
        return sorted({job.ranks for job in self.jobs})

    @property
    def on_ranks(self) -> str:
        """The numbers of ranks, in words."""
        return f"{', '.join(map(str, self.counts))} rank{'s' * (self.counts != [1])}"

    def experiment(self, jobs: Iterable[Job], simulate: bool = False) -> Experiment:
        """Some of the jobs as an experiment: the cases of one problem are compared, on one number
        of ranks unless the sweep is about these, in a sweep of algorithms only those on the same
        tiles. If the sweep does not say how many rounds, there are rounds wherever there are cases
        to compare. Simulations need none."""
        rounds, by_tiles = self.sweep.rounds, self.sweep.view == "algorithms"

        def problem(job: Job) -> tuple:
            if simulate or rounds == 0 or (rounds != "known" and rounds and len(self.counts) > 1):
                return ()
            own = () if type(rounds) is int else (job.ranks, _tiles(job) if by_tiles else ())
            return (*(getattr(job.case, name) for name in _PROBLEM), *own)

        groups = list(grouped(jobs, problem).values())
        if rounds is None:
            rounds = "known" if any(len(group) > 1 for group in groups) else 0
        return Experiment(groups, 0 if simulate else rounds)

    def part(self, first: int, step: int, simulate: bool = False) -> "SweepPlan":
        """The plan of every ``step``-th case, from the ``first``, counted from 1."""
        experiment = self.experiment(self.jobs, simulate)
        groups = experiment.groups
        if experiment.rounds and len(groups) >= step:  # what is compared stays together
            return self._replace(mine=experiment._replace(groups=groups[first - 1 :: step]).jobs)
        return self._replace(mine=experiment.jobs[first - 1 :: step])


def _tiles(job: Job) -> tuple:
    """The layouts of a case; unique for a refused case, which is compared with nothing."""
    try:
        return tuple(bind_case(job.case, job.ranks)[1].texts.values())
    except (DrbenchError, LayoutError):
        return (job.name,)


def _one_gemm_at_a_time(cases: Iterable[Case]) -> list[Case]:
    """The paper's cases on cores: without the options of its concurrency, and without cases that
    differ from others only by them."""
    return [
        case if case.backend == "cupy" else replace(case, **dict.fromkeys(CONCURRENT))
        for case in cases
        if case.backend == "cupy"
        or all(getattr(case, name) in (None, most) for name, most in CONCURRENT.items())
    ]


def plan_cases(request: SweepRequest) -> SweepPlan:
    """The plan of a request."""
    launcher = load_launcher(request.launcher)
    label, code = request.label, None
    if request.simulate:  # another version of the model is another sweep
        model = find_machine(request.machine)
        label, code = label or model.name, model_version(model)
    elif label is None and launcher.name != "here":
        label = launcher.name
    counts = ranks_of(request.sweep, request.ranks, request.override) or (request.ranks,)
    jobs: list[Job] = []
    for ranks in counts:
        sweep = load_sweep(
            request.sweep, ranks, request.scale, request.override, label, request.simulate
        )
        cases = sweep.cases
        if sweep.paper and not (request.simulate and model.runs_kernels):
            asked = CONCURRENT.keys() & dict(request.override).keys()  # on cores it is refused
            cases = cases if asked else _one_gemm_at_a_time(cases)
        if len(counts) > 1 and not request.simulate:  # cores // ranks would be another problem each
            cases = [
                case if case.backend != "numpy" or case.threads else replace(case, threads=1)
                for case in cases
            ]
        jobs += [Job(case_id(case, ranks, code), ranks, case) for case in cases]
    first, step = map(int, request.part.split("/"))
    return SweepPlan(sweep, launcher, jobs, jobs).part(first, step, request.simulate)
