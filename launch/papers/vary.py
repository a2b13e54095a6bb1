"""Which claims of a paper turn when the machines that they were simulated on are others."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from launch.cases.machine_models import find_machine
from launch.models.simulate_sweeps import Variant

from .claims import HOLDS, Changed, Paper, check_claims


class Turn(NamedTuple):
    """What becomes of the claims of a paper when something is changed.

    Attributes
    ----------
    machine, change : str
        The machines, and what of them; empty in the row that says which claims hold as they are.
    changed_claims : str
        As ``P10 holds; P12 does not hold``.
    """

    paper: str
    machine: str
    change: str
    changed_claims: str


def assumed_changes(name: str, factors: tuple[float, ...]) -> Iterator[tuple[str, Changed]]:
    """Each assumed constant of a machine times each factor; a share of a rate stays at most 1.

    Examples
    --------
    >>> words = [words for words, _ in assumed_changes("h100x8", (0.5, 2.0))]
    >>> len(words) == len({*words}), "compute.sustained x 0.5" in words
    (True, True)
    >>> "compute.sustained x 2" in words
    False
    """
    machine = find_machine(name)
    for path in machine.assumed:
        if path.startswith("dtypes."):  # claims are about the type that a machine is for
            continue
        for factor in factors:
            share = path.endswith(("sustained", "efficiency"))
            if not (share and machine.constant(path) * factor > 1):
                yield f"{path} x {factor:g}", {name: Variant(machine.vary(path, factor))}


def vary(paper: str, what: Paper, results: Path) -> Iterator[Turn]:
    """A row for each change of a paper's machines; the first changes nothing.

    What is no simulation rests on no assumed constant, and is left out.
    """
    claims = [claim for claim in what.claims if claim.source == "simulated"]
    assumed = [each for name in what.machines for each in assumed_changes(name, what.factors)]
    before: dict[str, str] = {}
    for words, changed in [("", {}), *assumed, *what.changes()]:
        found = check_claims(claims, what.judged(what.simulate(changed), results))
        after = {verdict.claim.name: HOLDS[verdict.holds] for verdict in found}
        turned = (f"{name} {word}" for name, word in after.items() if before.get(name) != word)
        yield Turn(paper, ", ".join(changed), words, "; ".join(turned))
        before = before or after
