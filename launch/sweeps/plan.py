"""What a sweep was asked to be, and what that comes to: its cases, their ids and ranks."""

import os
from dataclasses import MISSING, dataclass, field, fields
from typing import NamedTuple

from launch.cases.case import Case
from launch.cases.launchers import Launcher, load_launcher
from launch.cases.machine_models import find_machine, model_version
from launch.cases.sweep_file import Sweep, load_sweep, ranks_of

from .store import case_id

#: What is asked for once, the same again goes on; and what is no option of the command.
_ONCE = ("fresh", "retry", "plugins")


@dataclass(frozen=True)
class SweepRequest:
    """What a sweep was asked to be; names and values as on the command line.

    Attributes
    ----------
    ranks : int
        Of a sweep that names several numbers of ranks itself, the most.
    override : tuple of (str, str)
        Keys of the file, and what stands for their values.
    machine : str or None
        With ``simulate``, the machine model on which times are predicted.
    """

    sweep: str
    ranks: int
    out: str
    scale: str | None = None
    override: tuple[tuple[str, str], ...] = ()
    label: str | None = None
    launcher: str | None = None
    timeout: float = 120.0
    mem_limit: int | None = None
    max_cases: int | None = None
    part: tuple[int, int] = (1, 1)
    fresh: bool = False
    retry: bool = False
    peak: str | None = None
    stream: bool = False
    simulate: bool = False
    machine: str | None = None
    yes: bool = False
    plugins: tuple[str, ...] = ()
    environ: dict = field(default_factory=lambda: dict(os.environ))

    def arguments(self) -> list[str]:
        """The command line that asks for the same again."""
        sweep = f"./{self.sweep}" if self.sweep.startswith("-") else self.sweep
        words = ["drbench", *(f"--plugin={each}" for each in self.plugins), "sweep", sweep]
        words += ["-p", str(self.ranks), f"--out={self.out}"]
        for each in fields(self):
            value, flag = getattr(self, each.name), f"--{each.name.replace('_', '-')}"
            if each.default in (MISSING, value) or each.name in _ONCE:
                continue
            if each.name == "override":
                words += [word for pair in value for word in ("-o", "{}={}".format(*pair))]
                continue
            if each.name == "part":
                value = "{}/{}".format(*value)
            words.append(flag if value is True else f"{flag}={value}")
        return words


class Plan(NamedTuple):
    """What a request comes to: the sweep, where it runs, its (id, case) pairs in the order of the
    file, all parts of it, and the number of ranks of each id."""

    sweep: Sweep
    launcher: Launcher
    pairs: list[tuple[str, Case]]
    ranks_of: dict[str, int]


def plan_cases(request: SweepRequest) -> Plan:
    """The plan of a request."""
    launcher = load_launcher(request.launcher)
    label, code = request.label, None
    if request.simulate:  # rows of two versions of a model are not of one sweep
        model = find_machine(request.machine)
        label, code = model.name, model_version(model)
    elif label is None and launcher.name != "here":
        label = launcher.name
    counts = ranks_of(request.sweep, request.ranks, request.override) or (request.ranks,)
    pairs, on = [], {}
    for ranks in counts:
        sweep = load_sweep(
            request.sweep, ranks, request.scale, request.override, label, request.simulate
        )
        named = [(case_id(case, ranks, code), case) for case in sweep.cases]
        pairs += named
        on |= dict.fromkeys((name for name, _ in named), ranks)
    return Plan(sweep, launcher, pairs, on)


def part_of(pairs: list, part: tuple[int, int]) -> list:
    """Every n-th, from the i-th.

    Examples
    --------
    >>> part_of(["a", "b", "c", "d", "e"], (2, 2))
    ['b', 'd']
    """
    return pairs[part[0] - 1 :: part[1]]
