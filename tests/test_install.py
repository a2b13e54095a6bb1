"""drbench finds its own files: in a checkout, and installed from a wheel, far from any checkout."""

import csv
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from benchmarks.layers import imports, modules
from drbench.algorithms import algorithms
from drbench.launch.host.environment import describe
from drbench.version import RELEASE

ROOT = Path(__file__).parents[1]
#: The parts of drbench, which are links in its folder.
PARTS = ("partitions", "algorithms", "launch", "plots")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SIZES = "-m 64 -n 64 -k 64"
pytestmark = pytest.mark.apart
SUFFIXES = {".py", ".cu", ".toml", ".j2", ".html", ".js"}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout: there is no commit")
def test_an_environment_of_a_checkout_names_its_commit():
    described = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    facts = dict.fromkeys("host cpu cores_of_host memory_bytes settings mpi blas".split())
    assert describe([facts], ["mpiexec"])["drbench"]["commit"] == described.stdout.strip()


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A repository of one commit, which is tagged as the release; ours is left as it was."""
    source = tmp_path_factory.mktemp("source")
    for package in ("drbench", *PARTS):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, source / package, symlinks=True, ignore=ignored)
    shutil.copytree(ROOT / "docs", source / "docs")
    shutil.copytree(ROOT / "tests/partitions", source / "tests")  # setuptools would take them
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":  # of a worktree it is a file
            shutil.copy(path, source)
    git = ["git", "-C", source, "-c", "user.name=x", "-c", "user.email=x@y"]
    for words in ("init --quiet", "add .", "commit --quiet --message x", f"tag v{RELEASE}"):
        subprocess.run([*git, *words.split()], check=True)
    return source


@pytest.fixture(scope="module")
def built(source, tmp_path_factory):
    """A folder with the sdist, and the wheel made from it."""
    dist = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, source]
    ended = subprocess.run(build, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return dist


def install(what, site, folder):
    """Install into a folder, and return a command of the installed drbench in another, empty one;
    it returns its output. What drbench needs is that of this Python."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    pip += ["--no-build-isolation", "--target", site, what]
    subprocess.run(pip, check=True, timeout=300)
    environ = {**os.environ, "PYTHONPATH": str(site)}

    def call(words) -> str:
        command = [sys.executable, site / "bin/drbench", *words.split()]
        ended = subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    call.folder, call.site = folder, site
    return call


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """drbench from its wheel."""
    (wheel,) = built.glob("*.whl")
    return install(wheel, tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("elsewhere"))


@pytest.mark.mpi
def test_an_installed_drbench_knows_the_commit_that_it_was_built_from(installed):
    known = json.loads((installed.site / "drbench/version.json").read_text())
    assert re.fullmatch("[0-9a-f]{40}", known["commit"]) and known["dirty"] is False
    assert installed("--version") == f"drbench, version {RELEASE}, commit {known['commit']}\n"
    installed("sweep square -p 1 -o m=8 -o n=8 -o k=8 -o preset=row -o iters=1 -o budget=0 --out s")
    (found,) = (installed.folder / "s").rglob("environment.json")
    assert json.loads(found.read_text())["drbench"] == known


