"""Puts the commit into wheels and source distributions, so that records of two builds can be told
apart. All else is in pyproject.toml."""

import json
import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

PATH = Path(__file__).resolve().parent / "drbench/version.py"
COMMIT = runpy.run_path(str(PATH))["git_state"]()


def write_commit(folder: str) -> None:
    """Write the commit into a copy of the packages."""
    if COMMIT["commit"]:
        path = Path(folder, "drbench/commit.json")
        path.write_text(json.dumps(COMMIT), encoding="utf-8")


class Build(build_py):
    """Copies the packages; an editable installation has none, and asks git."""

    def run(self):
        super().run()
        if not self.editable_mode:
            write_commit(self.build_lib)


class Source(sdist):
    """Copies the files of a source distribution."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        write_commit(base_dir)


setup(cmdclass={"build_py": Build, "sdist": Source})
