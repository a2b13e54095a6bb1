"""Draw the committed figures again from the committed records.

``results/figures.toml`` lists them. Each is an ``.svg`` with a description of its content inside
(:mod:`drbench.plots.draw.description`); ``--check`` writes nothing and shows the difference of each
description from a new one. Exit code 1 if there is one.
"""

import argparse
import io
import shlex
import sys
import tomllib
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pandas import read_csv

import drbench.launch.papers  # noqa: F401  (its figures)
from benchmarks.model.tables import draw as draw_tables
from drbench.launch.commands.cli import main as command_line
from drbench.plots.draw.description import describe_picture
from drbench.plots.draw.page import save
from drbench.plots.draw.svg import description_in
from drbench.plots.registry import find
from drbench.plots.select.cases import Options

ROOT = Path(__file__).parents[1]
LIST = "results/figures.toml"


#: Figures of benchmarks, by name, from their table.
OWN = {"gpu-accuracy": lambda path: draw_tables(read_csv(path))}
OWN_SUMMARIES = {"gpu-accuracy": "predicted over measured times of GPU kernels, by machine"}


@dataclass(frozen=True)
class Committed:
    """An entry of the list: ``file`` and ``inputs`` are paths from the root, ``file`` without its
    suffix; ``explain`` has the options of commands, whose data are further inputs."""

    figure: str
    file: str
    inputs: list[str] = field(default_factory=list)
    explain: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    def draw(self, root: Path = ROOT) -> Any:
        """matplotlib's figure of the current records and programs."""
        if self.figure in OWN:
            return OWN[self.figure](root / self.inputs[0])
        figure = find(self.figure)
        with TemporaryDirectory() as folder:
            data = [Path(folder, f"{at}.json") for at in range(len(self.explain))]
            for options, path in zip(self.explain, data):
                explain(options, path)
            source = figure.read([*(root / name for name in self.inputs), *data])
        return figure.make(source, Options(**self.options)).picture

    def description(self, root: Path = ROOT) -> str:
        """The description in the committed file; empty without one."""
        path = root / f"{self.file}.svg"
        return description_in(path.read_text(encoding="utf-8")) if path.is_file() else ""

    def difference(self, root: Path = ROOT) -> list[str]:
        """The lines in which the committed description and a new one differ."""
        name = f"{self.file}.svg"
        lines = self.description(root).splitlines(), describe_picture(self.draw(root)).splitlines()
        return list(unified_diff(*lines, name, f"{name}, drawn now", "", "", 0, ""))


def explain(options: str, path: Path) -> None:
    """Run ``drbench explain`` with some options, as a user would.

    Raises
    ------
    ValueError
        If it fails.
    """
    with redirect_stdout(io.StringIO()):
        code = command_line(["explain", *shlex.split(options), "--save", str(path)])
    if code:
        raise ValueError(f"drbench explain {options}: exit code {code}")


def committed(root: Path = ROOT) -> list[Committed]:
    """Every figure of the list.

    Raises
    ------
    ValueError
        If the list does not parse, or an entry has other keys.

    Examples
    --------
    >>> [entry.figure for entry in committed() if entry.file.endswith("llm-weak")]
    ['llm-weak']
    """
    path = root / LIST
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))["figure"]
        return [Committed(**entry) for entry in entries]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}. Its first lines describe an entry.") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw or compare the committed figures; the exit code: 0, or 1 if one differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks figures", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, show differences")
    parser.add_argument("files", nargs="*", help=f"these files of {LIST} (default: all)")
    asked = parser.parse_args(arguments)
    every = committed()
    unknown = {*asked.files} - {figure.file for figure in every}
    if unknown:
        parser.error(f"{LIST} has no file {', '.join(sorted(unknown))}")
    lines = []
    for figure in every:
        if asked.files and figure.file not in asked.files:
            continue
        if asked.check:
            lines += figure.difference()
        else:
            (path,) = save(figure.draw(), ROOT / figure.file, [".svg"])
            print(path.relative_to(ROOT))
    print(*lines, sep="\n", end="\n" * bool(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
