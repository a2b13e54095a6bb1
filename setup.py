"""Names the version by the tag or commit, and puts both into wheels and source distributions, so
that records of two builds can be told apart. All else is in pyproject.toml."""

import json
import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

PATH = Path(__file__).resolve().parent / "drbench/version.py"
VERSION = runpy.run_path(str(PATH))["read_version"]()


def write_version(folder: str) -> None:
    """Write the version and the commit into a copy of the packages."""
    path = Path(folder, "drbench/version.json")
    path.write_text(json.dumps(VERSION), encoding="utf-8")


class Build(build_py):
    """Copies the packages; an editable installation has none, and asks git."""

    def run(self):
        super().run()
        if not self.editable_mode:
            write_version(self.build_lib)


class Source(sdist):
    """Copies the files of a source distribution."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        write_version(base_dir)


setup(version=VERSION["version"], cmdclass={"build_py": Build, "sdist": Source})