@pytest.mark.mpi
@pytest.mark.parametrize("way", ["sdist", "clone"])
def test_pip_installs_the_same_from_an_sdist_and_from_a_clone(
    way, source, built, installed, tmp_path
):
    (what,) = built.glob("*.tar.gz") if way == "sdist" else [f"git+file://{source}"]
    again = install(what, tmp_path / "site", tmp_path)
    files = lambda site: {
        path.relative_to(site).as_posix(): path.read_bytes()
        for path in (site / "drbench").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert files(again.site) == files(installed.site)
    assert again("--version") == installed("--version")
    again(f"run -p 2 {SIZES}")  # ends with 0 if the result is right


def test_wheel_and_sdist_hold_every_file_of_the_packages_and_no_test(built):
    want = {
        Path("drbench", part, path.relative_to(ROOT / (part or "drbench"))).as_posix()
        for part in ("", *PARTS)
        for path in (ROOT / (part or "drbench")).rglob("*")
        if path.suffix in SUFFIXES or path.name == "py.typed"
    }
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    assert f"-{RELEASE}-" in wheel.name and f"-{RELEASE}.tar" in sdist.name
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert held == want | {"drbench/version.json"}
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
        assert want | {"LICENSE", "README.md", "CITATION.cff", "docs/how-to/run-sweeps.md"} <= held
        assert not any(name.startswith("tests") for name in held)


def test_an_installed_drbench_lists_what_came_with_it(installed):
    listed = installed("list launchers") + installed("list algorithms")
    for path in (ROOT / "launch/data/machines").iterdir():
        assert path.stem in listed
    for name in algorithms():
        assert name in listed


@pytest.mark.mpi
def test_an_installed_drbench_reports_what_this_machine_offers(installed):
    assert "MPI" in installed("doctor")


@pytest.mark.mpi
def test_an_installed_drbench_runs_plots_and_reports(installed):
    installed(f"run -p 2 {SIZES} --csv out.csv --timeline trace.json")
    with open(installed.folder / "out.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["status"] == "ok"
    installed("plot timeline trace.json --save timeline.png")
    assert (installed.folder / "timeline.png").read_bytes().startswith(b"\x89PNG")
    installed("report out.csv --save report.html")
    assert "</html>" in (installed.folder / "report.html").read_text(encoding="utf-8")


def test_an_installed_drbench_plans_predicts_and_expands_its_sweeps(installed):
    assert "Gemm(" in installed(f"plan -p 4 {SIZES} --preset column")
    described = installed(f"simulate -p 4 {SIZES} --machine pvc12 --json")
    assert json.loads(described)["status"] == "ok"
    listed = installed("sweep square -p 4 --dry-run --out none")
    assert "512 × 512 × 512 S-C row" in listed
    assert not (installed.folder / "none").exists()
    installed("sweep square -p 4 --launcher slurm --jobs slurm --out jobs")
    (job,) = (installed.folder / "jobs").glob("*.sbatch")
    assert "#SBATCH" in job.read_text()


def test_the_container_recipe_takes_all_that_the_packages_need():
    recipe = (ROOT / "containers/drbench.def").read_text(encoding="utf-8")
    section = recipe.partition("%files\n")[2].partition("\n%")[0]
    taken = [line.split() for line in section.splitlines() if line]
    assert {"drbench", *PARTS, "LICENSE", "README.md", "pyproject.toml", "setup.py"} == {
        source for source, _ in taken
    }
    assert all(target == f"/opt/drbench-source/{source}" for source, target in taken)


def test_every_package_that_is_imported_is_a_dependency():
    """At module level of ``dependencies``; inside functions, and in ``drbench.torch``, an extra
    will do, or what a peer brings."""
    names = lambda lines: {re.split(r"[>=[]", line)[0].replace("-", "_") for line in lines}
    always = names(PROJECT["dependencies"])
    extras = names(itertools.chain(*PROJECT["optional-dependencies"].values()))
    brought = {"cupy", "cupy_backends", "heat", "nvidia", "nvmath", "pylops_mpi"}
    missing = set()
    for module, path in modules().items():
        of_torch = path.is_relative_to(ROOT / "drbench/torch")
        for name, line, at_module_level in imports(
            module, path.read_text("utf-8"), path.stem == "__init__"
        ):
            top = name.partition(".")[0]
            known = always if at_module_level and not of_torch else always | extras | brought
            if top not in {"drbench"} | sys.stdlib_module_names | known:
                missing.add(f"{path}:{line} {top}")
    assert not missing


def test_the_spack_recipe_depends_on_what_the_project_depends_on():
    recipe = ROOT / "packaging/spack/spack_repo/drbench/packages/py_drbench/package.py"
    text = recipe.read_text("utf-8")
    version = dict(re.findall(r'"(?:py-)?([\w-]+)@([\d.]+):', text))
    wanted = dict(line.split(">=") for line in PROJECT["dependencies"])
    wanted["python"] = PROJECT["requires-python"].removeprefix(">=")
    assert wanted.items() <= version.items() and f'version("{RELEASE}")' in text
