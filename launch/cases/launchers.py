"""Machine files: how ranks are started somewhere. Arguments and environment, never a line for a
shell.

A file in ``launch/data/machines/`` (or any path) has the tables ``[launch]``, ``[environment]``,
``[modules]`` and ``[site]``; ``[model…]`` tables belong to the simulator and are not looked at
here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from drbench.errors import UsageError, did_you_mean
from launch.host.mpi import mpiexec_command

from .sweep_values import check_keys, check_text, integer, read_toml, require, shipped

#: Launchers by name. ``mpiexec`` is the one that belongs to this Python's MPI.
LAUNCHERS = {
    "mpiexec": None,
    "srun": ("srun", "--ntasks={ranks}", "--input=0", "--kill-on-bad-exit=1"),
    "mpirun": ("mpirun", "-n", "{ranks}"),
    "aprun": ("aprun", "-n", "{ranks}"),
    "flux": ("flux", "run", "-n", "{ranks}"),
}
_LAUNCH_KEYS = ("launcher", "ranks_per_node", "cores_per_node", "gpus_per_node", "sbatch")
_PLACES = ("ranks", "ranks_per_node", "nodes")


@dataclass(frozen=True)
class Launcher:
    """Where and how to start ranks.

    Attributes
    ----------
    name : str
        Goes into records, where no label is given.
    words : tuple of str
        The launcher with its arguments, with ``{ranks}``, ``{ranks_per_node}`` and ``{nodes}``;
        empty for this Python's mpiexec.
    cores_per_node : int or None
        Shared by the ranks of a node in a job, unless threads are asked for.
    environment : dict of str to str
        Set for the ranks.
    modules : tuple of str
        Loaded in a job script.
    sbatch : dict of str to str
        Options of a job script, without their dashes.
    site : dict of str to str
        What the site has to set itself: name -> what it is.
    """

    name: str = "here"
    words: tuple[str, ...] = ()
    ranks_per_node: int | None = None
    cores_per_node: int | None = None
    environment: dict = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    sbatch: dict = field(default_factory=dict)
    site: dict = field(default_factory=dict)

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

    def with_launcher(self, name: str) -> Launcher:
        """The same with another launcher, by name."""
        return replace(self, words=LAUNCHERS[name] or ())


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
        return Launcher().with_launcher(text)
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
    launch = _table(table, "launch", file)
    check_keys(launch, _LAUNCH_KEYS, f"{file}: launch.")
    for key in ("ranks_per_node", "cores_per_node", "gpus_per_node"):
        integer(launch.get(key, 1), f"{file}: launch.{key}", least=1)
    environment = _texts(_table(table, "environment", file), f"{file}: environment")
    for key in environment:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key, re.ASCII):
            raise UsageError(f"{file}: environment: {key!r} is no name of a variable.")
    modules = _table(table, "modules", file).get("load", [])
    return Launcher(
        name,
        _words_of(launch.get("launcher", []), f"{file}: launch.launcher"),
        launch.get("ranks_per_node"),
        launch.get("cores_per_node"),
        environment=environment,
        modules=_words(modules, f"{file}: modules.load"),
        site=_texts(_table(table, "site", file), f"{file}: site"),
        sbatch=_sbatch(launch.get("sbatch", {}), f"{file}: launch.sbatch"),
    )


def _words_of(value, where: str) -> tuple[str, ...]:
    what = 'a list of arguments, as ["srun", "--ntasks={ranks}"]'
    require(not isinstance(value, str), where, what, value)
    words = _words(value, where)
    for place in re.findall(r"\{([^}]*)\}", "\n".join(words)):
        if place not in _PLACES:
            known = ", ".join(f"{{{name}}}" for name in _PLACES)
            raise UsageError(f"{where}: {{{place}}} is none of {known}.")
    return words


def _sbatch(value, where: str) -> dict:
    """Options of sbatch. Slurm reads these lines itself, with quoting of its own: only harmless
    characters."""
    found = _texts(value if isinstance(value, dict) else {"": None}, where)
    for key, text in found.items():
        if not re.fullmatch(r"[a-z][a-z0-9-]*", key, re.ASCII) or not re.fullmatch(
            r"[A-Za-z0-9_.:,=+@%/-]*", text, re.ASCII
        ):
            raise UsageError(
                f"{where}: {key} = {text!r}: only letters, digits and _ . : , = + @ % / - may be "
                "in it."
            )
    return found


def _table(table: dict, key: str, file: str) -> dict:
    value = table.get(key, {})
    require(isinstance(value, dict), f"{file}: {key}", f"a table, as [{key}]", value)
    return value


def _texts(table: dict, where: str) -> dict:
    return {
        key: check_text(str(value) if type(value) is int else value, f"{where}.{key}")
        for key, value in table.items()
    }


def _words(value, where: str) -> tuple[str, ...]:
    require(isinstance(value, list), where, "a list of texts", value)
    return tuple(check_text(word, where) for word in value)
