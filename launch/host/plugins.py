"""Plugins: files and modules of users that add algorithms, partitions and libraries.

A file registers its additions when it is imported: :func:`drbench.algorithms.registry.algorithm`,
:func:`drbench.partitions.partition_kind`, :func:`drbench.launch.libraries.add_library`. Plugins are
given by ``--plugin``, the variable ``DRBENCH_PLUGINS``, and the entry points ``drbench.plugins`` of
installed packages.
"""

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from drbench.algorithms import algorithms
from drbench.errors import UsageError

from .mpi import started_by_us

#: Variable with files and modules, separated as in PATH; also set for ranks that are started here.
VARIABLE = "DRBENCH_PLUGINS"


def load_plugins(given: Iterable[str] = ()) -> None:
    """Import the given plugins, and those of the environment and of installed packages.

    Parameters
    ----------
    given : iterable of str
        Files (``mine.py``), or names of modules. Ranks that this process starts get them through
        the environment.

    Raises
    ------
    UsageError
        If a plugin cannot be found, or with the error of its import.
    """
    names = [*filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)), *given]
    if not started_by_us():  # else the environment has them already
        names += _installed()
    names = [os.path.abspath(name) if name.endswith(".py") else name for name in names]
    if names:
        algorithms()  # first, so that drbench's own names are taken
    for name in dict.fromkeys(names):
        try:
            _load(name)
        except (Exception, SystemExit) as error:
            why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise UsageError(f"plugin {name}: {why}. Fix it, or leave it out.") from error
    if names:
        os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys(names))


def _installed() -> list[str]:
    """Modules in the entry points of installed packages; the packages are found without importing
    importlib.metadata, which takes longer than everything else that a command imports."""
    files = (file for path in sys.path for file in Path(path).glob("*-info/entry_points.txt"))
    if not any(b"[drbench.plugins]" in file.read_bytes() for file in files):
        return []
    from importlib.metadata import entry_points

    return [entry.value for entry in entry_points(group="drbench.plugins")]


def _load(name: str) -> None:
    """Import a file, under a name made of its path, or a module."""
    if not name.endswith(".py"):
        importlib.import_module(name)
        return
    known = "drbench_plugin" + re.sub(r"\W", "_", name)
    if known in sys.modules:
        return
    if not Path(name).is_file():
        raise UsageError("there is no such file")
    spec = importlib.util.spec_from_file_location(known, name)
    module = sys.modules[known] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[known]
        raise
