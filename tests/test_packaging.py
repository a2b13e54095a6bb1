"""The Spack recipe and the container recipe, read without Spack and Apptainer; CITATION.cff; the
metadata of the wheel."""

import re
import runpy
import shlex
import sys
import tomllib
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from begun import begun

from algorithms import algorithms
from drbench import __version__
from launch.cases.case import FIELDS
from launch.commands.cli import cli
from partitions import PRESETS
from plots.registry import figures

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SPACK = ROOT / "packaging/spack/spack_repo/drbench"
CONTAINER = (ROOT / "containers/drbench.def").read_text(encoding="utf-8")
#: Sections of definition files of Apptainer 1.2.
SECTIONS = (
    "help setup files labels post environment runscript startscript test arguments "
    "pre applabels apphelp apprun appinstall appenv apptest appfiles"
).split()
#: Algorithms without a paper: baselines of this suite, and what PyTorch does.
NO_PAPER = {"dtensor_mm", "moe_collective"}


def bounds(lines: list[str]) -> dict[str, str]:
    """Names of packages with their least versions, of requirements as ``name>=1.2``."""
    return dict(re.match(r"([\w.-]+)(?:\[\w+\])?>=([\d.]+)$", line).groups() for line in lines)


# -- Spack


@pytest.fixture
def recipe(monkeypatch):
    """The directives of the recipe as (name, words), and its class, by a Spack that notes them."""
    noted, words = [], {}

    def directive(name):
        return lambda *args, **more: noted.append((name, args, words | more))

    @contextmanager
    def within(**more):
        before = dict(words)
        words.update(more)
        yield
        words.clear()
        words.update(before)

    module = ModuleType("spack.package")
    for name in ("version", "depends_on", "license", "variant", "maintainers", "conflicts"):
        setattr(module, name, directive(name))
    module.default_args, module.when = within, lambda spec: within(when=spec)
    base = ModuleType("spack_repo.builtin.build_systems.python")
    base.PythonPackage = type("PythonPackage", (), {})
    monkeypatch.setitem(sys.modules, "spack.package", module)
    monkeypatch.setitem(sys.modules, base.__name__, base)
    for name in ("spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    found = runpy.run_path(str(SPACK / "packages/py_drbench/package.py"))["PyDrbench"]
    return noted, found


def depended_on(noted, **wanted) -> dict[str, str]:
    """Packages of depends_on with their least versions."""
    specs = (
        args[0]
        for name, args, words in noted
        if name == "depends_on" and all(words.get(key) == each for key, each in wanted.items())
    )
    return {spec.partition("@")[0]: spec.partition("@")[2].split(":")[0] for spec in specs}


def test_the_spack_recipe_has_the_version_and_the_license_of_the_project(recipe):
    noted, found = recipe
    by_name = {name: args for name, args, _ in noted}
    assert by_name["version"] == (__version__,)
    assert by_name["license"] == (PROJECT["license"],)
    assert found.__doc__.rstrip(".") == PROJECT["description"].rstrip(".")


def test_the_spack_recipe_depends_on_what_the_project_depends_on(recipe):
    noted, _ = recipe
    wanted = {f"py-{name}": version for name, version in bounds(PROJECT["dependencies"]).items()}
    wanted["python"] = PROJECT["requires-python"].removeprefix(">=")
    assert depended_on(noted, type=("build", "run")) == wanted
    assert depended_on(noted, type="build") == {"py-setuptools": "77"}
    assert depended_on(noted, type="run", when=None) == {"mpi": ""}
    cuda = bounds(PROJECT["optional-dependencies"]["cuda12"])
    assert depended_on(noted, when="+cuda") == {
        "py-cupy": cuda["cupy-cuda12x"],
        "py-ml-dtypes": cuda["ml_dtypes"],
    }


def test_the_spack_recipe_imports_and_runs_what_there_is(recipe, monkeypatch):
    _, found = recipe
    for name in found.import_modules:
        assert (ROOT / name.replace(".", "/") / "__init__.py").is_file()
    called = []
    monkeypatch.setitem(
        found.test_run.__globals__, "which", lambda *_, **__: lambda *words: called.append(words)
    )
    found.prefix = type("Prefix", (), {"bin": ""})
    found.test_run(found())
    assert [begun(words, monkeypatch) for words in called] == [0]


# -- the container


def sections() -> dict[str, list[str]]:
    """The sections of the definition file, and its header as ``""``."""
    found: dict[str, list[str]] = {"": []}
    name = ""
    for line in CONTAINER.splitlines():
        if line.startswith("%"):
            name = line[1:].strip()
            assert name in SECTIONS and name not in found
            found[name] = []
        elif line.strip() and not line.lstrip().startswith("#"):
            found[name].append(line.strip())
    return found


def test_the_definition_file_has_a_header_and_known_sections():
    header = dict(line.split(": ") for line in sections()[""])
    assert header.keys() == {"Bootstrap", "From"} and header["Bootstrap"] == "docker"
    python = re.fullmatch(r"python:(\d\.\d+)-slim-trixie", header["From"])[1]
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]


