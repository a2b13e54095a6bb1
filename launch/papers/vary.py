"""The claims of a paper whose verdict changes if the simulated machines are changed."""

import itertools
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from drbench.launch.cases.machine_models import file_of, find_machine
from drbench.launch.cases.sweep_values import read_toml

from .claims import HOLDS, Changed, Paper, check_claims

#: The change to the constants that :func:`first_constants` has.
FIRST = "the first constants"


class Variation(NamedTuple):
    """The changed verdicts of a paper's claims after a change of a machine.

    Attributes
    ----------
    machine, change : str
        The machines, and the change; empty in the row of the unchanged machines.
    changed_claims : str
        As ``P10 holds; P12 does not hold``.
    """

    paper: str
    machine: str
    change: str
    changed_claims: str


def one_by_one(
    name: str, paths: Sequence[str], factors: Sequence[float]
) -> Iterator[tuple[str, Changed]]:
    """Each of some constants of a machine times each factor, by default the assumed constants; a
    share of a rate is at most 1.

    Examples
    --------
    >>> words = [words for words, _ in one_by_one("h100x8", (), (0.5, 2.0))]
    >>> len(words) == len({*words}), "compute.sustained x 0.5" in words
    (True, True)
    >>> "compute.sustained x 2" in words
    False
    """
    machine = find_machine(name)
    # claims are about the type that a machine is for
    assumed = (path for path in machine.assumed if not path.startswith("dtypes."))
    for path, factor in itertools.product(paths or assumed, factors):
        share = path.endswith(("sustained", "efficiency"))
        if not (share and machine.constant(path) * factor > 1):
            yield f"{path} x {factor:g}", {name: machine.vary(path, factor)}


def first_constants(name: str) -> dict[str, list]:
    """The first values of the constants of a machine that were changed after claims had been
    simulated, each with the commit that changed it.

    Examples
    --------
    >>> first_constants("h800")["collectives.*.bandwidth_bytes_per_s"]
    [160000000000.0, 'fd9a3618']
    """
    return read_toml(file_of(name)).get("first", {})


def vary(paper: str, what: Paper, results: Path) -> Iterator[Variation]:
    """A row for each change of a paper's machines; the first changes nothing.

    Claims without simulations do not depend on constants of a machine, and are left out.
    """
    claims = [claim for claim in what.claims if claim.source == "simulated"]
    single = (one_by_one(*machine, what.factors) for machine in what.machines.items())
    fair = {name: f"{name},arbitration=fair" for name in what.machines}
    alternatives = {"transfers share links fairly": fair} | what.alternatives
    others = [
        (words, {name: find_machine(text) for name, text in machines.items()})
        for words, machines in alternatives.items()
    ]
    firsts = {
        name: find_machine(name).with_values({path: value for path, (value, _) in values.items()})
        for name in what.machines
        if (values := first_constants(name))
    }
    others += [(FIRST, firsts)] * bool(firsts)
    before: dict[str, str] = {}
    for words, changed in chain([("", {})], *single, others):
        verdicts = check_claims(claims, what.judged(what.simulate(changed), results))
        after = {verdict.claim.name: HOLDS[verdict.holds] for verdict in verdicts}
        new_verdicts = (
            f"{name} {word}" for name, word in after.items() if before.get(name) != word
        )
        yield Variation(paper, ", ".join(changed), words, "; ".join(new_verdicts))
        before = before or after
