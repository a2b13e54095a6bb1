"""Machine files: how ranks are started somewhere. Arguments and environment, never a line for a
shell.

A file in ``launch/data/machines/`` (or any path) has the tables ``[launch]``, ``[environment]`` and
``[modules]``; ``[model…]`` tables belong to the simulator and are not looked at
here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from drbench.errors import UsageError, did_you_mean
from drbench.options import Option
from launch.host.mpi import mpiexec_command

from .sweep_values import check_keys, check_text, read_at, read_toml, require, shipped

#: Launchers by name. ``mpiexec`` is the one that belongs to this Python's MPI.
LAUNCHERS = {
    "mpiexec": (),
    "srun": ("srun", "--ntasks={ranks}", "--input=0", "--kill-on-bad-exit=1"),
    "mpirun": ("mpirun", "-n", "{ranks}"),
    "aprun": ("aprun", "-n", "{ranks}"),
    "flux": ("flux", "run", "-n", "{ranks}"),
}
_SIZES = ("ranks_per_node", "cores_per_node")
_PLACES = ("ranks", "ranks_per_node", "nodes")
#: Names of variables, and options of sbatch, each with its text on the next line.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\n.*", re.ASCII)
#: Slurm reads these lines itself, with quoting of its own.
_SBATCH = re.compile(r"[a-z][a-z0-9-]*\n[A-Za-z0-9_.:,=+@%/-]*", re.ASCII)
_HARMLESS = {
    _VARIABLE: "this is no name of a variable",
    _SBATCH: "only letters, digits and _ . : , = + @ % / - may be in it",
}


@dataclass(frozen=True)
class Launcher:
    """Where and how to start ranks.

    Attributes
    ----------
    name : str
        Goes into records, where no label is given.
    words : tuple of str
        List of words that start ranks, with {ranks}, {ranks_per_node} and {nodes}.
        Empty for this Python's mpiexec.
    ranks_per_node : int or None
        Ranks of a full node.
    cores_per_node : int or None
        Cores that the ranks of a node share, if --threads is not given.
    environment : dict of str to str
        Variables that are set for the ranks.
    modules : tuple of str
        Modules that a job script loads.
    sbatch : dict of str to str
        Table of options of sbatch, without their dashes.
    """

    name: str = "here"
    words: tuple[str, ...] = ()
    ranks_per_node: int | None = None
    cores_per_node: int | None = None
    environment: dict = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    sbatch: dict = field(default_factory=dict)

    def nodes(self, ranks: int) -> int:
        """Nodes for so many ranks.

        Examples
        --------
        >>> Launcher(ranks_per_node=8).nodes(12), Launcher().nodes(12)
        (2, 1)
        """
        return -(-ranks // self.ranks_per_node) if self.ranks_per_node else 1

    def node_of(self, ranks: int) -> list[int]:
        """For each rank the lowest one on its node, nodes being filled in turn.

        Examples
        --------
        >>> Launcher(ranks_per_node=2).node_of(5), Launcher().node_of(2)
        ([0, 0, 2, 2, 4], [0, 0])
        """
        size = self.ranks_per_node or ranks
        return [rank // size * size for rank in range(ranks)]

    def command(self, ranks: int) -> list[str]:
        """The launcher with its arguments, up to the program.

        Examples
        --------
        >>> Launcher(
        ...     words=("srun", "--ntasks={ranks}", "--nodes={nodes}"), ranks_per_node=4
        ... ).command(8)
        ['srun', '--ntasks=8', '--nodes=2']
        """
        if not self.words:
            return mpiexec_command(ranks)
        values = {
            "ranks": ranks,
            "ranks_per_node": min(ranks, self.ranks_per_node or ranks),
            "nodes": self.nodes(ranks),
        }
        value_of = lambda place: str(values[place[1]])
        return [re.sub(r"\{(\w+)\}", value_of, word) for word in self.words]


def load_launcher(text: str | None) -> Launcher:
    """A launcher by its own name, that of a machine by name or path; None is this Python's mpiexec.

    Raises
    ------
    UsageError
        Naming the file and the key.

    Examples
    --------
    >>> load_launcher("flux").words, load_launcher("pvc12").ranks_per_node
    (('flux', 'run', '-n', '{ranks}'), 12)
    """
    if text is None:
        return Launcher()
    check_text(text, "--launcher")
    if text in LAUNCHERS:
        return Launcher(words=LAUNCHERS[text])
    known = shipped("machines")
    path = known.get(text, Path(text))
    if path.suffix != ".toml":
        names = [*LAUNCHERS, *known]
        raise UsageError(
            f"--launcher {text!r}: there are {', '.join(LAUNCHERS)}, those of the machines "
            f"{', '.join(known)}, and files that end in .toml.{did_you_mean(text, names)}"
        )
    table = read_toml(path, f"--launcher takes a file, or one of {', '.join(known)}.")
    return _launcher_of(path.stem, table, path.name)


def _launcher_of(name: str, table: dict, file: str) -> Launcher:
    parts = {key: table.get(key, {}) for key in ("launch", "environment", "modules")}
    for key, value in parts.items():
        require(isinstance(value, dict), f"{file}: {key}", f"a table, as [{key}]", value)
    launch, environment, modules = parts.values()
    check_keys(launch, ("launcher", *_SIZES, "sbatch"), f"{file}: launch.")
    sizes = {
        key: read_at(f"{file}: launch.{key}", [Option(type=int, least=1)], launch[key])
        for key in _SIZES
        if key in launch
    }
    where = f"{file}: launch.launcher"
    words = _words(launch.get("launcher", []), where)
    for place in re.findall(r"\{([^}]*)\}", "\n".join(words)):
        known = ", ".join(f"{{{name}}}" for name in _PLACES)
        require(place in _PLACES, where, f"of {known}", f"{{{place}}}")
    return Launcher(
        name,
        words,
        **sizes,
        environment=_texts(environment, f"{file}: environment", _VARIABLE),
        modules=_words(modules.get("load", []), f"{file}: modules.load"),
        sbatch=_texts(launch.get("sbatch", {}), f"{file}: launch.sbatch", _SBATCH),
    )


def _texts(table, where: str, pattern: re.Pattern) -> dict[str, str]:
    """Texts and numbers by name, which must fit a pattern together."""
    require(isinstance(table, dict), where, "a table", table)
    found = {}
    for key, value in table.items():
        found[key] = check_text(str(value) if type(value) is int else value, f"{where}: {key}")
        if not pattern.fullmatch(f"{key}\n{found[key]}"):
            raise UsageError(f"{where}: {key} = {value!r}: {_HARMLESS[pattern]}.")
    return found


def _words(value, where: str) -> tuple[str, ...]:
    what = 'a list of arguments, as ["srun", "--ntasks={ranks}"]'
    require(isinstance(value, list), where, what, value)
    return tuple(check_text(word, where) for word in value)