def test_the_extras_of_the_container_are_those_of_the_project():
    arguments = dict(line.split("=") for line in sections()["arguments"])
    assert {*re.findall(r"\{\{ (\w+) \}\}", CONTAINER)} == {*arguments}
    given = [*arguments.values(), *re.findall(r"extras=([\w,]+)", CONTAINER)]
    assert {*",".join(given).split(",")} <= {*PROJECT["optional-dependencies"]}


@pytest.mark.parametrize("section", ["test", "help"])
def test_the_commands_of_the_container_are_taken(section, monkeypatch):
    text = "\n".join(sections()[section])
    lines = re.findall(r"(?m)(?:^|drbench\.sif )drbench (\w+ .*|doctor)$", text)
    assert lines
    for line in lines:
        name, *words = shlex.split(line)
        command = cli.get_command(cli.make_context("drbench", [name]), name)
        assert command.make_context(name, [*words], resilient_parsing=True)
        if name == "run" and "cupy" not in words:
            assert begun([name, *words], monkeypatch) == 0


def test_what_the_container_makes_is_on_its_path():
    found = sections()
    (folder,) = re.findall(r"-m venv (\S+)", "\n".join(found["post"]))
    for section in ("environment", "test"):
        assert any(f"PATH={folder}/bin:" in line for line in found[section])
    assert found["runscript"] == ['exec drbench "$@"']


# -- citation and metadata


def test_every_algorithm_and_preset_of_a_paper_has_its_reference():
    notes = re.findall(r'(?m)^    notes: "(.*)"$', (ROOT / "CITATION.cff").read_text("utf-8"))
    named = set(re.findall(r"[\w.-]+", " ".join(notes)))
    assert {*algorithms()} - NO_PAPER <= named
    of_papers = {name for name, each in PRESETS.items() if re.search(r"et al|et al\.", each.source)}
    assert of_papers <= named


def test_a_reference_has_title_authors_and_year():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    references = text.partition("references:\n")[2].split("\n  - type: ")[1:]
    assert len(references) >= 13
    for each in references:
        assert re.search(r'\n    title: ".+"', each) and re.search(r"\n    year: \d{4}\n", each)
        assert "\n      - {" in each
    dois = re.findall(r"(?m)^    doi: (.*)$", text)
    assert len({*dois}) == len(dois) and all(re.fullmatch(r"10\.\d{4,5}/\S+", doi) for doi in dois)


def test_the_addresses_of_the_project_are_papers_of_the_citation():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    for label, address in PROJECT["urls"].items():
        assert label.startswith("Paper: ") and len(label) <= 32  # PyPI takes no longer ones
        assert f"doi: {address.removeprefix('https://doi.org/')}\n" in text
        assert f'title: "{label.removeprefix("Paper: ")}' in text


# -- the changelog


def removed() -> list[str]:
    """The items of the changelog that name what is gone."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    section = text.partition("### Removed\n")[2].partition("\n### ")[0]
    return re.split(r"\n- ", "\n" + section.strip())[1:]


def test_the_changelog_is_short_and_each_removal_names_a_way_on():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 125
    ways = (": use ", ": leave ", ": take ", ": nothing ", ": a lock ", ": refused ")
    assert removed() and all(any(way in item for way in ways) for item in removed())


def test_what_the_changelog_recommends_exists():
    """Options of commands, ``-o`` of algorithms and of every run, figures; commands are those of
    tests/test_docs.py."""
    group = cli.make_context("drbench", ["list"])
    commands = [cli.get_command(group, name) for name in cli.list_commands(group)]
    flags = {flag for each in commands for option in each.params for flag in option.opts}
    names = {name for each in algorithms().values() for name in each.options} | {*FIELDS}
    ways = [way for item in removed() for way in re.findall(r"(?s): use (.*?\.)(?= |$)", item)]
    rows = re.findall(r"(?m)^\| [^|]*`[^|]*\| ([^|]+) \|$", "\n".join(removed()))
    assert len(rows) > 10
    used = " ".join([*ways, *rows])
    spans = re.findall(r"`([^`]+)`", used)
    assert len(spans) > 40
    for span in spans:
        for flag in re.findall(r"(?:^|\s)(--[a-z][\w-]*|-[a-z])\b", span):
            assert flag in flags
        for name in re.findall(r"-o (\w+)=", span):
            assert name in names | {"rounds"}
        if span.startswith("overlap-"):
            assert span in figures()
