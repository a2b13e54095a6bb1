"""Machine files: how ranks are started on a machine. Arguments and environment, never a shell line.

A file in ``launch/data/machines/`` (or any path) has the tables ``[launch]``, ``[environment]`` and
``[modules]``; this module ignores the ``[model…]`` tables of the simulator.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from drbench.errors import UsageError, did_you_mean
from drbench.launch.host.mpi import mpiexec_command
from drbench.options import Option

from .sweep_values import check_keys, check_text, read_at, read_toml, require, shipped

#: Launchers by name. ``mpiexec`` is that of the MPI of this Python.
LAUNCHERS = {
    "mpiexec": "",
    "srun": "srun --ntasks={ranks} --input=0 --kill-on-bad-exit=1",
    "mpirun": "mpirun -n {ranks}",
    "aprun": "aprun -n {ranks}",
    "flux": "flux run -n {ranks}",
}
_SIZES = ("ranks_per_node", "cores_per_node")
_PLACES = ("ranks", "ranks_per_node", "nodes")
#: Patterns of variable names and of sbatch options, and their error texts.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\n.*", re.ASCII)
#: Slurm parses these lines itself, with its own quoting.
_SBATCH = re.compile(r"[a-z][a-z0-9-]*\n[A-Za-z0-9_.:,=+@%/-]*", re.ASCII)
_HARMLESS = {
    _VARIABLE: "this is not a variable name",
    _SBATCH: "only letters, digits and _ . : , = + @ % / - may be in it",
}


@dataclass(frozen=True)
class Launcher:
    """How to start ranks.

    Attributes
    ----------
    name : str
        Used as label of records without one.
    words : tuple of str
        Command that starts ranks, with {ranks}, {ranks_per_node} and {nodes}; empty: mpiexec.
    ranks_per_node : int or None
        Ranks of a full node.
    cores_per_node : int or None
        Cores shared by the ranks of a node, if --threads is not given.
    environment : dict of str to str
        Environment variables of the ranks.
    modules : tuple of str
        Modules that a job script loads.
    sbatch : dict of str to str
        Options of sbatch, without their dashes.
    """

    name: str = "here"
    words: tuple[str, ...] = ()
    ranks_per_node: int | None = None
    cores_per_node: int | None = None
    environment: dict = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    sbatch: dict = field(default_factory=dict)

    def nodes(self, ranks: int) -> int:
        """The number of nodes for this number of ranks.

        Examples
        --------
        >>> Launcher(ranks_per_node=8).nodes(12), Launcher().nodes(12)
        (2, 1)
        """
        return -(-ranks // self.ranks_per_node) if self.ranks_per_node else 1

    def node_of(self, ranks: int) -> list[int]:
        """For each rank the lowest rank on its node, with nodes filled one after another.

        Examples
        --------
        >>> Launcher(ranks_per_node=2).node_of(5), Launcher().node_of(2)
        ([0, 0, 2, 2, 4], [0, 0])
        """
        size = self.ranks_per_node or ranks
        return [rank // size * size for rank in range(ranks)]

    def command(self, ranks: int) -> list[str]:
        """The launcher and its arguments, without the program.

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
        value_of = lambda name: str(values[name[1]])
        return [re.sub(r"\{(\w+)\}", value_of, word) for word in self.words]


def load_launcher(text: str | None) -> Launcher:
    """The launcher of a name, or of a machine (name or path); None is this Python's mpiexec.

    Raises
    ------
    UsageError
        With the file and the key.

    Examples
    --------
    >>> load_launcher("flux").words, load_launcher("pvc12").ranks_per_node
    (('flux', 'run', '-n', '{ranks}'), 12)
    """
    if text is None:
        return Launcher()
    check_text(text, "--launcher")
    if text in LAUNCHERS:
        return Launcher(words=(*LAUNCHERS[text].split(),))
    known = shipped("machines")
    path = known.get(text, Path(text))
    if path.suffix != ".toml":
        raise UsageError(
            f"--launcher {text!r} is unknown. Use {', '.join(LAUNCHERS)}, a machine "
            f"({', '.join(known)}), or a .toml file.{did_you_mean(text, [*LAUNCHERS, *known])}"
        )
    table = read_toml(path, f"--launcher takes a file or one of {', '.join(known)}.")
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
    """A table of texts and numbers as texts; each NAME=TEXT must match a pattern."""
    require(isinstance(table, dict), where, "a table", table)
    texts = {}
    for key, value in table.items():
        texts[key] = check_text(str(value) if type(value) is int else value, f"{where}: {key}")
        if not pattern.fullmatch(f"{key}\n{texts[key]}"):
            raise UsageError(f"{where}: {key} = {value!r}: {_HARMLESS[pattern]}.")
    return texts


def _words(value, where: str) -> tuple[str, ...]:
    what = 'a list of arguments, as ["srun", "--ntasks={ranks}"]'
    require(isinstance(value, list), where, what, value)
    return tuple(check_text(word, where) for word in value)
